"""The key of a server is sent to it, and is nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from chat_tui.app import ChatApp
from chat_tui.backends.server import ServerBackend
from chat_tui.settings import Settings, Source
from engine.messages import Failed, Load, Ready
from tests.chat_tui.asked import ask, failure
from tests.chat_tui.sse_server import Asked, SseServer, Wire, talk
from tests.events import until


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")

    def script(asked: Asked, wire: Wire) -> None:
        wire.json(401, {"error": {"message": f"Incorrect key: {asked.headers['Authorization']}"}})

    with SseServer(script) as server:
        backend = ServerBackend()
        backend.send(Load("", server=server.url, key_env="MY_KEY"))
        events = until(backend, Ready)
        events += ask(backend)
        backend.close()
    assert server.asked[-1].headers["Authorization"] == "Bearer sk-very-secret"
    assert "refuses the key (401)" in failure(events)
    assert "sk-very-secret" not in repr(events) + repr(backend)


async def test_the_key_is_in_no_file_in_no_log_and_on_no_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A whole conversation with it, kept and saved, and every library as talkative as can be."""
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)

    def script(asked: Asked, wire: Wire) -> None:
        if len(server.posts) == 1:
            wire.json(401, {"error": f"Incorrect key: {asked.headers['Authorization']}"})
        else:
            talk("Red", "Blue")(asked, wire)

    with SseServer(script) as server:
        backend = ServerBackend()
        settings = Settings(models=(Source("", server.url),), key_env="MY_KEY")
        backend.send(*settings.loads().values())
        app = ChatApp(settings, backend, state=tmp_path, keep=tmp_path / "kept.db")
        async with app.run_test(size=(100, 30)) as pilot:

            async def wait(until: Callable[[], bool]) -> None:
                while not until():
                    await pilot.pause(0.02)
                    app.drain()

            await wait(lambda: app.chat.info is not None)
            for sent in (1, 2):
                app.prompt.insert("Name a colour.")
                await pilot.press("enter")
                await wait(lambda sent=sent: len(server.posts) == sent and not app.chat.running)
                screen = app.export_screenshot()
                assert "sk-very-secret" not in screen
                app.prompt.clear()
            await pilot.press("alt+1")
            await wait(lambda: len(app.chat.conversation.turns) == 1)
            app.prompt.insert(f"/save {tmp_path / 'saved.json'}")
            await pilot.press("enter")
            await wait((tmp_path / "saved.json").exists)
        app.keeping.close()
        backend.close()
    assert {asked.headers["Authorization"] for asked in server.asked} == {"Bearer sk-very-secret"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"kept.db", "saved.json"} <= {path.name for path in files}
    assert not [path.name for path in files if b"sk-very-secret" in path.read_bytes()]
    assert "httpcore" in caplog.text
    assert "sk-very-secret" not in caplog.text


def test_a_variable_that_is_not_set_is_named() -> None:
    backend = ServerBackend()
    backend.send(Load("", server="localhost:1", key_env="NOT_SET_HERE"))
    assert "NOT_SET_HERE is not set" in failure(until(backend, Failed))
    backend.close()
