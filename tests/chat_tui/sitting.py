"""A file that is being rated, without a screen."""

from __future__ import annotations

import json
from pathlib import Path

from chat_tui.chat import Chat
from chat_tui.effects import Told
from chat_tui.prompts import FilePrompt, read_prompts
from chat_tui.rating import Rating
from chat_tui.session import Session
from chat_tui.settings import Settings, Source
from chat_tui.tree import Turn
from tests.chat_tui.fakes import FakeBackends

PROMPTS = tuple(f"prompt {number}" for number in range(1, 7))


class Sitting(FakeBackends):
    """A file that is being rated; the backend says what the test tells it to."""

    def __init__(
        self,
        prompts: list[FilePrompt],
        session: Session | None = None,
        settings: Settings | None = None,
        *,
        blind: bool = False,
        ready: bool = True,
    ) -> None:
        super().__init__()
        self.now = 0.0
        self.session = session or Session(title="Rated", rated="prompts.txt")
        chat = Chat(self.backend, settings or Settings(samples=2), make=self.make, clock=self.clock)
        self.rating = Rating(
            chat, prompts, self.session, blind=blind, clock=self.clock, today=self.clock
        )
        self.effects: list[object] = []
        if ready:
            self.backend.ready()
        self.drain()

    def clock(self) -> float:
        return self.now

    def drain(self) -> None:
        self.rating.drain()
        self.effects += self.rating.effects()

    def answer(self, *texts: str) -> None:
        """To the prompt that is asked now."""
        self.backend.answer(*(texts or ("yes", "no")))
        self.drain()

    @property
    def asked(self) -> list[str]:
        return [ask.text for ask in self.backend.asks]

    @property
    def told(self) -> str:
        self.effects += self.rating.effects()
        return next((e.text for e in reversed(self.effects) if isinstance(e, Told)), "")

    @property
    def shown(self) -> str:
        prompt = self.rating.prompt
        return prompt.text if prompt is not None else ""

    @property
    def turns(self) -> dict[str, Turn]:
        return {turn.user: turn for turn in self.session.conversation.tree.turns.values()}

    def verdicts(self) -> dict[str, object]:
        """What was said of each prompt; the text of what was picked."""
        answers = self.session.conversation.tree.answers
        return {
            user: answers[turn.picked].text if turn.picked else turn.verdict
            for user, turn in self.turns.items()
            if turn.judgement is not None
        }


def file(folder: Path, *lines: object) -> list[FilePrompt]:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": line}) + "\n" for line in lines))
    return read_prompts(path)


def of_two(prompts: list[FilePrompt]) -> Sitting:
    """Two models, one answer each; both are there."""
    sitting = Sitting(
        prompts, settings=Settings(models=(Source("a"), Source("b")), samples=1), ready=False
    )
    for backend in sitting.backends:
        backend.ready(backend.loads[-1].name)
        sitting.drain()
    return sitting
