"""One answer, exactly as it was generated, and what other answers can begin with of it.

    answer = Answer(3, turn.id, prompt, model)
    answer.append(1042, 1, "84")                     # as it is generated
    answer.end("stop")
    answer.fork(0, "eighty")                         # what answers begin with that part from it

An answer is a node of a tree of turns (`chat_tui/tree.py`); it knows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from chat_tui.model import Model
from engine.messages import FinishReason, TokenScore, ToolCall

Span = tuple[int, int]
"""Characters of an answer's text: the first, and the one behind the last."""


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
