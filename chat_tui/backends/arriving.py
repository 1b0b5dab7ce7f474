"""What has arrived from another process or thread, until the screen takes it."""

from __future__ import annotations

import threading
from collections import deque

from engine.messages import Event


class Arriving:
    """The half of a `chat_tui.backends.base.Backend` that is read; `_receive` may be called on any
    thread."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._arrived = threading.Event()

    def drain(self) -> list[Event]:
        """All events since the last call, oldest first."""
        self._arrived.clear()
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is something to drain; False on a timeout. For scripts, which have no
        event loop."""
        return self._arrived.wait(timeout)

    def _receive(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()
