"""Logits to next ids: temperature and top-k, one generator per row.

Each row draws one uniform number per step from its own generator and inverts the cumulative
distribution at it, so all rows are sampled in one batched operation, and what a row draws depends
on its seed and its step alone. Not on logits: it can be drawn on the host before a GPU wants it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.messages import SamplingParams, per_row
from engine.native import library
from engine.native.logits import MOST, sample
from engine.seeds import row_seed


def generators(seed: int, num_samples: int) -> list[random.Random]:
    """What each row draws from."""
    return [random.Random(row_seed(seed, row)) for row in range(num_samples)]


class Kept(NamedTuple):
    """How many of the likeliest tokens each row samples from."""

    most: int
    """In any row."""
    of_row: Tensor | None
    """int64 (B, 1); None where it is `most` in all."""

    @classmethod
    def of(cls, top_ks: Sequence[int | None], vocab_size: int, device: torch.device) -> Kept:
        counts = [min(top_k or vocab_size, vocab_size) for top_k in top_ks]
        if len(set(counts)) == 1:
            return cls(counts[0], None)
        return cls(max(counts), torch.tensor(counts, device=device)[:, None])

    def cut(self, values: Tensor) -> Tensor:
        """Drop what lies behind a row's last place from `values` (B or 1, most), likeliest
        first."""
        if self.of_row is None:
            return values
        behind = torch.arange(self.most, device=values.device) >= self.of_row
        return values.masked_fill(behind, -torch.inf)


def choose(logits: Tensor, temperatures: Tensor, draws: Tensor, kept: Kept) -> Tensor:
    """Sample an id for each row, on the device of the logits and without waiting for it.

    Args:
        logits: (B or 1, vocab_size).
        temperatures: (B, 1); 0 takes the likeliest.
        draws: (B, 1), uniform from 0 to 1.

    Returns: int64 (B,).
    """
    values, ranked = logits.topk(kept.most)
    greedy = temperatures == 0
    # The likeliest logit becomes 0 first: a tiny temperature then cannot overflow.
    scaled = kept.cut((values - values[:, :1]) / temperatures.masked_fill(greedy, 1))
    cumulative = scaled.double().softmax(-1).cumsum(-1)
    below = (cumulative < draws * cumulative[:, -1:]).sum(-1, keepdim=True)
    if kept.of_row is None:
        place = below.clamp_max(kept.most - 1)
    else:
        place = below.minimum(kept.of_row - 1)
    return ranked.expand(len(draws), -1).gather(1, place.masked_fill(greedy, 0))[:, 0]


class Sampler:
    """Samples for the rows of one ask."""

    def __init__(self, params: SamplingParams, seed: int, num_samples: int) -> None:
        self.top_ks = per_row(params.top_ks, num_samples)
        self.temperatures = per_row(params.temperatures, num_samples)
        self._generators = generators(seed, num_samples)
        self._greedy = not any(self.temperatures)

    def __call__(self, logits: Tensor, rows: Sequence[int]) -> list[int]:
        """Next id for each of `rows`; logits float32 (len(rows) or 1, vocab_size)."""
        vocab = logits.size(-1)
        temperatures = [self.temperatures[row] for row in rows]
        native = library.load() if logits.device.type == "cpu" else None
        if self._greedy:
            if native:
                return sample(native, logits, temperatures, [0.0] * len(rows), [1] * len(rows))
            ids: list[int] = logits.argmax(-1).expand(len(rows)).tolist()
            return ids
        top_ks = [self.top_ks[row] for row in rows]
        draws = [self._generators[row].random() for row in rows]
        counts = [min(top_k or vocab, vocab) for top_k in top_ks]
        if native and max(counts) <= MOST:
            return sample(native, logits, temperatures, draws, counts)
        kept = Kept.of(top_ks, vocab, logits.device)
        heat, drawn = (torch.tensor(of)[:, None].to(logits.device) for of in (temperatures, draws))
        chosen: list[int] = choose(logits, heat, drawn, kept).tolist()
        return chosen
