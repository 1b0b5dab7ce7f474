"""Strengths out of pairwise comparisons, after Bradley and Terry (1952).

    fit = fit_strengths(3, [[(0, 1, 1.0), (0, 2, 1.0)], [(1, 2, 0.5)]])
    fit.scores, fit.errors        # in nats, with mean 0, and their standard errors

Player i beats player j with probability s(t_i - t_j), s being the logistic function; the scores t
are those of greatest likelihood, found by Newton's method. They are finite only where everybody has
lost, directly or through others, to everybody (Ford 1957); `groups` tells who can be compared with
whom, and `bounded` whether that holds.

Comparisons come in clusters: one judgement of five answers says four things at once, and those are
not four independent ones. The standard errors are therefore the wider of two: from the observed
information, as if all comparisons were independent, and the robust ones of Huber (1967) by cluster,
which Chatbot Arena uses as well (Chiang et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Comparison = tuple[int, int, float]
"""Two players, and the share of the win that the first one got: 1, 0, or 1/2 for a tie."""
Cluster = Sequence[Comparison]
Matrix = list[list[float]]

_STEPS = 100
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Fit:
    """The strengths of n players.

    Attributes:
        scores: natural logarithms of the odds against an average player; their mean is 0.
        covariance: of the scores, as if all comparisons were independent.
        robust: of the scores, clusters being independent.
    """

    scores: tuple[float, ...]
    covariance: Matrix
    robust: Matrix

    @property
    def errors(self) -> list[float]:
        """A standard error for each score."""
        return [self._error([float(i == j) for j in range(self.count)]) for i in range(self.count)]

    def apart(self, one: int, other: int) -> tuple[float, float]:
        """By how much `one` is ahead of `other`, and the standard error of that."""
        weights = [float(i == one) - float(i == other) for i in range(self.count)]
        return self.scores[one] - self.scores[other], self._error(weights)

    @property
    def count(self) -> int:
        return len(self.scores)

    def _error(self, weights: Sequence[float]) -> float:
        """Of a weighted sum of the scores."""
        variances = (_quadratic(matrix, weights) for matrix in (self.covariance, self.robust))
        return math.sqrt(max(*variances, 0.0))


def groups(count: int, clusters: Sequence[Cluster]) -> list[list[int]]:
    """Players who are connected by comparisons; those of different groups cannot be compared."""
    edges: dict[int, set[int]] = {player: set() for player in range(count)}
    for one, other, _ in _all(clusters):
        edges[one].add(other)
        edges[other].add(one)
    found: list[list[int]] = []
    for player in range(count):
        if not any(player in group for group in found):
            found.append(sorted(_reached(player, edges)))
    return found


def bounded(players: Sequence[int], clusters: Sequence[Cluster]) -> bool:
    """Whether the scores of a group are finite: nobody in it, nor any part of it, won, or lost, all
    comparisons with the others."""
    beaten: dict[int, set[int]] = {player: set() for player in players}
    lost: dict[int, set[int]] = {player: set() for player in players}
    for one, other, share in _all(clusters):
        if one in beaten and other in beaten:
            for winner, loser, part in ((one, other, share), (other, one, 1 - share)):
                if part > 0:
                    beaten[winner].add(loser)
                    lost[loser].add(winner)
    first = players[0]
    return len(_reached(first, beaten)) == len(_reached(first, lost)) == len(players)


def fit_strengths(count: int, clusters: Sequence[Cluster]) -> Fit:
    """The scores of players 0 to count - 1, who are one `bounded` group."""
    scores = [0.0] * count
    likelihood = _likelihood(scores, clusters)
    for _ in range(_STEPS):
        gradient = [sum(column) for column in zip(*_gradients(scores, clusters), strict=True)]
        step = _times(_inverse(_information(scores, clusters)), gradient)
        # Half the step, and half again, until it leads upwards: far from the top it may not.
        while True:
            there = _centred([score + part for score, part in zip(scores, step, strict=True)])
            higher = _likelihood(there, clusters)
            if higher >= likelihood or max(map(abs, step)) < _TOLERANCE:
                break
            step = [part / 2 for part in step]
        scores, likelihood = there, higher
        if max(map(abs, step)) < _TOLERANCE:
            break
    bread = _inverse(_information(scores, clusters))
    gradients = [_times(bread, gradient) for gradient in _gradients(scores, clusters)]
    # The correction for few clusters, n / (n - 1).
    many = len(gradients)
    share = many / (many - 1) if many > 1 else 1.0
    robust = [
        [share * sum(row[i] * row[j] for row in gradients) for j in range(count)]
        for i in range(count)
    ]
    return Fit(tuple(scores), bread, robust)


def _all(clusters: Sequence[Cluster]) -> list[Comparison]:
    return [comparison for cluster in clusters for comparison in cluster]


def _reached(first: int, edges: dict[int, set[int]]) -> set[int]:
    found, waiting = {first}, [first]
    while waiting:
        fresh = edges[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def _win(ahead: float) -> float:
    """The probability to win, for one who is `ahead` by so much."""
    if ahead < 0:
        return math.exp(ahead) / (1 + math.exp(ahead))
    return 1 / (1 + math.exp(-ahead))


def _likelihood(scores: Sequence[float], clusters: Sequence[Cluster]) -> float:
    total = 0.0
    for one, other, share in _all(clusters):
        ahead = scores[one] - scores[other]
        # log s(x) = min(x, 0) - log(1 + exp(-|x|)), and the same for the other one.
        total += share * min(ahead, 0) + (1 - share) * min(-ahead, 0)
        total -= math.log1p(math.exp(-abs(ahead)))
    return total


def _gradients(scores: Sequence[float], clusters: Sequence[Cluster]) -> list[list[float]]:
    """Of the likelihood, by the scores; what each cluster has part in it."""
    gradients = []
    for cluster in clusters:
        gradient = [0.0] * len(scores)
        for one, other, share in cluster:
            surprise = share - _win(scores[one] - scores[other])
            gradient[one] += surprise
            gradient[other] -= surprise
        gradients.append(gradient)
    return gradients


def _information(scores: Sequence[float], clusters: Sequence[Cluster]) -> Matrix:
    """Minus the second derivatives of the likelihood."""
    count = len(scores)
    matrix = [[0.0] * count for _ in range(count)]
    for one, other, _ in _all(clusters):
        win = _win(scores[one] - scores[other])
        weight = win * (1 - win)
        for i, j, sign in ((one, one, 1), (other, other, 1), (one, other, -1), (other, one, -1)):
            matrix[i][j] += sign * weight
    return matrix


def _centred(scores: Sequence[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    return [score - mean for score in scores]


def _times(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _quadratic(matrix: Matrix, vector: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(_times(matrix, vector), vector, strict=True))


def _inverse(matrix: Matrix) -> Matrix:
    """The inverse among scores of mean 0, where the information has full rank: adding 1/n
    everywhere fills the direction that is missing, taking it away again empties it."""
    count = len(matrix)
    rows = [
        [value + 1 / count for value in row] + [float(i == j) for j in range(count)]
        for i, row in enumerate(matrix)
    ]
    for column in range(count):  # Gauss and Jordan
        pivot = max(range(column, count), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = rows[column][column]
        rows[column] = [value / scale for value in rows[column]]
        for row in range(count):
            factor = rows[row][column]
            if row != column and factor:
                pairs = zip(rows[row], rows[column], strict=True)
                rows[row] = [value - factor * part for value, part in pairs]
    return [[value - 1 / count for value in row[count:]] for row in rows]
