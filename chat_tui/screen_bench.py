"""Measures the screen: the real program in a pseudo-terminal of 200x50, eight answers streaming.

    screen = measure(Settings(), quick=False, tell=print)

Three loads: a scripted stream of 25 tokens/s per pane, which says what painting costs; the same
into panes that hold 4,000 tokens already, which must cost no more; and the real engine at its own
rate, which is also run without any screen to see what the screen takes from it. Keys are typed
meanwhile and watched for on the terminal. This process reads what is painted and throws it away,
as a terminal that costs nothing; `chat_tui.screen_probe` is the program under measurement.
"""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import chat_tui
from chat_tui.asking import ALTERNATIVES
from chat_tui.settings import Settings
from engine.bench.report import Screen, ScreenLoad, Start, median, percentile
from engine.errors import EngineError

COLUMNS, LINES = 200, 50
PANES = 8
TOKENS_PER_S = 25.0
"""Of each pane, scripted."""

LONG_ANSWER = 4000
"""Tokens."""

KEYS = "".join(map(chr, (*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA), *range(0x430, 0x450))))
"""Typed one after the other; each is one that nothing else on the screen has."""

KEY_EVERY_S = 0.2
SILENT_FOR_S = 120.0
"""After so long without a sign of life the program is taken for dead; a model may have to load."""

REST_S = 1.0
"""Before a start: the engine of the one before has left the processor by then."""

RESIZED = (150, 40)

FRAME, READY = "╭", "●"
"""Painted with the first frame (the prompt's box), and when the model can be asked (the dot at the
beginning of the status line)."""

_PROBE = "from chat_tui.screen_probe import main; main()"
_COMMAND = "from chat_tui.cli import main; main()"

_ROOT = Path(chat_tui.__file__).parent.parent

Tell = Callable[[str], object]


def measure(settings: Settings, *, quick: bool = False, tell: Tell = lambda line: None) -> Screen:
    """Measure the screen, and the engine of `settings` with it and without it.

    Raises:
        EngineError: the program did not run, or there are no pseudo-terminals here.
    """
    if sys.platform == "win32":
        raise EngineError("The screen can be measured on Linux and macOS only.")
    seconds = 4.0 if quick else 12.0
    tell("Screen: a scripted stream.")
    scripted = run_probe({"panes": PANES, "rate": TOKENS_PER_S, "seconds": seconds})
    tell("Screen: a scripted stream into long answers.")
    long_answer = run_probe(
        {
            "panes": PANES,
            "rate": TOKENS_PER_S,
            "held": LONG_ANSWER,
            "seconds": seconds,
            "resize": RESIZED,
        }
    )
    tell("Screen: starting.")
    start = start_times(settings, 1 if quick else 5)
    asked = {
        "panes": PANES,
        "rate": 0,
        "asks": 1 if quick else 2,
        "max_tokens": 48 if quick else 128,
        "model": settings.models[0].name,
        "device": settings.device,
        "dtype": settings.dtype,
        "threads": settings.threads,
    }
    alone: list[float] = []
    loads: list[Observed] = []
    for _ in range(1 if quick else 3):
        tell("Screen: the engine without it.")
        alone += engine_alone(asked)
        tell("Screen: the engine with it.")
        loads.append(run_probe(asked))
    with_screen = [rate for load in loads for rate in load.rates]
    first = scripted.load()
    return Screen(
        panes=PANES,
        tokens_per_s=first.tokens_per_s,
        engine_rate_kept=median(with_screen) / median(alone),
        lateness_p50_s=first.lateness_p50_s,
        lateness_p95_s=first.lateness_p95_s,
        cpu_share=first.cpu_share,
        key_echo_p95_s=first.key_echo_p95_s,
        resize_s=long_answer.figures["resize_s"],
        long_answer=long_answer.load(),
        with_engine=_middle([run.load() for run in loads]),
        start=start,
    )


@dataclass(frozen=True)
class Observed:
    """One run of the program: its own figures, the engine's rates, and each key's echo."""

    figures: dict[str, float]
    rates: tuple[float, ...]
    echoes: tuple[float, ...]

    def load(self) -> ScreenLoad:
        return ScreenLoad(
            tokens_per_s=self.figures["tokens_per_s"],
            lateness_p50_s=self.figures["lateness_p50_s"],
            lateness_p95_s=self.figures["lateness_p95_s"],
            cpu_share=self.figures["cpu_share"],
            key_echo_p95_s=percentile(self.echoes, 0.95),
        )


def _middle(loads: list[ScreenLoad]) -> ScreenLoad:
    """The medians of several runs."""
    names = [field.name for field in fields(ScreenLoad)]
    return ScreenLoad(**{name: median([getattr(load, name) for load in loads]) for name in names})


def engine_alone(asked: dict[str, Any]) -> list[float]:
    """Tokens/s of the engine's process, asked the same with nothing but this process to read
    them."""
    from chat_tui.backends.local import LocalBackend
    from chat_tui.screen_probe import QUESTION, Config
    from engine.messages import Ask, Died, Failed, Finished, Overflowed, Ready

    config = Config(descriptor=-1, **asked)
    settings = config.settings()
    backend = LocalBackend()
    rates: list[float] = []
    try:
        backend.send(*settings.loads().values())
        while len(rates) < config.asks:
            backend.wait(1.0)
            for event in backend.drain():
                if isinstance(event, Died):
                    raise EngineError(event.reason)
                if isinstance(event, Failed):
                    raise EngineError(event.message)
                if isinstance(event, Overflowed):
                    raise EngineError("The model's context is too short for the question.")
                if isinstance(event, Finished):
                    rates.append(event.stats.tokens_per_s)
                if isinstance(event, (Ready, Finished)):
                    backend.send(
                        Ask(
                            len(rates) + 1,
                            QUESTION,
                            tools=settings.tools,
                            samples=settings.samples,
                            params=replace(
                                settings.params(settings.setups()), alternatives=ALTERNATIVES
                            ),
                        )
                    )
    finally:
        backend.close()
    return rates


def run_probe(config: dict[str, Any]) -> Observed:
    """Run the program in a pseudo-terminal of its own until it leaves; `config` are the fields of
    `screen_probe.Config`."""
    results, write_end = os.pipe()
    argument = json.dumps({"descriptor": write_end, **config})
    with _in_terminal(_PROBE, argument, inherit=(write_end,)) as master:
        os.close(write_end)
        try:
            return _Watch(master, results).until_the_end()
        finally:
            os.close(results)


def start_times(settings: Settings, repeats: int) -> Start:
    """Medians of the real command's start; the model is in the cache, or is fetched first."""
    options = ["--model", settings.models[0].name]
    for name, value in (("--device", settings.device), ("--dtype", settings.dtype)):
        options += [name, value] if value else []
    help_s, first_frame_s, ready_s = [], [], []
    for _ in range(repeats):
        time.sleep(REST_S)
        began = time.perf_counter()
        subprocess.run([*_python(_COMMAND), "--help"], stdout=subprocess.DEVNULL, check=True)
        help_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        with _in_terminal(_COMMAND, *options) as master:
            first_frame_s.append(_painted(master, FRAME) - began)
            ready_s.append(_painted(master, READY) - began)
    return Start(median(help_s), median(first_frame_s), median(ready_s))


def _painted(master: int, sign: str) -> float:
    """The time at which `sign` is on the terminal."""
    painted, heard = b"", time.perf_counter()
    while True:
        ready, _, _ = select.select([master], [], [], 1.0)
        now = time.perf_counter()
        if ready:
            try:
                painted = painted[-400:] + os.read(master, 1 << 18)
            except OSError:
                last = painted.decode("utf-8", "replace").strip()
                raise EngineError(f"The program ended early: {last[-200:]!r}") from None
            if sign.encode() in painted:
                return now
        if now - heard > SILENT_FOR_S:
            raise EngineError("The program does not become ready; is there such a model?")


def _python(start: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path[:1] = [{str(_ROOT)!r}]; {start}"]


@contextmanager
def _in_terminal(start: str, *arguments: str, inherit: tuple[int, ...] = ()) -> Iterator[int]:
    """Run `start` with a new pseudo-terminal; gives the terminal's end, and kills what still runs
    at the end."""
    master, slave = _pseudo_terminal()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("NO_COLOR", "TEXTUAL", "TEXTUAL_DRIVER", "TEXTUAL_LOG"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*_python(start), *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,  # where Textual paints
        env=environment,
        pass_fds=inherit,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield master
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _pseudo_terminal() -> tuple[int, int]:
    import fcntl
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    return master, slave


class _Watch:
    """The terminal's side: reads what is painted, types keys, takes the results."""

    def __init__(self, master: int, results: int) -> None:
        self._master = master
        self._results = results
        self._lines = b""
        self._painted = b""
        """The last bytes of a read, where a character may have been cut."""
        self._keys = list(KEYS)
        self._typed: tuple[bytes, float] | None = None
        self._next_key = float("inf")
        self._echoes: list[float] = []

    def until_the_end(self) -> Observed:
        heard = time.monotonic()
        while True:
            ready, _, _ = select.select([self._master, self._results], [], [], 0.005)
            now = time.perf_counter()
            if ready:
                heard = time.monotonic()
            if self._results in ready and (observed := self._take_results()) is not None:
                return observed
            if self._master in ready:
                self._take_paint(now)
            if time.monotonic() - heard > SILENT_FOR_S:
                raise EngineError("The program under measurement does not answer.")
            self._type(now)

    def _take_results(self) -> Observed | None:
        chunk = os.read(self._results, 65536)
        if not chunk:
            last = self._painted.decode("utf-8", "replace").strip()
            raise EngineError(f"The program under measurement ended early: {last[-200:]!r}")
        *lines, self._lines = (self._lines + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["event"] == "failed":
                raise EngineError(f"The program under measurement failed: {message['message']}")
            if message["event"] == "begin":
                self._next_key = time.perf_counter() + KEY_EVERY_S
            else:
                rates = tuple(message.pop("rates"))
                message.pop("event")
                return Observed(message, rates, tuple(self._echoes + self._unanswered()))
        return None

    def _unanswered(self) -> list[float]:
        """A key that has not been painted has waited until now; one that was typed just before says
        nothing."""
        waited = time.perf_counter() - self._typed[1] if self._typed else 0.0
        return [waited] if waited > KEY_EVERY_S else []

    def _take_paint(self, now: float) -> None:
        try:
            chunk = os.read(self._master, 1 << 18)
        except OSError:  # the program has closed its terminal; its results are still to be read
            time.sleep(0.005)
            return
        painted = self._painted + chunk
        if self._typed is not None and self._typed[0] in painted:
            self._echoes.append(now - self._typed[1])
            self._typed = None
        self._painted = painted[-400:]

    def _type(self, now: float) -> None:
        if self._typed is None and self._keys and now >= self._next_key:
            key = self._keys.pop(0).encode()
            self._typed = (key, now)
            self._next_key = now + KEY_EVERY_S
            os.write(self._master, key)
