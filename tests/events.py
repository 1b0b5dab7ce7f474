"""Waiting for what an engine or a server says, and picking out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from chat_tui.backends.base import WaitingBackend
from engine.messages import Event, RowFinished, Stepped


def until(backend: WaitingBackend, *kinds: type, timeout: float = 120) -> list[Event]:
    """Events up to and with the first of one of `kinds`."""
    seen: list[Event] = []
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        backend.wait(0.2)
        seen += backend.drain()
        if any(isinstance(event, kinds) for event in seen):
            return seen
    raise AssertionError(f"no {kinds} within {timeout} s, only {seen[-3:]}")


def of(kind: type, events: Sequence[Event]) -> list:
    return [event for event in events if isinstance(event, kind)]


def texts(events: Sequence[Event], rows: int = 1) -> list[str]:
    """What each row said."""
    said = [""] * rows
    for event in events:
        if isinstance(event, Stepped):
            said = [before + new for before, new in zip(said, event.texts, strict=True)]
        elif isinstance(event, RowFinished):
            said[event.row] += event.text
    return said
