"""What the model thought of a text, token by token, in figures.

`Scored` is one token with as much as is known of it; `Surprise` sums up an answer while it grows;
`surprising` and `parting` find the places worth looking at. Nothing here invents a figure:
where the engine gave no scores (an old session, a server) there are none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from chat_tui.answer import Answer
from engine.messages import NO_ID, TokenScore

LEVELS = (0.75, 0.5, 0.25, 0.1, 0.03, 0.01)
"""Probabilities that part the shades of heat: level 0 is likelier than the first, level 6 less
likely than the last."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_STEP = 0.35  # nats, half a bit: what one eighth of a sparkline's cell stands for


class Scored(NamedTuple):
    """One token of a text.

    Attributes:
        piece: its bytes, or a special token's name; None where nobody said.
        forced: it was put there (by a tool, by the user); the model did not choose it.
        score: what the model thought of it; None where it was not asked.
    """

    token: int
    piece: bytes | None
    forced: bool = False
    score: TokenScore | None = None


def scored(answer: Answer, start: int = 0) -> list[Scored]:
    """An answer's tokens from place `start` on."""
    tokens = []
    for place in range(start, len(answer.tokens)):
        score = answer.scores[place] if place < len(answer.scores) else None
        if score is None:
            first, end = answer.span(place)
            piece = answer.text[first:end].encode("utf-8", "surrogatepass") or None
        else:
            piece = score.piece
        tokens.append(Scored(answer.tokens[place], piece, answer.mask[place] == 0, score))
    return tokens


def is_known(logprob: float) -> bool:
    """Servers write -9999 and the like where they do not know."""
    return not -math.inf < logprob < -1000


def level(logprob: float) -> int:
    """The shade of a token, 0 (expected) to 6 (astonishing)."""
    probability = math.exp(logprob)
    return sum(probability < bound for bound in LEVELS)


@dataclass
class Surprise:
    """The sum of an answer's scores. Forced tokens do not count: nobody chose them.

    Attributes:
        surprisals: of each token that counts, in nats.
    """

    surprisals: list[float] = field(default_factory=list)
    _logprobs: float = 0.0
    _entropies: float = 0.0
    _with_entropy: int = 0

    @classmethod
    def of(cls, tokens: Sequence[Scored]) -> Surprise:
        surprise = cls()
        for token in tokens:
            surprise.add(token.score, forced=token.forced)
        return surprise

    def add(self, score: TokenScore | None, *, forced: bool) -> None:
        if score is None or forced or not is_known(score.logprob):
            return
        self.surprisals.append(-score.logprob)
        self._logprobs += score.logprob
        if not math.isnan(score.entropy):
            self._entropies += score.entropy
            self._with_entropy += 1

    @property
    def perplexity(self) -> float | None:
        """exp of the mean surprisal, at temperature 1 before top-k; None without scores."""
        count = len(self.surprisals)
        # A token of probability 0 (it was given, not sampled) makes the perplexity infinite.
        mean = -self._logprobs / count if count else 0.0
        return (math.exp(mean) if mean < 700 else math.inf) if count else None

    @property
    def entropy(self) -> float | None:
        """Mean entropy in nats, of the tokens where it is known; None where it is of none."""
        return self._entropies / self._with_entropy if self._with_entropy else None

    def sparkline(self, cells: int) -> str:
        """Mean surprisal over equal stretches, from 0 to 4 bits; at most `cells` characters."""
        count = len(self.surprisals)
        bars = min(cells, count)
        edges = [count * bar // bars for bar in range(bars)] + [count] if bars else []
        means = [sum(self.surprisals[start:end]) / (end - start) for start, end in pairwise(edges)]
        return "".join(_BLOCKS[int(min(mean / _STEP, len(_BLOCKS) - 1))] for mean in means)


def surprising(tokens: Sequence[Scored]) -> list[int]:
    """Places of the tokens that surprised the model most, in reading order: a tenth, or five."""
    known = [
        (score.logprob, place)
        for place, token in enumerate(tokens)
        if (score := token.score) is not None and not token.forced and is_known(score.logprob)
    ]
    most = max(len(known) // 10, min(5, len(known)))
    return sorted(place for _, place in sorted(known)[:most])


def parting(answers: Sequence[Answer]) -> list[int] | None:
    """Of each answer the first token with which they are no longer all the same; None while they
    are.

    Ids are compared where they mean the same in all of them; else characters, as each answer's own
    tokens complete them.
    """
    ended = [answer.reason is not None for answer in answers]
    same_ids = all(
        NO_ID not in answer.tokens and answer.model.speaks_with(answers[0].model)
        for answer in answers
    )
    if same_ids:
        place = first_difference([answer.tokens for answer in answers], ended)
        return None if place is None else [place] * len(answers)
    at = first_difference([answer.text for answer in answers], ended)
    return None if at is None else [bisect_right(answer.ends, at) for answer in answers]


def first_difference(rows: Sequence[Sequence[object]], ended: Sequence[bool]) -> int | None:
    """Where several answers stop being the same; None while they still are, as far as they go.

    An answer that has ended differs from those that go on behind it.
    """
    if len(rows) < 2:
        return None
    length = min(map(len, rows))
    first = rows[0]
    for place in range(length):
        if any(row[place] != first[place] for row in rows[1:]):
            return place
    short = [end for row, end in zip(rows, ended, strict=True) if len(row) == length]
    longer = len(short) < len(rows)
    return length if longer and any(short) else None
