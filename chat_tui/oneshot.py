"""One question, from the command line or a pipe, answered on stdout: as text, or as one JSON
document.

Nothing but the answer goes to stdout; progress and errors go to stderr. What a model thinks before
it answers is no part of the answer. With one sample the text is written as it grows; with several,
those to one prompt follow under headers when all of them are done. Control characters of the
model's text are made visible, and a tool call is written `[12*7 → 84]`. The form of what is written
is in `oneshot_output.py`.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType

from chat_tui.backends.base import WaitingBackend
from chat_tui.backends.made import backend_for
from chat_tui.download_progress import DownloadProgress
from chat_tui.oneshot_output import Result, Sample, Writer, document, remark, write_texts
from chat_tui.settings import Settings, Setup, Source, by_prompt
from engine.messages import (
    Ask,
    Cancel,
    Died,
    Event,
    Failed,
    Finished,
    Load,
    Loading,
    Overflowed,
    Ready,
    RowFinished,
    Started,
    Stats,
    Stepped,
)
from engine.seeds import fresh_seed

INTERRUPTED = 130


def answer_once(
    prompt: str | None,
    settings: Settings,
    *,
    as_json: bool,
    make: Callable[[Load], WaitingBackend] = backend_for,
) -> int:
    """Ask, write the answers, return the exit code. `prompt` None takes all of stdin; with a
    prompt, what is piped in follows it.

    Several models are asked one after the other, each with the whole machine. One that fails costs
    the others nothing: theirs are written, and the exit code is 1.
    """
    stdin = _Stdin(needed=not prompt)
    setups = settings.setups()
    if settings.seed is None and len(by_prompt(setups)) > 1:
        settings = settings.changed("seed", fresh_seed())
    once = _Once(prompt, stdin, settings, as_json, make)
    try:
        for source in settings.sources:
            once.ask(source)
            if once.interrupted:
                break
        if as_json and once.results:
            print(json.dumps(document(once.results)))
    except _NothingAskedError:
        print("chat-tui: nothing to ask: the text is empty; give -p TEXT.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return INTERRUPTED if once.interrupted else int(once.failed)


class _Problem(Exception):
    """One line for stderr."""


class _NothingAskedError(Exception):
    """There is no text."""


class _Once:
    """One text for all models; what came of it."""

    def __init__(
        self,
        prompt: str | None,
        stdin: _Stdin,
        settings: Settings,
        as_json: bool,
        make: Callable[[Load], WaitingBackend],
    ) -> None:
        self._prompt, self._stdin, self._settings = prompt, stdin, settings
        self._as_json, self._make = as_json, make
        self._setups = settings.setups()
        self.results: list[Result] = []
        self.interrupted = self.failed = False

    def ask(self, source: Source) -> None:
        """Load one model, ask it under each system text, and let it go."""
        settings = self._settings
        load = replace(settings.loads()[source], threads=settings.threads, beside=False)
        backend = self._make(load)
        try:
            backend.send(load)  # the model loads while the text comes in
            events = _Events(backend)
            name = self._when_ready(events, source) if self._prompt else ""
            text = self._text()
            name = name or self._when_ready(events, source)
            for (asked, _), places in by_prompt(self._setups).items():
                if asked == source and not self.interrupted:
                    setups = [self._setups[place] for place in places]
                    result = self._answer(text, name, setups, backend, events)
                    self.results.append(result)
                    if not self._as_json and len(self._setups) > 1:
                        write_texts(self.results, self._setups)
        except _Problem as problem:
            several = len(settings.sources) > 1
            line = f"{source.label}: {problem}" if several else f"{problem}"
            print(f"chat-tui: {line}", file=sys.stderr)
            self.failed = True
        finally:
            backend.close()

    def _text(self) -> str:
        text = "\n\n".join(part for part in (self._prompt, self._stdin.text()) if part)
        if not text.strip():
            raise _NothingAskedError
        return text

    def _when_ready(self, events: Iterator[Event], source: Source) -> str:
        """Wait for the model; its name, which a server knows better."""
        progress = DownloadProgress()
        for event in events:
            if isinstance(event, Loading):
                progress.show(event.what, event.done, event.total)
            elif isinstance(event, Ready):
                progress.close()
                return source.name if source.server is None else event.info.name
        raise AssertionError("events end with an exception alone")

    def _answer(
        self,
        text: str,
        name: str,
        setups: Sequence[Setup],
        backend: WaitingBackend,
        events: Iterator[Event],
    ) -> Result:
        settings = self._settings
        backend.send(
            Ask(
                len(self.results),
                text,
                system=setups[0].system,
                tools=settings.tools,
                samples=len(setups),
                params=settings.params(setups),
            )
        )
        samples = [Sample() for _ in setups]
        writer = None if self._as_json or len(self._setups) > 1 else Writer()
        started: Started | None = None
        stats: Stats | None = None
        cancel = Cancel(len(self.results))
        with _Interrupts(lambda: backend.send(cancel)) as interrupts:
            for event in _ending(events, writer):
                if isinstance(event, Started):
                    started = event
                elif isinstance(event, Overflowed):
                    raise _Problem(
                        f"The text has {event.prompt_tokens} tokens and the model holds"
                        f" {event.limit}: shorten it."
                    )
                elif isinstance(event, Stepped):
                    for row, sample in enumerate(samples):
                        sample.add(event, row)
                    for row, index, call in event.calls:
                        samples[row].set_call(index, call)
                elif isinstance(event, RowFinished):
                    samples[event.row].text += event.text
                    samples[event.row].reason = event.reason
                elif isinstance(event, Finished):
                    stats = event.stats
                if writer:
                    writer.write(samples[0])
                if stats:
                    break
        self.interrupted = bool(interrupts.count)
        assert started is not None, "an ask that finishes has started"
        assert stats is not None
        if writer:
            writer.end()
            if samples[0].remark:
                remark(samples[0].remark)
        return Result(name, setups, started, samples, stats)


class _Events:
    """What a backend says, until it says that something failed. An iterator, not a generator: who
    stops in the middle goes on with it later."""

    def __init__(self, backend: WaitingBackend) -> None:
        self._backend = backend
        self._said: deque[Event] = deque()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._said:
            self._backend.wait(0.5)
            self._said += self._backend.drain()
        event = self._said.popleft()
        if isinstance(event, Died):
            raise _Problem(event.reason)
        if isinstance(event, Failed):
            raise _Problem(event.message)
        return event


def _ending(events: Iterator[Event], writer: Writer | None) -> Iterator[Event]:
    """`events`; where they end in a problem, what came before it is written to its last letter."""
    try:
        yield from events
    except _Problem:
        if writer:
            writer.end()
        raise


class _Interrupts:
    """Ctrl+C while an answer grows: the first stops it and keeps what is there, the second leaves.

    A handler, not KeyboardInterrupt: the exception would land anywhere, also where an event has
    been taken from the queue and is not yet in its sample."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.count = 0
        self._stop = stop

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
        self._stop()


class _Stdin:
    """What is piped in, read beside the loading of the model.

    With a prompt on the command line a pipe is only looked at: a scheduler or a test may hand over
    one that never ends and never says anything, and waiting for it would be a hang that nobody
    sees.
    """

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._chunks: list[bytes] = []
        self._reader: threading.Thread | None = None
        if needed or (not sys.stdin.closed and _is_pipe_or_file(sys.stdin.fileno())):
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def text(self) -> str:
        """All of it, without the last newline; empty where nothing was needed and nothing came."""
        if self._reader is None:
            return ""
        while self._reader.is_alive():
            if not (self._needed or self._chunks):
                print("chat-tui: standard input is silent; going on without it.", file=sys.stderr)
                return ""
            self._reader.join(0.1)  # in slices, so that Ctrl+C is heard
        return b"".join(self._chunks).decode("utf-8", "replace").removesuffix("\n")

    def _read(self) -> None:
        descriptor = sys.stdin.fileno()
        while chunk := os.read(descriptor, 1 << 16):
            self._chunks.append(chunk)


def _is_pipe_or_file(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
