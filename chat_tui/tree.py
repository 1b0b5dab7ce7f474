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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import Literal, NamedTuple

from chat_tui.labels import Difference, differing
from chat_tui.model import GIVEN, Model
from engine.messages import Exchange, FinishReason, TokenScore, ToolCall

Span = tuple[int, int]
"""Characters of an answer's text: the first, and the one behind the last."""

Verdict = Literal["pick", "tie", "bad", "skip"]


@dataclass(frozen=True)
class Prompt:
    """What was prefilled for an answer, as far as the path before it does not say so already.

    Attributes:
        preface: ids before the conversation's own turns (the system text, the tool's examples).
        ids: what the turn added to the conversation's list: from behind the answer before it to
            where its own answer begins.
        anew: `ids` are the whole list behind the preface instead. So it is in a first turn, after
            another model's answer, and where turns were dropped.
        dropped: how many of the path's oldest turns the model was not shown.
        system, tools: the settings it was made with.
    """

    preface: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    anew: bool = True
    dropped: int = 0
    system: str | None = None
    tools: bool = True


@dataclass(frozen=True)
class Beginning:
    """What answers are to begin with: the first tokens of an answer, and text put behind them.

    All but `then` stand in the source; `then` is encoded by the engine.
    """

    source: int
    tokens: tuple[int, ...] = ()
    mask: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    scores: tuple[TokenScore | None, ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    forced: tuple[Span, ...] = ()
    then: str = ""


@dataclass
class Answer:
    """One answer, exactly as it was generated; it grows until it has a `reason`.

    Attributes:
        id: its number in the tree.
        turn: the number of the turn that it answers.
        prompt: what was prefilled before it.
        model: what generated it.
        seed: its row's own: one sample with this seed gives the same answer again.
        temperature, top_k: how it was sampled.
        given: how many of its first tokens it was given to begin with (a fork, a continuation).
        source: the answer that those come from.
        tokens: the ids, given and forced ones included.
        mask: 1 for each token that the model chose, 0 for each that was forced or put there by
            the user. What was given keeps the mask that it had in the source.
        ends: behind each token, how many characters of `text` are complete: token i stands for
            `text[ends[i - 1]:ends[i]]`.
        scores: what the model thought of each token; None where that is not known. Empty where
            nothing is.
        text: what the tokens say.
        calls: the tool calls in it, by where they begin.
        forced: the stretches of the text that were forced.
        closing: the ids that follow it before the next turn.
        reason: why it ended; None while it grows.
        rescored: how often scores came that were asked for afterwards.
    """

    id: int
    turn: int
    prompt: Prompt
    model: Model
    seed: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    given: int = 0
    source: int | None = None
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    scores: Sequence[TokenScore | None] = field(default_factory=list)
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    forced: list[Span] = field(default_factory=list)
    closing: tuple[int, ...] = ()
    reason: FinishReason | None = None
    rescored: int = field(default=0, compare=False)

    # Growing.

    def begin(
        self, beginning: Beginning, tokens: Sequence[int], text: str, ends: Sequence[int] = ()
    ) -> None:
        """Take over what it was given: `tokens`, `text` and `ends` are the engine's word on all of
        it, the last as far as it knows."""
        added = len(tokens) - len(beginning.tokens)
        if not beginning.then:
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")  # it may still become a character
        self.source, self.given = beginning.source, len(tokens)
        self.tokens, self.text = list(tokens), text
        self.mask = [*beginning.mask, *[0] * added]
        known = len(beginning.ends)
        new = [min(end, len(text)) for end in ends[known:]] or [len(text)] * (len(tokens) - known)
        self.ends = [*beginning.ends, *new]
        if beginning.scores:
            self.scores = [*beginning.scores, *[None] * added]
        self.calls, self.forced = list(beginning.calls), list(beginning.forced)

    def append(self, token: int, mask: int, text: str, score: TokenScore | None = None) -> None:
        """One more token and the characters that it completed."""
        start = len(self.text)
        self.tokens.append(token)
        self.mask.append(mask)
        self.text += text
        self.ends.append(len(self.text))
        if score is not None or self.scores:
            scores = self.scores if isinstance(self.scores, list) else list(self.scores)
            scores += [None] * (len(self.tokens) - 1 - len(scores))
            scores.append(score)
            self.scores = scores
        if text and not mask:
            if self.forced and self.forced[-1][1] == start:
                start = self.forced.pop()[0]
            self.forced.append((start, len(self.text)))

    def set_call(self, call: ToolCall) -> int:
        """A tool call as it stands now; returns its place among the answer's calls."""
        for place, known in enumerate(self.calls):
            if known.start == call.start:
                self.calls[place] = call
                return place
        self.calls.append(call)
        return len(self.calls) - 1

    def end(self, reason: FinishReason, closing: Sequence[int] = (), tail: str = "") -> None:
        """It is over; `tail` are characters that were held back as incomplete."""
        self.reason, self.closing = reason, tuple(closing)
        self.text += tail

    def fill_scores(self, scores: Sequence[TokenScore]) -> None:
        """Scores of its first tokens, asked for afterwards. What is known already stays; a token
        that was given or forced was not sampled, whatever its score says."""
        known = [*self.scores, *[None] * (len(self.tokens) - len(self.scores))]
        for place, score in enumerate(scores):
            if known[place] is None:
                own = self.mask[place] and place >= self.given
                known[place] = score if own else score._replace(sampled_logprob=None)
        self.scores = known
        self.rescored += 1

    # What it says.

    @property
    def sampled(self) -> int:
        """How many tokens it has beyond what it was given."""
        return len(self.tokens) - self.given

    @property
    def empty(self) -> bool:
        """Nothing was generated, and it did not end by itself either."""
        return not self.sampled and self.reason in (None, "cancelled")

    @property
    def can_continue(self) -> bool:
        """It was stopped or cut; what follows its last token was never said."""
        return self.reason in ("cancelled", "length") and bool(self.tokens)

    def span(self, index: int) -> Span:
        """The characters that token `index` completed; often none, or several."""
        return (self.ends[index - 1] if index else 0), self.ends[index]

    # What could begin like it.

    def beginning(self, count: int | None = None, then: str = "") -> Beginning:
        """Its first `count` tokens (None: all), with the text `then` behind them."""
        count = len(self.tokens) if count is None else count
        length = self.ends[count - 1] if count else 0
        return Beginning(
            source=self.id,
            tokens=tuple(self.tokens[:count]),
            mask=tuple(self.mask[:count]),
            ends=tuple(self.ends[:count]),
            scores=tuple(self.scores[:count]),
            text=self.text[:length],
            calls=tuple(_calls_within(self.calls, length)),
            forced=tuple((a, min(b, length)) for a, b in self.forced if a < length),
            then=then,
        )

    def fork(self, index: int, instead: int | str) -> Beginning:
        """Its tokens before `index`, then another token, or text, in the place of that one."""
        if isinstance(instead, str):
            return self.beginning(index, instead)
        before = self.beginning(index)
        score = self.scores[index] if index < len(self.scores) else None
        return Beginning(
            source=self.id,
            tokens=(*before.tokens, instead),
            mask=(*before.mask, 0),
            ends=before.ends,
            scores=(*before.scores, _instead(score, instead)) if self.scores else (),
            text=before.text,
            calls=before.calls,
            forced=before.forced,
        )

    def edited(self, text: str) -> Beginning:
        """`text`, with as many of its own tokens kept as stand before the first change.

        They are kept as far as a new word follows: what is encoded behind them is then cut into
        tokens as the model is used to. A tool call is kept whole, or not.
        """
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(self.text, text, strict=False))
        same = sum(1 for _ in pairs)
        kept = range(len(self.tokens), 0, -1)
        count = next((count for count in kept if self._parts_at(count, text, same)), 0)
        return self.beginning(count, text[self.ends[count - 1] if count else 0 :])

    def _parts_at(self, count: int, text: str, same: int) -> bool:
        """Whether `text` can be encoded by itself from behind the first `count` tokens on."""
        start, end = self.span(count - 1)
        if not start < end <= same:  # changed; or a stop token, or a part of a character
            return False
        word = end == len(text) or (text[end].isspace() and not text[end - 1].isspace())
        return word and not any(call.start < end < call.end for call in self.calls)


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


def _calls_within(calls: Sequence[ToolCall], length: int) -> Iterator[ToolCall]:
    """Those that begin in the first `length` characters; one that goes on behind them is open."""
    for call in calls:
        if call.end <= length and call.start < length:
            yield call
        elif call.start < length:
            yield ToolCall(call.start, length, call.expression, None, False)


def _instead(score: TokenScore | None, token: int) -> TokenScore | None:
    """What was thought of an alternative to a scored token, as far as it was reported."""
    for rank, other in enumerate(score.alternatives if score is not None else ()):
        if score is not None and other.token == token:
            return TokenScore(
                token,
                other.piece,
                other.logprob,
                None,
                score.entropy,
                rank,
                score.alternatives,
            )
    return None
