"""Turns with answers of which something was said, without a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from chat_tui.answer import Answer, Prompt
from chat_tui.conversation import Conversation
from chat_tui.model import Model
from chat_tui.session import Session
from chat_tui.tree import Judgement, Tree, Turn, Verdict

MODEL = Model("tiny", "/models/tiny", fingerprint="t")


@dataclass(frozen=True)
class Said:
    """An answer: its text, and how it came about."""

    text: str = "yes"
    temperature: float = 0.7
    top_k: int | None = 50
    system: str | None = None
    model: Model = MODEL


@dataclass
class Judge:
    """A session in which `judge` says something of each turn."""

    session: Session = field(default_factory=Session)

    @property
    def tree(self) -> Tree:
        return self.session.conversation.tree

    @property
    def turns(self) -> list[Turn]:
        return list(self.tree.turns.values())

    def judge(self, said: Verdict | int, *answers: Said, at: float = 100.0) -> Turn:
        """`said` is the place of the answer that was picked, or another verdict."""
        turn = self.tree.add_turn(None, f"question {len(self.turns)}", at)
        for answer in answers:
            self._answer(turn, answer)
        order: Sequence[int] = [answer.id for answer in turn.answers]
        verdict = "pick" if isinstance(said, int) else said
        turn.judgement = Judgement(verdict, tuple(order), False, at, 3.0, turn.user)
        if isinstance(said, int):
            turn.picked = order[said]
        return turn

    def _answer(self, turn: Turn, said: Said) -> Answer:
        answer = self.tree.add_answer(
            turn,
            prompt=Prompt(preface=(1,), ids=(2, 3), system=said.system),
            model=said.model,
            temperature=said.temperature,
            top_k=said.top_k,
        )
        if said.text:
            answer.append(5, 1, said.text)
        answer.end("stop", (4,))
        return answer


def judge() -> Judge:
    return Judge(Session(title="Rated", conversation=Conversation()))
