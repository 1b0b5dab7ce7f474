"""Figures over the tokens of an answer."""

from __future__ import annotations

import math

import pytest

from chat_tui.model import Model
from chat_tui.scores import Surprise, first_difference, level, parting, scored, surprising
from engine.messages import NO_ID
from tests.chat_tui.scored import answer_of


def test_perplexity_is_over_what_the_model_chose() -> None:
    answer = answer_of(["a", "b", "c", "d"], [0.5, 0.25, 1e-9, 0.5], forced=[2])
    surprise = Surprise.of(scored(answer))
    assert surprise.perplexity == pytest.approx((0.5 * 0.25 * 0.5) ** (-1 / 3))
    entropies = [score.entropy for place, score in enumerate(answer.scores) if place != 2 and score]
    assert surprise.entropy == pytest.approx(sum(entropies) / 3)


def test_nothing_is_invented_where_there_are_no_scores() -> None:
    tokens = scored(answer_of(["a", b"\xe2", b"\x9c\x93"], scores=False))
    surprise = Surprise.of(tokens)
    assert surprise.perplexity is None
    assert surprise.entropy is None
    assert surprise.sparkline(8) == ""
    assert [(token.piece, token.score) for token in tokens] == [
        (b"a", None),
        (None, None),  # which of the character's bytes it was, nobody said
        ("✓".encode(), None),
    ]


def test_impossible_tokens_make_the_perplexity_infinite_not_an_error() -> None:
    surprise = Surprise()
    answer = answer_of(["a"])
    assert answer.scores[0] is not None
    surprise.add(answer.scores[0]._replace(logprob=-math.inf), forced=False)
    assert surprise.perplexity == math.inf
    assert surprise.sparkline(4) == "█"


def test_what_a_server_does_not_know_counts_for_nothing() -> None:
    score = answer_of(["a"], [0.5]).scores[0]
    assert score is not None
    surprise = Surprise()
    surprise.add(score._replace(entropy=math.nan), forced=False)
    surprise.add(score._replace(logprob=-9999.0), forced=False)
    assert surprise.perplexity == pytest.approx(2.0)
    assert surprise.entropy is None


@pytest.mark.parametrize(
    ("probability", "expected"), [(1.0, 0), (0.75, 0), (0.6, 1), (0.09, 4), (0.02, 5), (1e-9, 6)]
)
def test_levels_of_heat(probability: float, expected: int) -> None:
    assert level(math.log(probability)) == expected


def test_a_sparkline_has_a_bar_for_each_stretch() -> None:
    answer = answer_of(["x"] * 8, [1.0] * 4 + [0.06] * 4)
    surprise = Surprise.of(scored(answer))
    assert surprise.sparkline(4) == "▁▁██"
    assert surprise.sparkline(100) == "▁▁▁▁████"


def test_the_most_surprising_tokens_in_reading_order() -> None:
    probabilities = [0.9] * 60
    for place in (3, 17, 18, 40, 41, 55):
        probabilities[place] = 0.01
    answer = answer_of(["x"] * 60, probabilities, forced=[17])
    assert surprising(scored(answer)) == [3, 18, 40, 41, 55]  # the forced one is nobody's choice


@pytest.mark.parametrize(
    ("rows", "ended", "place"),
    [
        ([[1, 2, 3], [1, 2, 4]], [False, False], 2),
        ([[1, 2], [1, 2]], [False, False], None),
        ([[1, 2], [1, 2, 3]], [False, False], None),  # a step later it may be the same
        ([[1, 2], [1, 2, 3]], [True, False], 2),
        ([[1, 2], [1, 2]], [True, True], None),
        ([[], [1]], [False, False], None),
        ([[1], [1], [2]], [True, True, True], 0),
        ([[1, 2]], [True], None),
    ],
)
def test_where_answers_part(rows: list[list[int]], ended: list[bool], place: int | None) -> None:
    assert first_difference(rows, ended) == place


def test_answers_of_models_with_other_tokens_part_where_their_texts_do() -> None:
    one = answer_of(["The", " sea", " is", " blue"])
    same = answer_of(["The", " sea", " is", " red"])
    other = answer_of(["Th", "e se", "a i", "s gr", "ey"])
    for answer in (one, same, other):
        answer.reason = "stop"
    assert parting([one, same]) == [3, 3]
    other.model = Model("another")
    assert parting([one, same, other]) == [3, 3, 3]
    shorter = answer_of(["The s", "ea"])
    shorter.model, shorter.reason = other.model, "stop"
    assert parting([one, shorter]) == [2, 2]  # behind its last token: there it ended
    one.tokens[0] = NO_ID  # a server tells no ids
    assert parting([one, same]) == [3, 3]
