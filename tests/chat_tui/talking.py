"""A chat under a test's control, without a screen: fake backends and all effects so far."""

from __future__ import annotations

import time
from collections.abc import Callable

from chat_tui.backends.base import WaitingBackend
from chat_tui.chat import Chat
from chat_tui.effects import Effect, Noted, Told
from chat_tui.settings import Settings, Source
from tests.chat_tui.fakes import FakeBackend, FakeBackends

A, B = Source("a"), Source("b")


def converse(chat: Chat, backend: WaitingBackend, *messages: str, timeout: float = 60) -> None:
    """Ask a real backend one after the other; each answer is picked, for there is one."""

    def until_it_is(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout
        while not done() and time.monotonic() < deadline:
            backend.wait(0.1)
            chat.drain()
        assert done()

    until_it_is(lambda: chat.phase == "ready")
    for message in messages:
        chat.send(message)
        until_it_is(lambda: not chat.running)


class Talk(FakeBackends):
    """A chat with a fake backend for each model, and everything that it wanted to have drawn."""

    def __init__(self, settings: Settings | None = None, *, ready: bool = True) -> None:
        super().__init__()
        self.now = 0.0
        self.chat = Chat(
            self.backend, settings or Settings(), make=self.make, clock=lambda: self.now
        )
        self.effects: list[Effect] = []
        if ready:
            self.backend.ready()
            self.drain()

    def drain(self) -> None:
        self.chat.drain()
        self.effects += self.chat.effects()

    def ask(self, text: str, *answers: str, pick: int | None = None) -> None:
        self.chat.send(text)
        self.drain()
        self.answer(*answers)
        if pick is not None:
            self.chat.pick(pick)
            self.drain()

    def answer(self, *answers: str) -> None:
        """What the engine says to the last ask."""
        self.backend.answer(*answers)
        self.drain()

    def seen(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def shown(self) -> list[str]:
        """The answers that are there to be picked."""
        return [row.text for row in self.chat.turn.rows] if self.chat.turn is not None else []

    @property
    def kept(self) -> list[str]:
        """The path: what was said and picked."""
        return [
            word for pick in self.chat.conversation.path for word in (pick.user, pick.answer.text)
        ]

    @property
    def told(self) -> str:
        """The last word to the user."""
        self.drain()
        texts = [effect.text for effect in self.effects if isinstance(effect, Told)]
        return texts[-1] if texts else ""


def talk_of(settings: Settings) -> Talk:
    """A talk in which all models are there, by the names that they were asked for."""
    talk = Talk(settings, ready=False)
    for _ in settings.sources:
        for backend in talk.backends:
            if backend.loads and talk.chat.phase == "loading":
                backend.ready(backend.loads[-1].name)
                talk.drain()
    assert talk.chat.phase == "ready"
    return talk


def both(talk: Talk) -> tuple[FakeBackend, FakeBackend]:
    first, second = talk.backends
    return first, second


def notes(talk: Talk) -> list[str]:
    return [note.text for note in talk.seen(Noted) if isinstance(note, Noted)]
