"""A chat under a test's control, without a screen: a fake backend and all effects so far."""

from __future__ import annotations

from chat_tui.chat import Chat
from chat_tui.effects import Effect, Told
from chat_tui.settings import Settings
from tests.chat_tui.fakes import FakeBackend


class Talk:
    """A chat with a fake backend and everything that it wanted to have drawn."""

    def __init__(self, settings: Settings | None = None, *, ready: bool = True) -> None:
        self.backend = FakeBackend()
        self.now = 0.0
        self.chat = Chat(self.backend, settings or Settings(), clock=lambda: self.now)
        self.effects: list[Effect] = []
        if ready:
            self.backend.ready()
            self.drain()

    def drain(self) -> None:
        for event in self.backend.drain():
            self.chat.take(event)
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
