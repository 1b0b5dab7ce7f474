"""Answers with scores, as an engine would report them, for tests and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chat_tui.answer import Answer, Prompt
from chat_tui.model import Model
from engine.messages import Alternative, TokenScore

MODEL = Model("SmolLM2-135M-Instruct")


def id_of(piece: bytes) -> int:
    return 1000 + sum(piece)


def score_of(
    piece: bytes,
    probability: float,
    others: Sequence[tuple[str, float]] = (),
    *,
    sampled: float | None = None,
) -> TokenScore:
    """A token's score; `others` are texts with their probabilities."""
    reported = sorted(
        [(piece, probability), *((text.encode(), p) for text, p in others)],
        key=lambda other: -other[1],
    )
    rank = [text for text, _ in reported].index(piece)
    probabilities = [p for _, p in reported]
    return TokenScore(
        id_of(piece),
        piece,
        math.log(probability),
        math.log(min(probability * 1.2, 1.0)) if sampled is None else math.log(sampled),
        -sum(p * math.log(p) for p in probabilities),
        rank,
        tuple(Alternative(id_of(text), text, math.log(p)) for text, p in reported[:10]),
    )


def answer_of(
    pieces: Sequence[str | bytes],
    probabilities: Sequence[float] = (),
    *,
    number: int = 1,
    forced: Sequence[int] = (),
    temperature: float = 0.7,
    scores: bool = True,
) -> Answer:
    """An answer of these tokens. Where no probability is given it goes down and up again."""
    answer = Answer(number, 1, Prompt(), MODEL, temperature=temperature, top_k=50, seed=number)
    held = b""
    for place, given in enumerate(pieces):
        piece = given.encode() if isinstance(given, str) else given
        held += piece
        try:
            text, held = held.decode(), b""
        except UnicodeDecodeError:
            text = ""
        wave = 0.5 + 0.49 * math.cos(place * 1.3)
        probability = probabilities[place] if place < len(probabilities) else wave
        rest = (1 - probability) * 0.9
        others = [(f" or{n}", rest / 2**n) for n in range(1, 12)] if rest > 1e-9 else []
        mask = int(place not in forced)
        score = score_of(piece, max(probability, 1e-9), others)
        if not mask:
            score = score._replace(sampled_logprob=None)
        answer.append(id_of(piece), mask, text, score if scores else None)
    return answer
