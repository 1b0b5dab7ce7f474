"""What the user said of answers, as preferences: for the exports, and for the statistics.

    preferred(turn)          # the answer that was picked, and each that was turned down for it
    compared(turn)           # pairs of answers with the share of the win that the first one got
    labelled(turn)           # answers that were called good or bad

A pick in a chat says as much as one that was made while rating. Of each turn it is the one that was
made last and not taken back. An answer is no alternative to itself: what says the same as the
picked one, or is where that began from, was not turned down.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from chat_tui.answer import Answer
from chat_tui.tree import Turn


def preferred(turn: Turn) -> Iterator[tuple[Answer, Answer]]:
    """Each pair of the picked answer and one that was turned down; none where nothing was picked,
    or where the one answer that there is was not chosen among others."""
    picked = next((answer for answer in turn.answers if answer.id == turn.picked), None)
    if picked is not None and _said(picked):
        for other in turn.answers:
            if _said(other) and _turned_down(turn, picked, other):
                yield picked, other


def compared(turn: Turn) -> Iterator[tuple[Answer, Answer, float]]:
    """Pairs of answers and the share of the win that goes to the first: 1 for a pick, 1/2 for a
    tie. Answers that are all bad are as good as one another."""
    if turn.verdict == "pick":
        for picked, other in preferred(turn):
            yield picked, other, 1.0
    elif turn.verdict in ("tie", "bad"):
        shown = turn.judgement.order if turn.judgement is not None else ()
        answers = [answer for answer in turn.answers if answer.id in shown and _said(answer)]
        for one, other in combinations(answers, 2):
            if one.text != other.text:
                yield one, other, 0.5


def labelled(turn: Turn) -> Iterator[tuple[Answer, bool]]:
    """Each answer that was called good, or bad by the choice of another, or as all were."""
    shown = turn.judgement.order if turn.judgement is not None else ()
    turned_down = {other.id for _, other in preferred(turn)}
    for answer in turn.answers:
        if (turn.verdict == "bad" and answer.id in shown) or answer.id in turned_down:
            yield answer, False
        elif answer.id == turn.picked and len(turn.answers) > 1:
            yield answer, True


def _said(answer: Answer) -> bool:
    """It has a text, or it ended by itself without one. Else nothing came of it."""
    return bool(answer.text) or answer.reason == "stop"


def _turned_down(turn: Turn, picked: Answer, other: Answer) -> bool:
    """Whether picking `picked` said something about `other`."""
    if other is picked or other.text == picked.text:
        return False
    answers = {answer.id: answer for answer in turn.answers}
    source = picked.source
    while source is not None and source in answers:
        if source == other.id and picked.text.startswith(other.text):
            return False  # it was continued
        source = answers[source].source
    return True
