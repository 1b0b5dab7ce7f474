"""The backend that a `Load` takes: the local engine's process, or a server. What it needs is only
imported then."""

from __future__ import annotations

from chat_tui.backends.base import WaitingBackend
from chat_tui.settings import Settings
from engine.messages import Load


def backend_for(load: Load) -> WaitingBackend:
    if load.server is None:
        from chat_tui.backends.local import LocalBackend

        return LocalBackend()
    from chat_tui.backends.server import ServerBackend

    return ServerBackend()


def begun(settings: Settings) -> WaitingBackend:
    """That of the first model, which is on its way already."""
    load = next(iter(settings.loads().values()))
    backend = backend_for(load)
    backend.send(load)
    return backend
