"""What the screen asks of whatever answers: one interface for the local engine's process and for
servers.

A backend never calls into the screen. It collects events, and the screen takes them with `drain()`
at the rate at which it paints: a fast model costs the event loop no more than a slow one.
"""

from __future__ import annotations

from typing import Protocol

from engine.messages import Event, Request


class Backend(Protocol):
    def send(self, request: Request) -> None:
        """Queue a request; never blocks. Starts the engine's process where there is none."""

    def drain(self) -> list[Event]:
        """All events since the last call, oldest first; never blocks."""

    def close(self) -> None:
        """End the engine's process. Idempotent."""


class WaitingBackend(Backend, Protocol):
    """For scripts, which have no event loop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until there is something to drain; False on a timeout."""
