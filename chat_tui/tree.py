"""A conversation as a tree: turns, the answers that each got, and the turns that follow those.

    tree = Tree()
    turn = tree.add_turn(None, "What is 12*7?")      # None: nothing stands before it
    answer = tree.add_answer(turn, prompt=..., model=..., ...)
    answer.append(1042, 1, "84")                     # as it is generated
    tree.add_turn(answer, "And twice that?")
    tree.path(answer)                                # the picks from the root to here

A *turn* is a user message; its children are the *answers* it got, however they came about (asked
for together, asked for later, forked from one another). An answer's children are the turns that
were asked after it. A *path* is a list of picks, one answer of each turn. What the user looks at is
a path (`chat_tui/conversation.py`); nothing is taken out of the tree by going elsewhere in it.

Turns and answers have numbers of their own, from 1 up in the order in which they were made; they
are what the store, the export and the screens refer to.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple

from chat_tui.answer import Answer, Prompt
from chat_tui.labels import Difference, differing
from chat_tui.model import GIVEN, Model
from engine.messages import Exchange

Verdict = Literal["pick", "tie", "bad", "skip"]


@dataclass(frozen=True)
class Judgement:
    """What was said of a turn's answers when they were rated.

    Attributes:
        verdict: `pick` where `Turn.picked` says which is best; `tie`, where several are equally
            good; `bad`, where none is good; `skip`, where nothing is said.
        order: the answers' numbers as they stood on the screen, from left to right.
        blind: their settings were not shown.
        at: seconds since 1970.
        seconds: how long they were looked at.
        prompt: which of the rated file's prompts it is (`prompts.FilePrompt.key`).
    """

    verdict: Verdict
    order: tuple[int, ...] = ()
    blind: bool = False
    at: float = 0.0
    seconds: float = 0.0
    prompt: str = ""


@dataclass
class Turn:
    """A user message and the answers it got.

    Attributes:
        id: its number in the tree.
        parent: the number of the answer that it follows; None at the root.
        user: what the user said.
        answers: in the order of their numbers.
        picked: the number of the answer that was chosen last; None before, and after an undo.
        asked_at: seconds since 1970.
        judgement: what was said of the answers, where they were rated.
        expected: the numbers of answers that have been asked for and have not begun.
    """

    id: int
    parent: int | None
    user: str
    answers: list[Answer] = field(default_factory=list)
    picked: int | None = None
    asked_at: float = 0.0
    judgement: Judgement | None = None
    expected: set[int] = field(default_factory=set, compare=False)

    @property
    def verdict(self) -> Verdict | None:
        """What is known of its answers' worth: a pick that stands, however it was made, goes before
        what else was said."""
        if self.picked is not None:
            return "pick"
        said = self.judgement.verdict if self.judgement is not None else None
        return None if said == "pick" else said

    @property
    def judged_at(self) -> float:
        """When something was said of its answers, as well as it is known."""
        return self.asked_at if self.judgement is None else self.judgement.at

    def index(self, answer: int) -> int:
        """The place of an answer, by its number, among the turn's answers."""
        return next(place for place, own in enumerate(self.answers) if own.id == answer)

    @property
    def samples(self) -> int:
        """How many answers there are, and are expected."""
        return len(self.answers) + len(self.expected)

    def told(self, answer: int) -> int:
        """What the user calls an answer, and its pane: its place among all of these, from 1."""
        before = sum(own.id < answer for own in self.answers)
        return 1 + before + sum(other < answer for other in self.expected)


_ENDINGS = {
    "length": "cut at the token limit",
    "context": "cut where the context is full",
    "cancelled": "stopped",
    "content_filter": "cut by the server's content filter",
}


class Pick(NamedTuple):
    """One step of a path: a turn, and the one of its answers that the path goes on with."""

    turn: Turn
    answer: Answer

    @property
    def user(self) -> str:
        return self.turn.user

    @property
    def picked(self) -> int:
        """The answer's place among the turn's answers."""
        return self.turn.index(self.answer.id)

    @property
    def caption(self) -> str:
        """What it takes to make the answer again, and how it ended if not by itself; of the model,
        the system text and top-k only what tells it from the turn's other answers."""
        return self._told(self._differs.model)

    @property
    def sampling(self) -> str:
        """The same, for where the model is named anyway."""
        return self._told("")

    @property
    def _differs(self) -> Difference:
        return differing(self.turn.answers)[self.picked]

    def _told(self, model: str) -> str:
        answer, count = self.answer, self.turn.samples
        if answer.model == GIVEN:
            return "given"
        parts = (
            f"{self.turn.told(answer.id)} of {count}" if count > 1 else "",
            model,
            self._differs.system,
            f"T {answer.temperature:g}",
            self._differs.top_k,
            f"seed {answer.seed}",
            f"begun by answer {answer.source}" if answer.source is not None else "",
            _ENDINGS.get(answer.reason or "", ""),
        )
        return " · ".join(part for part in parts if part)

    def exchange(self, model: Model) -> Exchange:
        """For an ask; another model's ids mean nothing, so it gets the text alone."""
        own = model.speaks_with(self.answer.model)
        tokens = tuple(self.answer.tokens) if own else None
        return Exchange(self.user, tokens, self.answer.text)


class Tree:
    """All turns and answers of one conversation."""

    def __init__(self) -> None:
        self.turns: dict[int, Turn] = {}
        self.answers: dict[int, Answer] = {}
        self._last_turn = self._last_answer = 0

    # Growing.

    def add_turn(self, parent: Answer | None, user: str, asked_at: float = 0.0) -> Turn:
        """A message asked after `parent`, or at the root."""
        self._last_turn += 1
        turn = Turn(self._last_turn, parent.id if parent else None, user, asked_at=asked_at)
        self.turns[turn.id] = turn
        return turn

    def add_answer(
        self,
        turn: Turn,
        *,
        prompt: Prompt,
        model: Model,
        seed: int = 0,
        temperature: float = 0.0,
        top_k: int | None = None,
    ) -> Answer:
        """An answer of `turn` that is about to grow."""
        number = self.expect(turn)
        answer = Answer(number, turn.id, prompt, model, seed, temperature, top_k)
        self.hold(turn, answer)
        return answer

    def expect(self, turn: Turn) -> int:
        """A number for an answer of `turn` that is part of the tree when it begins (`hold`)."""
        self._last_answer += 1
        turn.expected.add(self._last_answer)
        return self._last_answer

    def hold(self, turn: Turn, answer: Answer) -> None:
        """Make an answer one of `turn`'s, which stand in the order of their numbers."""
        turn.expected.discard(answer.id)
        insort(turn.answers, answer, key=attrgetter("id"))
        self.answers[answer.id] = answer

    def put(self, turn: Turn) -> None:
        """A turn that was kept elsewhere, with its answers and all numbers as they are."""
        self.turns[turn.id] = turn
        self._last_turn = max(self._last_turn, turn.id)
        answers, turn.answers = turn.answers, []
        for answer in answers:
            self._last_answer = max(self._last_answer, answer.id)
            self.hold(turn, answer)

    def remove_answer(self, answer: Answer) -> None:
        """Forget an answer that has not begun, or to which nothing was ever generated. Its number
        is not used again."""
        turn = self.turns[answer.turn]
        turn.expected.discard(answer.id)
        if self.answers.pop(answer.id, None) is not None:
            turn.answers.remove(answer)
        if turn.picked == answer.id:
            turn.picked = None

    def remove_turn(self, turn: Turn) -> None:
        """Forget a turn that has no answers."""
        assert not turn.answers
        del self.turns[turn.id]

    # Finding one's way.

    def children(self, answer: Answer | None) -> list[Turn]:
        """The turns that were asked after `answer`; those at the root for None."""
        parent = answer.id if answer else None
        return [turn for turn in self.turns.values() if turn.parent == parent]

    def turn_of(self, answer: Answer) -> Turn:
        return self.turns[answer.turn]

    def parent(self, turn: Turn) -> Answer | None:
        """The answer that `turn` was asked after."""
        return None if turn.parent is None else self.answers[turn.parent]

    def path(self, answer: Answer | None) -> list[Pick]:
        """The picks from the root up to and including `answer`."""
        picks: list[Pick] = []
        while answer is not None:
            turn = self.turns[answer.turn]
            picks.append(Pick(turn, answer))
            answer = self.parent(turn)
        return picks[::-1]

    def walk(self) -> Iterator[tuple[int, Turn]]:
        """Every turn with its depth, each before those that follow it: the order of a drawing."""
        followers: dict[int | None, list[Turn]] = {}
        for turn in self.turns.values():
            followers.setdefault(turn.parent, []).append(turn)
        waiting = [(0, turn) for turn in reversed(followers.get(None, []))]
        while waiting:
            depth, turn = waiting.pop()
            yield depth, turn
            for answer in reversed(turn.answers):
                waiting += [(depth + 1, turn) for turn in reversed(followers.get(answer.id, []))]
