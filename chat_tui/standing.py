"""How settings stand against one another, after what the user said of answers.

    standing(turns, "temperature")

A pick counts for the setting of the picked answer against that of each answer that was turned down
with it; a tie, or answers that are all bad, as half a win for either. Answers with the same setting
say nothing about it. Scores are those of `bradley_terry.py`, in Elo points: 400 are odds of 10
to 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from chat_tui.answer import Answer
from chat_tui.bradley_terry import Cluster, Fit, bounded, fit_strengths, groups
from chat_tui.preferences import compared
from chat_tui.session import title_of
from chat_tui.tree import Turn

ELO = 400 / math.log(10)
"""Points per nat."""
FEW = 10
"""Judgements below which an interval that supposes many of them is not to be relied on."""
_WIDTH = 1.96
"""Standard errors on either side of a score, for an interval of 95%."""


@dataclass(frozen=True)
class Setting:
    """`key` tells it from others; `value` is what it is, and `name` that in words."""

    key: Hashable
    value: object
    name: str


@dataclass(frozen=True)
class Entry:
    """One setting, and how its answers did against those with another.

    Attributes:
        judgements: turns in which it was compared.
        won, tied, lost: comparisons of two answers.
        group: from 0 up; settings of different groups were never compared, nor through others.
        score, low, high: in Elo points against the average of its group, with an interval of 95%;
            None where no finite score is the likeliest.
    """

    name: str
    value: object
    judgements: int
    won: int
    tied: int
    lost: int
    group: int
    score: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def comparisons(self) -> int:
        return self.won + self.tied + self.lost

    @property
    def win_rate(self) -> float:
        """A tie is half a win."""
        return (self.won + self.tied / 2) / self.comparisons


@dataclass(frozen=True)
class Standing:
    """All settings of one kind, the best of each group first; `notes` say what to make of it."""

    by: str
    judgements: int
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]

    @property
    def comparisons(self) -> int:
        return sum(entry.comparisons for entry in self.entries) // 2


def _model(answer: Answer) -> Setting:
    model = answer.model
    # One file may have been asked for by several names, and two files have the same one.
    return Setting(model.fingerprint or model.name, model.name, model.name)


def _temperature(answer: Answer) -> Setting:
    return Setting(answer.temperature, answer.temperature, f"T {answer.temperature:g}")


def _top_k(answer: Answer) -> Setting:
    name = "all tokens" if answer.top_k is None else f"top-k {answer.top_k}"
    return Setting(answer.top_k, answer.top_k, name)


def _system(answer: Answer) -> Setting:
    system = answer.prompt.system
    if system is None:
        name = "the model's own"
    else:
        name = f'"{title_of(system)}"' if system.strip() else "none"
    return Setting(system, system, name)


SETTINGS: dict[str, Callable[[Answer], Setting]] = {
    "model": _model,
    "temperature": _temperature,
    "top-k": _top_k,
    "system": _system,
}
"""What answers can be told apart by."""


def standing(turns: Iterable[Turn], by: str) -> Standing:
    """How the settings of one kind, one of `SETTINGS`, stand after what was said of the answers of
    `turns`."""
    setting = SETTINGS[by]
    places: dict[Hashable, int] = {}
    settings: list[Setting] = []

    def place(answer: Answer) -> int:
        own = setting(answer)
        if own.key not in places:
            places[own.key] = len(settings)
            # Two files may have the same name.
            again = any(own.name == other.name for other in settings)
            name = f"{own.name} ({answer.model.path})" if again and by == "model" else own.name
            settings.append(replace(own, name=name))
        return places[own.key]

    clusters: list[Cluster] = []
    for turn in turns:
        pairs = [(place(one), place(other), share) for one, other, share in compared(turn)]
        apart = [(one, other, share) for one, other, share in pairs if one != other]
        if apart:
            clusters.append(apart)
    entries: list[Entry] = []
    notes: list[str] = []
    found = [group for group in groups(len(settings), clusters) if len(group) > 1]
    if len(found) > 1:
        notes.append(
            f"There are {len(found)} groups that were never compared with one another: "
            "scores of different groups say nothing about each other."
        )
    for number, group in enumerate(found):
        own = [cluster for cluster in clusters if cluster[0][0] in group]
        members = [settings[player] for player in group]
        ranked, said = _rank(members, _renumbered(own, group), number)
        entries += ranked
        notes += said
    return Standing(by, len(clusters), tuple(entries), tuple(notes))


def _renumbered(clusters: Sequence[Cluster], group: Sequence[int]) -> list[Cluster]:
    """With the players of a group numbered from 0 up."""
    place = {player: number for number, player in enumerate(group)}
    return [
        [(place[one], place[other], share) for one, other, share in cluster] for cluster in clusters
    ]


def _rank(
    settings: Sequence[Setting], clusters: Sequence[Cluster], group: int
) -> tuple[list[Entry], list[str]]:
    """One group's entries, the best first, and what there is to be said of them."""
    entries = [_counted(number, own, clusters, group) for number, own in enumerate(settings)]
    if not bounded(range(len(settings)), clusters):
        ranked = sorted(entries, key=lambda entry: (-entry.win_rate, entry.name))
        return ranked, [_unbounded(ranked, len(clusters))]
    fit = fit_strengths(len(settings), clusters)
    scored = [
        replace(
            entry,
            score=score * ELO,
            low=(score - _WIDTH * error) * ELO,
            high=(score + _WIDTH * error) * ELO,
        )
        for entry, score, error in zip(entries, fit.scores, fit.errors, strict=True)
    ]
    order = sorted(
        range(len(settings)),
        key=lambda player: (-round(fit.scores[player], 9), settings[player].name),
    )
    notes = [_verdict(settings, fit, *order[:2])]
    if len(clusters) < FEW:
        notes.append(f"{_judgements(len(clusters))}: too few to rely on the intervals.")
    return [scored[player] for player in order], notes


def _counted(player: int, own: Setting, clusters: Sequence[Cluster], group: int) -> Entry:
    took_part = [
        [share if one == player else 1 - share for one, other, share in cluster
         if player in (one, other)]
        for cluster in clusters
    ]  # fmt: skip
    count = Counter(share for shares in took_part for share in shares)
    judgements = sum(map(bool, took_part))
    return Entry(own.name, own.value, judgements, count[1.0], count[0.5], count[0.0], group)


def _verdict(settings: Sequence[Setting], fit: Fit, best: int, second: int) -> str:
    ahead, error = (value * ELO for value in fit.apart(best, second))
    low, high = ahead - _WIDTH * error, ahead + _WIDTH * error
    first, other = settings[best].name, settings[second].name
    span = f"from {low:.0f} to {high:.0f}"
    if low <= 0:
        return f"{first} and {other} cannot be told apart yet: {ahead:.0f} points, {span}."
    return f"{first} is ahead of {other} by {ahead:.0f} points, {span}."


def _unbounded(ranked: Sequence[Entry], judgements: int) -> str:
    """Why there are no scores."""
    always = [entry.name for entry in ranked if not entry.lost and not entry.tied]
    never = [entry.name for entry in ranked if not entry.won and not entry.tied]
    if always:
        why = f"{always[0]} won every comparison"
    elif never:
        why = f"{never[0]} won no comparison"
    else:
        why = "some won all comparisons with the others"
    return f"{_judgements(judgements)}, and {why}: no score is high or low enough for that."


def _judgements(count: int) -> str:
    return f"{count} judgement{'s' * (count != 1)}"
