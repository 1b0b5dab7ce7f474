"""One question, from the command line or a pipe, answered on stdout: as text, or as one JSON
document.

Nothing but the answer goes to stdout; progress and errors go to stderr. With one sample the text is
written as it grows; with several, each follows under a header when all are done. Control characters
of the model's text are made visible, and a tool call is written `[12*7 → 84]`.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType

from chat_tui.backends.base import WaitingBackend
from chat_tui.download_progress import DownloadProgress
from chat_tui.rendering.sanitise import sanitise
from chat_tui.settings import Settings
from engine.messages import (
    NO_ID,
    Ask,
    Cancel,
    Died,
    Event,
    Failed,
    Finished,
    FinishReason,
    Loading,
    Overflowed,
    Ready,
    RowFinished,
    Started,
    Stats,
    Stepped,
    ToolCall,
    per_row,
)

INTERRUPTED = 130


@dataclass
class _Sample:
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    reason: FinishReason | None = None

    def add(self, event: Stepped, row: int) -> None:
        token, mask = event.tokens[row], event.masks[row]
        if token is not None and mask is not None:
            self.tokens.append(token)
            self.mask.append(mask)
            self.text += event.texts[row]

    def set_call(self, index: int, call: ToolCall) -> None:
        self.calls[index:] = [call]

    def shown(self) -> str:
        """The text as far as it is settled, tool calls written as chips."""
        out, at = "", 0
        for call in self.calls:
            if call.start == call.end:
                continue  # it looked like a call and was none
            out += self.text[at : call.start]
            if not call.done and self.reason is None:
                return out
            result = "?" if call.result is None else call.result
            after = self.text[call.end : call.end + 1]
            out += f"[{call.expression.strip()} → {result}]" + (" " if after.isalnum() else "")
            at = call.end
        # A lone `<` may become the beginning of a call.
        tail = self.text[at:]
        return out + (tail.rstrip("<") if self.reason is None else tail)


def answer_once(
    prompt: str | None, settings: Settings, backend: WaitingBackend, *, as_json: bool
) -> int:
    """Ask, write the answer, return the exit code. `prompt` None takes all of stdin; with a prompt,
    what is piped in follows it."""
    stdin = _Stdin(needed=not prompt)
    try:
        backend.send(settings.load())  # the model loads while the text comes in
        events = _events(backend)
        if prompt:
            settings = _when_ready(events, settings)
        text = "\n\n".join(part for part in (prompt, stdin.text()) if part)
        if not text.strip():
            print("chat-tui: nothing to ask: the text is empty; give -p TEXT.", file=sys.stderr)
            return 2
        if not prompt:
            settings = _when_ready(events, settings)
        return _answer(text, settings, backend, events, as_json)
    except _Problem as problem:
        print(f"chat-tui: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    finally:
        backend.close()


class _Problem(Exception):
    """One line for stderr."""


def _events(backend: WaitingBackend) -> Iterator[Event]:
    while True:
        backend.wait(0.5)
        for event in backend.drain():
            if isinstance(event, Died):
                raise _Problem(event.reason)
            if isinstance(event, Failed):
                raise _Problem(event.message)
            yield event


def _when_ready(events: Iterator[Event], settings: Settings) -> Settings:
    """Wait for the model; a server has its own name for it."""
    progress = DownloadProgress()
    for event in events:
        if isinstance(event, Loading):
            progress.show(event.what, event.done, event.total)
        elif isinstance(event, Ready):
            progress.close()
            return (
                settings if settings.server is None else settings.changed("model", event.info.name)
            )
    raise AssertionError("events end with an exception alone")


def _answer(
    text: str, settings: Settings, backend: WaitingBackend, events: Iterator[Event], as_json: bool
) -> int:
    backend.send(
        Ask(
            0,
            text,
            system=settings.system,
            tools=settings.tools,
            samples=settings.samples,
            params=settings.params(),
        )
    )
    samples = [_Sample() for _ in range(settings.samples)]
    writer = None if as_json or settings.samples > 1 else _Writer()
    started: Started | None = None
    stats: Stats | None = None
    with _Interrupts(lambda: backend.send(Cancel(0))) as interrupts:
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
                writer.write(samples[0].shown())
            if stats:
                break
    assert started is not None, "an ask that finishes has started"
    assert stats is not None
    if as_json:
        print(json.dumps(_document(settings, started, samples, stats)))
    elif writer:
        writer.end()
    else:
        for index, sample in enumerate(samples):
            temperature = started.temperatures[index]
            print(
                f"--- {index + 1}/{len(samples)}  temperature {temperature:g}  "
                f"seed {started.seed + index}  {sample.reason}"
            )
            print(sanitise(sample.shown()))
    return INTERRUPTED if interrupts.count else 0


def _ending(events: Iterator[Event], writer: _Writer | None) -> Iterator[Event]:
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


def _document(
    settings: Settings, started: Started, samples: list[_Sample], stats: Stats
) -> dict[str, object]:
    return {
        "model": settings.asked_for,
        "prompt_tokens": len(started.prompt_tokens) or stats.prompt_tokens,
        "samples": [
            {
                "index": index,
                "text": sample.text,
                # A server may not say which tokens they are.
                "tokens": None if NO_ID in sample.tokens else sample.tokens,
                "mask": None if NO_ID in sample.tokens else sample.mask,
                "finish_reason": sample.reason,
                "tool_calls": [
                    {"expression": call.expression, "result": call.result}
                    for call in sample.calls
                    if call.start != call.end
                ],
                "seed": started.seed + index,
                "temperature": started.temperatures[index],
                "top_k": top_k,
            }
            for index, (sample, top_k) in enumerate(
                zip(samples, per_row(settings.top_ks, len(samples)), strict=True)
            )
        ],
        "stats": {
            "ttft_s": stats.ttft_s,
            "prefill_s": stats.prefill_s,
            "decode_s": stats.decode_s,
            "tokens_per_s": stats.tokens_per_s,
            "backend": stats.backend,
        },
    }


class _Writer:
    """Writes one growing text to stdout, each character once."""

    HELD_BACK = 2
    """Characters at the end whose harmless form can still depend on what follows: a carriage
    return, a joiner."""

    def __init__(self) -> None:
        self._text = ""
        self._written = 0

    def write(self, text: str) -> None:
        self._text = text
        self._out(sanitise(text[: -self.HELD_BACK]))

    def end(self) -> None:
        self._out(sanitise(self._text))
        if not self._text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _out(self, text: str) -> None:
        sys.stdout.write(text[self._written :])
        sys.stdout.flush()
        self._written = max(self._written, len(text))


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
