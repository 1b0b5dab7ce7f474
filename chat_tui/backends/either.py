"""The local engine or a server, whichever the last `Load` named: the screen talks to one backend.

An ask that runs while another one is turned to ends where it began; only then is the one that was
left closed, and its memory free.
"""

from __future__ import annotations

from collections.abc import Callable

from chat_tui.backends.base import Backend
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
    Request,
)


def _local() -> Backend:
    from chat_tui.backends.local import LocalBackend

    return LocalBackend()


def _server() -> Backend:
    from chat_tui.backends.server import ServerBackend  # httpx: only where it is needed

    return ServerBackend()


class EitherBackend:
    """Implements `chat_tui.backends.base.Backend`."""

    def __init__(
        self, local: Callable[[], Backend] = _local, server: Callable[[], Backend] = _server
    ) -> None:
        self._make = {False: local, True: server}
        self._made: dict[bool, Backend] = {}
        self._at_server = False
        self._asks: dict[int, bool] = {}  # running ones, and where they run
        self._ready = False

    def send(self, request: Request) -> None:
        at = self._at_server
        if isinstance(request, Load):
            at = self._at_server = request.server is not None
            self._ready = False
        elif isinstance(request, Ask):
            self._asks[request.ask] = at
        elif isinstance(request, Cancel):
            at = self._asks.get(request.ask, at)
        if at not in self._made:
            self._made[at] = self._make[at]()
        self._made[at].send(request)

    def drain(self) -> list[Event]:
        events = []
        for at, backend in self._made.items():
            events += [event for event in backend.drain() if self._note(event, at)]
        self._close_left()
        return events

    def close(self) -> None:
        for backend in self._made.values():
            backend.close()
        self._made.clear()
        self._asks.clear()

    def _note(self, event: Event, at: bool) -> bool:
        """Whether it is news to the screen: of a backend that was left, only its asks are."""
        if isinstance(event, (Finished, Failed, Overflowed)) and event.ask is not None:
            self._asks.pop(event.ask, None)
        if isinstance(event, Died):
            self._asks = {ask: where for ask, where in self._asks.items() if where is not at}
        if isinstance(event, Ready) and at is self._at_server:
            self._ready = True
        of_an_ask = not isinstance(event, (Died, Ready, Loading)) and event.ask is not None
        return of_an_ask or at is self._at_server

    def _close_left(self) -> None:
        left = not self._at_server
        if self._ready and left in self._made and left not in self._asks.values():
            self._made.pop(left).close()
