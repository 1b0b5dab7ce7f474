"""The program under measurement: the real app, with a clock in its event loop.

    python -c 'from chat_tui.screen_probe import main; main()' CONFIG

`chat_tui.screen_bench` starts this in a pseudo-terminal and reads one JSON document per line from
the descriptor that CONFIG names: {"event": "begin"} when the measured stretch begins, then
{"event": "end", ...figures}, or {"event": "failed", "message": ...}.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import resource
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice

from chat_tui.app import ChatApp
from chat_tui.backends.base import Backend
from chat_tui.settings import Settings, Source
from engine.bench.report import percentile
from engine.messages import (
    Ask,
    Event,
    Load,
    ModelInfo,
    Prefilling,
    Ready,
    Request,
    Started,
    Stepped,
)

PERIOD_S = 0.02
"""Of the timer whose lateness is measured."""

SETTLE_S = 2.0
"""Between a scripted stream's first token and the measured stretch."""

QUESTION = "Write a long story about a lighthouse keeper who finds an old map in a bottle."


@dataclass(frozen=True)
class Config:
    """What the process is told.

    Attributes:
        descriptor: where results are written.
        panes: answers side by side.
        rate: scripted tokens per second and pane; 0 is the real engine at its own rate.
        held: scripted tokens that each pane has before its stream begins.
        seconds: length of the measured stretch of a scripted stream.
        resize: columns and lines that the terminal gets at the end of a scripted stream, if any.
        asks, max_tokens: of the real engine: how often it is asked, and how much it answers.
        model, device, dtype, threads: the real engine's.
    """

    descriptor: int
    panes: int = 8
    rate: float = 25.0
    held: int = 0
    seconds: float = 10.0
    resize: tuple[int, int] | None = None
    asks: int = 2
    max_tokens: int = 128
    model: str = ""
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None

    def settings(self) -> Settings:
        """The same question, the same seed, the same answers: with a screen and without."""
        return Settings(
            models=(Source(self.model),),
            samples=self.panes,
            max_tokens=self.max_tokens,
            seed=1,
            tools=False,
            device=self.device,
            dtype=self.dtype,
            threads=self.threads,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))


_SCRIPT = """\
The lighthouse stood at the **end** of a long spit of sand, and the keeper had lived in it for
longer than anyone in the village could say. He wrote down what he saw:

- a ship with *two* masts, bound for the north;
- the gulls, which came back on the third of March;
- a bottle, green, with something in it.

He set it on the table and looked at it for a while. `open(bottle)` he would have written, had he
been that kind of man:

```python
def open_bottle(bottle):
    for cork in bottle.corks:
        cork.pull()
    return bottle.contents  # a map, as it turned out
```

## The map

It showed the coast as it had been before the storm, with a path that no longer was, and at its end
a cross. The keeper took his coat, his lamp and some bread, and shut the door behind him.

"""


def scripted_words(row: int) -> Iterator[str]:
    """Endless Markdown, a word with the space before it at a time; every row begins elsewhere."""
    words = re.findall(r"\s*\S+", _SCRIPT)
    return islice(cycle(words), row * 17, None)


class ScriptedBackend:
    """Implements `chat_tui.backends.base.Backend`: answers any question with `_SCRIPT`, at a steady
    rate, without end."""

    def __init__(
        self, rate: float, held: int = 0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._rate = rate
        self._held = held
        self._clock = clock
        self._events: list[Event] = []
        self._ask: Ask | None = None
        self._words: list[Iterator[str]] = []
        self._began = 0.0
        self._said = 0

    def send(self, request: Request) -> None:
        if isinstance(request, Load):
            self._events.append(Ready(_INFO))
        elif isinstance(request, Ask):
            self._ask = request
            self._words = [scripted_words(row) for row in range(request.samples)]
            self._began, self._said = self._clock(), 0
            temperatures = (0.7,) * request.samples
            self._events += [
                Started(request.ask, (1, 2, 3), 0, 1, temperatures, _INFO.context),
                Prefilling(request.ask, 3, 3),
            ]

    def drain(self) -> list[Event]:
        events, self._events = self._events, []
        if self._ask is not None:
            due = self._held + int((self._clock() - self._began) * self._rate)
            rows = self._ask.samples
            for _ in range(due - self._said):
                texts = tuple(next(words) for words in self._words)
                events.append(Stepped(self._ask.ask, (1,) * rows, (1,) * rows, texts))
            self._said = due
        return events

    def close(self) -> None:
        self._ask = None


_INFO = ModelInfo(
    name="scripted",
    family="scripted",
    path="",
    parameters=0,
    weight_bytes=0,
    kv_bytes_per_token=0,
    n_layer=1,
    n_head=1,
    n_kv_head=1,
    head_dim=1,
    vocab_size=4,
    context=100_000,
    dtype="none",
    device="cpu",
    backend="scripted",
)


class Lateness:
    """How late the event loop comes to a timer.

    A loop that is busy for ten periods misses ten of them, and each counts with what it waited:
    else one long pause would weigh as little as one short one.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def watch(self) -> None:
        """Measure until cancelled."""
        due = time.perf_counter() + PERIOD_S
        while True:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            now = time.perf_counter()
            while due <= now:
                self.seconds.append(now - due)
                due += PERIOD_S


class ProbedApp(ChatApp):
    """The app, asking by itself, leaving by itself."""

    def __init__(self, config: Config, backend: Backend) -> None:
        super().__init__(config.settings(), backend)
        self.config = config
        self.failure = ""
        self._results = os.fdopen(config.descriptor, "w", encoding="utf-8")

    def on_mount(self) -> None:
        super().on_mount()
        self._conducting = asyncio.create_task(self._conduct())

    def tell(self, event: str, **figures: object) -> None:
        self._results.write(json.dumps({"event": event, **figures}) + "\n")
        self._results.flush()

    async def _conduct(self) -> None:
        try:
            while self.chat.phase == "loading":
                await asyncio.sleep(0.05)
            if self.config.rate:
                await self._measure_stream()
            else:
                await self._measure_engine()
        except Exception as error:
            self.tell("failed", message=f"{type(error).__name__}: {error}")
        finally:
            self.exit()

    async def _measure_stream(self) -> None:
        await self._ask()
        await asyncio.sleep(SETTLE_S)
        self.tell("begin")
        stretch = _Stretch(self)
        await asyncio.sleep(self.config.seconds)
        figures = stretch.end()
        if self.config.resize is not None:
            figures["resize_s"] = await self._resize(*self.config.resize)
        self.tell("end", rates=[], **figures)

    async def _resize(self, columns: int, lines: int) -> float:
        """Seconds from the terminal's signal until a frame is painted in which every pane has its
        new width, and the tokens that came meanwhile."""
        before = [pane.columns for pane in self.grid.panes]
        began = time.perf_counter()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(sys.__stdin__ or 0, termios.TIOCSWINSZ, size)
        os.kill(os.getpid(), signal.SIGWINCH)
        while not all(
            pane.columns not in (width, 0) and pane.fits
            for pane, width in zip(self.grid.panes, before, strict=True)
        ):
            await asyncio.sleep(0.001)
        painted = asyncio.Event()
        self.drain()
        self.call_after_refresh(painted.set)
        await painted.wait()
        return time.perf_counter() - began

    async def _measure_engine(self) -> None:
        """All asks in one stretch, so that its lateness has prefills in it, too."""
        rates: list[float] = []
        self.tell("begin")
        stretch = _Stretch(self)
        for _ in range(self.config.asks):
            await self._ask()
            while (turn := self.chat.turn) is not None and not turn.over:
                await asyncio.sleep(0.05)
            stats = turn.parts[0].stats if turn is not None else None
            if stats is None:
                raise RuntimeError("the engine did not answer")
            rates.append(stats.tokens_per_s)
            self.act(self.chat.new)
        figures = {**stretch.end(), "tokens_per_s": percentile(rates, 0.5)}
        self.tell("end", rates=rates, **figures)

    async def _ask(self) -> None:
        """Ask, and wait for the first token."""
        if self.chat.phase != "ready":
            raise RuntimeError("there is no model")
        self.act(lambda: self.chat.send(QUESTION))
        while (turn := self.chat.turn) is not None and turn.first_at is None and not turn.over:
            await asyncio.sleep(0.01)


class _Stretch:
    """What is counted between two moments."""

    def __init__(self, app: ProbedApp) -> None:
        self._app = app
        self._tokens = self._tokens_now()
        self._cpu = _cpu_seconds()
        self._began = time.perf_counter()
        self._lateness = Lateness()
        self._watching = asyncio.create_task(self._lateness.watch())

    def _tokens_now(self) -> int:
        turn = self._app.chat.turn
        return sum(len(row.tokens) for row in turn.rows) if turn is not None else 0

    def end(self) -> dict[str, float]:
        self._watching.cancel()
        wall = time.perf_counter() - self._began
        return {
            "tokens_per_s": max(0, self._tokens_now() - self._tokens) / wall,
            "lateness_p50_s": percentile(self._lateness.seconds, 0.5),
            "lateness_p95_s": percentile(self._lateness.seconds, 0.95),
            "cpu_share": (_cpu_seconds() - self._cpu) / wall,
        }


def _cpu_seconds() -> float:
    """Of all threads of this process; the engine's is another one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the app on this process's terminal."""
    from chat_tui import terminal

    config = Config(**json.loads(sys.argv[1]))
    terminal.install()
    backend: Backend
    if config.rate:
        backend = ScriptedBackend(config.rate, config.held)
    else:
        from chat_tui.backends.local import LocalBackend

        backend = LocalBackend()
    try:
        ProbedApp(config, backend).run()
    finally:
        backend.close()
