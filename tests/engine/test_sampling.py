"""Sampling: greedy, top-k, temperature, and that a row depends on its own seed alone."""

from __future__ import annotations

import torch

from engine.messages import SamplingParams, per_row
from engine.sampling import Sampler
from engine.seeds import row_seed


def draw(params: SamplingParams, logits: torch.Tensor, rows: list[int], steps: int, seed: int = 7):
    sampler = Sampler(params, seed, max(rows) + 1)
    return [sampler(logits, rows) for _ in range(steps)]


def test_temperature_zero_takes_the_likeliest():
    logits = torch.tensor([[0.0, 3.0, 2.9], [5.0, 1.0, 4.9]])
    assert draw(SamplingParams((0.0,)), logits, [0, 1], 3) == [[1, 0]] * 3
    # Also beside rows that do sample.
    mixed = draw(SamplingParams((0.0, 5.0)), logits, [0, 1], 50)
    assert {row[0] for row in mixed} == {1}
    assert len({row[1] for row in mixed}) > 1


def test_top_k_never_leaves_the_k_likeliest():
    logits = torch.arange(100.0)[None] / 50
    drawn = {row[0] for row in draw(SamplingParams((2.0,), top_ks=(5,)), logits, [0], 400)}
    assert drawn == {95, 96, 97, 98, 99}


def test_each_row_has_a_top_k_of_its_own():
    logits = torch.arange(100.0)[None] / 50
    params = SamplingParams((2.0,), top_ks=(1, 5, None))
    rows = list(zip(*draw(params, logits, [0, 1, 2], 400), strict=True))
    assert set(rows[0]) == {99}
    assert set(rows[1]) == {95, 96, 97, 98, 99}
    assert min(rows[2]) < 50
    alone = draw(SamplingParams((2.0,), top_ks=(5,)), logits, [0], 400, seed=row_seed(7, 1))
    assert list(rows[1]) == [row[0] for row in alone]


def test_frequencies_follow_the_softmax_at_the_temperature():
    logits = torch.tensor([[1.0, 0.0, -1.0, 0.5]])
    drawn = [row[0] for row in draw(SamplingParams((0.8,), top_ks=(None,)), logits, [0], 20000)]
    expected = (logits[0] / 0.8).softmax(0)
    counts = torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)
    torch.testing.assert_close(counts, expected, atol=0.015, rtol=0)


def test_a_row_draws_the_same_whichever_rows_run_beside_it():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    params = SamplingParams((1.0,), top_ks=(None,))
    alone = [row[0] for row in draw(params, logits, [2], 30)]
    among = [row[2] for row in draw(params, logits.expand(4, -1), [0, 1, 2, 3], 30)]
    assert alone == among


def test_a_row_can_be_made_again_alone_from_its_own_seed():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    params = SamplingParams((1.0,), top_ks=(20,))
    third = [row[2] for row in draw(params, logits.expand(3, -1), [0, 1, 2], 30, seed=41)]
    again = [row[0] for row in draw(params, logits, [0], 30, seed=row_seed(41, 2))]
    assert third == again


def test_rows_and_steps_differ():
    logits = torch.zeros(1, 1000)
    drawn = draw(SamplingParams((1.0,), top_ks=(None,)), logits.expand(4, -1), [0, 1, 2, 3], 20)
    columns = list(zip(*drawn, strict=True))
    assert len(set(columns)) == 4
    assert all(len(set(column)) > 10 for column in columns)


def test_a_tiny_temperature_is_greedy_and_not_a_nan():
    logits = torch.tensor([[10.0, 10.5, -3.0]])
    assert {row[0] for row in draw(SamplingParams((1e-9,)), logits, [0], 50)} == {1}


def test_temperatures_repeat_over_the_rows():
    assert per_row((0.2, 0.7), 5) == (0.2, 0.7, 0.2, 0.7, 0.2)
