"""Scores and errors are those that others find, by other ways."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from chat_tui.bradley_terry import Cluster, bounded, fit_strengths, groups

# The American League's eastern teams against one another in 1987 (Agresti, Categorical Data
# Analysis, on the Bradley-Terry model): wins of the row's team over the column's.
TEAMS = ("Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore")
WINS = (
    (0, 7, 9, 7, 7, 9, 11),
    (6, 0, 7, 5, 11, 9, 9),
    (4, 6, 0, 7, 7, 8, 12),
    (6, 8, 6, 0, 6, 7, 10),
    (6, 2, 6, 7, 0, 7, 12),
    (4, 4, 5, 6, 6, 0, 6),
    (2, 4, 1, 3, 1, 7, 0),
)
# As R's BradleyTerry2 gives them for `baseballModel1`: against Baltimore, with standard errors.
PUBLISHED = (
    (1.5814, 0.3433),
    (1.4364, 0.3396),
    (1.2945, 0.3367),
    (1.2476, 0.3359),
    (1.1077, 0.3339),
    (0.6839, 0.3319),
)
BASEBALL: list[Cluster] = [
    [(one, other, 1.0)]
    for one, row in enumerate(WINS)
    for other, wins in enumerate(row)
    for _ in range(wins)
]


def tournament(
    strengths: list[float], rounds: int, seed: int, *, ties: bool = False
) -> list[Cluster]:
    """Everybody against everybody; in each cluster, one plays two others."""
    draw = random.Random(seed)
    clusters: list[Cluster] = []
    for _ in range(rounds):
        one, *others = draw.sample(range(len(strengths)), 3)
        cluster = []
        for other in others:
            win = 1 / (1 + math.exp(strengths[other] - strengths[one]))
            share = float(draw.random() < win)
            cluster.append((one, other, 0.5 if ties and draw.random() < 0.2 else share))
        clusters.append(cluster)
    return clusters


@pytest.mark.parametrize(("won", "of"), [(13, 20), (1, 3), (50, 100)])
def test_two_players_have_the_score_that_can_be_written_down(won: int, of: int) -> None:
    fit = fit_strengths(2, [[(0, 1, float(n < won))] for n in range(of)])
    share = won / of
    ahead, error = fit.apart(0, 1)
    assert ahead == pytest.approx(math.log(share / (1 - share)))
    assert sum(fit.scores) == pytest.approx(0)
    # Of a log-odds; with the correction for few clusters in the robust one, which is the wider.
    variance = 1 / (of * share * (1 - share))
    assert error == pytest.approx(math.sqrt(variance * of / (of - 1)))
    assert fit.errors[0] == pytest.approx(error / 2)


def test_a_tie_is_half_a_win() -> None:
    ties = fit_strengths(2, [[(0, 1, 0.5)]] * 10 + [[(0, 1, 1.0)]] * 10)
    assert ties.apart(0, 1)[0] == pytest.approx(math.log(15 / 5))
    # Ties alone do not make one sure.
    equal, error = fit_strengths(2, [[(0, 1, 0.5)]] * 10).apart(0, 1)
    assert equal == pytest.approx(0)
    assert error == pytest.approx(math.sqrt(4 / 10))


def test_a_published_league_comes_out_as_published() -> None:
    fit = fit_strengths(7, BASEBALL)
    covariance = np.array(fit.covariance)
    for team, (score, error) in enumerate(PUBLISHED):
        assert fit.scores[team] - fit.scores[6] == pytest.approx(score, abs=6e-5)
        variance = covariance[team, team] + covariance[6, 6] - 2 * covariance[team, 6]
        assert math.sqrt(variance) == pytest.approx(error, abs=6e-5)


def by_minorisation(count: int, clusters: list[Cluster]) -> np.ndarray:
    """Hunter's (2004) iteration for the same scores: no derivative in it."""
    wins = np.zeros((count, count))
    for cluster in clusters:
        for one, other, share in cluster:
            wins[one, other] += share
            wins[other, one] += 1 - share
    games = wins + wins.T
    strengths = np.ones(count)
    for _ in range(1000):
        strengths = wins.sum(1) / (games / (strengths[:, None] + strengths)).sum(1)
        strengths /= np.exp(np.log(strengths).mean())
    return np.log(strengths)


def robust_covariance(scores: np.ndarray, clusters: list[Cluster]) -> np.ndarray:
    """Bread, meat and bread, by numpy's pseudo-inverse."""
    count = len(scores)
    information, meat = np.zeros((count, count)), np.zeros((count, count))
    for cluster in clusters:
        gradient = np.zeros(count)
        for one, other, share in cluster:
            way = np.eye(count)[one] - np.eye(count)[other]
            win = 1 / (1 + np.exp(-way @ scores))
            information += win * (1 - win) * np.outer(way, way)
            gradient += (share - win) * way
        meat += np.outer(gradient, gradient)
    bread = np.linalg.pinv(information)
    return bread @ meat @ bread * len(clusters) / (len(clusters) - 1)


def test_another_way_to_the_top_finds_the_same_scores_and_errors() -> None:
    clusters = tournament([1.0, 0.3, -0.2, -1.1], 60, 1, ties=True)
    fit = fit_strengths(4, clusters)
    scores = by_minorisation(4, clusters)
    np.testing.assert_allclose(fit.scores, scores, atol=1e-8)
    np.testing.assert_allclose(fit.robust, robust_covariance(scores, clusters), atol=1e-8)


def test_a_simulated_tournament_gives_the_strengths_back() -> None:
    strengths = [1.0, 0.4, 0.0, -0.4, -1.0]
    inside = 0
    for seed in range(20):
        fit = fit_strengths(5, tournament(strengths, 200, seed))
        inside += sum(
            abs(score - true) < 1.96 * error
            for score, true, error in zip(fit.scores, strengths, fit.errors, strict=True)
        )
    assert inside >= 90  # of 100; 95 are expected

    many = fit_strengths(5, tournament(strengths, 2000, 99))
    assert many.scores == pytest.approx(strengths, abs=0.1)


def test_one_judgement_of_many_answers_counts_as_one() -> None:
    once = [[(0, 1, float(n < 13))] for n in range(20)]
    fourfold = [cluster * 4 for cluster in once]
    one, four = fit_strengths(2, once), fit_strengths(2, fourfold)
    assert four.scores == pytest.approx(one.scores)
    assert four.errors == pytest.approx(one.errors)


def test_strong_odds_are_found_too() -> None:
    clusters: list[Cluster] = [[(0, 1, 1.0)]] * 999 + [[(0, 1, 0.0)]]
    assert fit_strengths(2, clusters).apart(0, 1)[0] == pytest.approx(math.log(999))


def test_who_never_lost_has_no_score() -> None:
    circle: list[Cluster] = [[(0, 1, 1.0)], [(1, 2, 1.0)], [(2, 0, 1.0)]]
    assert bounded([0, 1, 2], circle)
    assert not bounded([0, 1, 2], circle[:2])
    assert not bounded([0, 1, 2, 3], [*circle, [(0, 3, 1.0)], [(1, 3, 1.0)]])
    assert bounded([0, 1], [[(0, 1, 0.5)]])


def test_who_was_never_compared_is_in_another_group() -> None:
    clusters: list[Cluster] = [[(0, 2, 1.0)], [(2, 4, 0.0)], [(1, 3, 0.5)]]
    assert groups(5, clusters) == [[0, 2, 4], [1, 3]]
