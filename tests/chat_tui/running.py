"""The app under a test's control: a fake backend, a pilot, and a way to let things settle."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from textual import events
from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.keys import UNCHANGED, Keys
from chat_tui.look import PLAIN, Look
from chat_tui.paced import STATUS_EVERY
from chat_tui.settings import Settings
from tests.chat_tui.fakes import FakeBackend, FakeBackends


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 20) -> None:
    """Let time pass until something holds that a timer brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await pilot.pause(0.01)


@dataclass
class Running:
    """What a test acts on. `backend` is that of the first model, `backends` are those of all."""

    app: ChatApp
    backend: FakeBackend
    pilot: Pilot[None]
    backends: list[FakeBackend] = field(default_factory=list)

    async def load(self) -> None:
        """All models come, one after the other where they wait for one another."""
        loaded: list[FakeBackend] = []
        while self.app.chat.phase == "loading":
            for backend in self.backends:
                if backend.loads and backend not in loaded:
                    loaded.append(backend)
                    backend.ready(backend.loads[-1].name or "Qwen/Qwen2.5-7B-Instruct")
            await self.settle()

    async def settle(self) -> None:
        """Let everything that was said or pressed take effect."""
        for _ in range(STATUS_EVERY):  # figures are drawn with one in so many drains
            self.app.drain()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def search(self, text: str = "") -> None:
        """Type `text` in the palette that is open, and let it find what it can."""
        await self.pilot.press(*text)
        await self.app.workers.wait_for_complete()
        await self.settle()

    async def burst(self, *keys: str) -> None:
        """Keys that are all there before the first is handled."""
        for key in keys:
            name = "space" if key == " " else key
            self.app.post_message(events.Key(name, key if len(key) == 1 else None))
        for _ in range(3):
            await self.pilot.pause()
        await self.settle()

    async def type(self, text: str) -> None:
        """Type `text`, as fast as only a test does."""
        self.app.prompt.insert(text)
        await self.settle()

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    @property
    def text(self) -> str:
        return self.app.prompt.text

    @property
    def told(self) -> str:
        """The line above the prompt, if it is shown."""
        return str(self.app.answer.render()) if self.app.answer.display else ""

    @property
    def title(self) -> str:
        """What the upper edge of the prompt says."""
        return str(self.app.prompt.border_title)

    @property
    def hint(self) -> str:
        return str(self.app.prompt.border_subtitle)

    @property
    def kept(self) -> list[str]:
        return [turn.answer.text for turn in self.app.chat.conversation.turns]


@asynccontextmanager
async def running(
    settings: Settings | None = None,
    *,
    size: tuple[int, int] = (100, 30),
    ready: bool = True,
    state: Path | None = None,
    keep: Path | None = None,
    keys: Keys = UNCHANGED,
    look: Look = PLAIN,
) -> AsyncIterator[Running]:
    fakes = FakeBackends()
    app = ChatApp(
        settings or Settings(),
        fakes.backend,
        make=fakes.make,
        state=state,
        keep=keep,
        keys=keys,
        look=look,
    )
    async with app.run_test(size=size) as pilot:
        run = Running(app, fakes.backend, pilot, fakes.backends)
        if ready and len(app.chat.lanes) > 1:
            await run.load()
        elif ready:
            fakes.backend.ready()
        await run.settle()
        try:
            yield run
        finally:
            app.keeping.close()


async def begin(run: Running, text: str = "Hi") -> None:
    """A turn whose rows have one word each."""
    await run.send(text)
    run.backend.start()
    run.backend.step(*(f"word{row}" for row in range(run.backend.ask.samples)))
    await run.settle()
