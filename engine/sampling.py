"""Logits to next ids: temperature and top-k, one generator per row.

Each row draws one uniform number per step from its own generator and inverts the cumulative
distribution at it, so all rows are sampled in one batched operation, and what a row draws depends
on its seed and its step alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.messages import SamplingParams, per_row


def fresh_seed() -> int:
    """A seed that nobody chose, small enough to be read aloud and typed again."""
    return random.SystemRandom().randrange(1, 1_000_000_000)


def row_seed(seed: int, row: int) -> int:
    """What row `row` of an ask with `seed` is seeded from: asking for one sample with this seed
    gives the same answer again."""
    return seed + row


class Sampler:
    """Samples for the rows of one ask."""

    def __init__(self, params: SamplingParams, seed: int, num_samples: int) -> None:
        self.top_ks = per_row(params.top_ks, num_samples)
        self.temperatures = per_row(params.temperatures, num_samples)
        self._generators = [random.Random(row_seed(seed, row)) for row in range(num_samples)]
        self._greedy = not any(self.temperatures)

    def __call__(self, logits: Tensor, rows: Sequence[int]) -> list[int]:
        """Next id for each of `rows`; logits float32 (len(rows) or 1, vocab_size)."""
        if self._greedy:
            ids: list[int] = logits.argmax(-1).expand(len(rows)).tolist()
            return ids
        vocab = logits.size(-1)
        widths = [min(self.top_ks[row] or vocab, vocab) for row in rows]
        values, ranked = logits.topk(max(widths))
        temperatures = torch.tensor([[self.temperatures[row]] for row in rows])
        draws = torch.tensor([[self._generators[row].random()] for row in rows])
        temperatures, draws = temperatures.to(logits.device), draws.to(logits.device)
        greedy = temperatures == 0
        # The likeliest logit becomes 0 first: a tiny temperature then cannot overflow.
        scaled = (values - values[:, :1]) / temperatures.masked_fill(greedy, 1)
        if len(set(widths)) > 1:
            scaled = scaled.masked_fill(beyond(widths, scaled.device), -torch.inf)
        cumulative = scaled.double().softmax(-1).cumsum(-1)
        below = (cumulative < draws * cumulative[:, -1:]).sum(-1, keepdim=True)
        last = torch.tensor([[width - 1] for width in widths], device=below.device)
        place = below.minimum(last).masked_fill(greedy, 0)
        chosen: list[int] = ranked.expand(len(rows), -1).gather(1, place).flatten().tolist()
        return chosen


def beyond(widths: Sequence[int], device: torch.device) -> Tensor:
    """(len(widths), max(widths)): True from place `widths[row]` on, where a row's top-k ends."""
    places = torch.arange(max(widths), device=device)
    return places >= torch.tensor([[width] for width in widths], device=device)
