"""What the tests of the program share: pilots that wait for the screen and not for the clock, and
the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import textual.app
import textual.pilot
from textual._context import active_app

from chat_tui.widgets import pane
from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.pictures import Clock


async def at_rest(*_: float) -> None:
    """Until all that was sent has been handled and drawn, and what is left waits for a timer.

    Textual's own `wait_for_idle` sleeps a fiftieth of a second after each key, and takes a process
    that got no processor meanwhile for one that has nothing to do."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        while loop._ready:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        app = active_app.get()
        # Textual puts off what it does with another size, and all drawing, for a moment.
        if app._resize_timer is not None:
            app._check_resize()
        elif app.screen._update_timer._active.is_set():
            app.screen._on_timer_update()
        else:
            return


@pytest.fixture(scope="session", autouse=True)
def pilots_wait_for_the_program() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in textual.app, textual.pilot:
            patch.setattr(module, "wait_for_idle", at_rest)
        yield


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pane, "time", clock)
    return clock
