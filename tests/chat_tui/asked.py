"""A server as a backend that is asked, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chat_tui.backends.server import ServerBackend
from chat_tui.backends.stream import Limits
from engine.messages import Ask, Event, Failed, Finished, Load, Overflowed, Ready, SamplingParams
from tests.chat_tui.sse_server import Script, SseServer
from tests.events import of, until

ENDS = (Finished, Failed, Overflowed)
PLAIN = SamplingParams((0.7,), top_ks=(None,), seed=1)


@contextmanager
def talking(
    script: Script, *, limits: Limits | None = None, models: object | None = None, name: str = ""
) -> Iterator[tuple[SseServer, ServerBackend]]:
    """A server that runs `script`, and a backend that is ready to ask it."""
    server = SseServer(script) if models is None else SseServer(script, models)
    backend = ServerBackend(limits)
    try:
        with server:
            backend.send(Load(name, server=server.url))
            until(backend, Ready)
            yield server, backend
    finally:
        backend.close()


def ask(backend: ServerBackend, text: str = "Hello?", **fields: object) -> list[Event]:
    """Ask, and wait for the end."""
    fields = {"params": PLAIN, "tools": False, **fields}
    backend.send(Ask(1, text, **fields))  # type: ignore[arg-type]
    return until(backend, *ENDS)


def failure(events: Sequence[Event]) -> str:
    (failed,) = of(Failed, events)
    assert "\n" not in failed.message
    return failed.message
