"""Rotary positions: how fast each pair of a head turns, and the ways to stretch that over a longer
context than a model was trained with.

    rope = Rope(base=500000.0, scaling="llama3", factor=8.0, original_context=8192)
    rope.frequencies(head_dim=64)          # radians per position, float32 (32,)
    rope.magnitude                         # what q and k are scaled by (yarn), else 1

The formulas are those of `transformers` (`modeling_rope_utils.py`): rotary embedding of Su et al.
2021; `linear` of Chen et al. 2023; `llama3` of the Llama 3.1 release; `yarn` of Peng et al. 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SCALINGS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """Frequencies base^(-2i / D), scaled.

    Attributes:
        base: also called theta.
        scaling: one of `SCALINGS`.
        factor: how many times longer the context became.
        original_context: positions that the model was trained with before (llama3, yarn).
        low, high: llama3: pairs that turn fewer than `low` times over the original context are
            slowed by `factor`, those that turn more than `high` times not at all. yarn: the same
            with a ramp over the pairs' indices.
        attention_factor: yarn's scale of q and k; None is 0.1 ln(factor) + 1.
    """

    base: float
    scaling: str = "default"
    factor: float = 1.0
    original_context: int = 0
    low: float = 1.0
    high: float = 4.0
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        """What q and k are multiplied by."""
        if self.scaling != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0

    def frequencies(self, head_dim: int) -> Tensor:
        """Radians per position of each pair, float32 (head_dim / 2,)."""
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32)
        plain = 1.0 / self.base ** (steps / head_dim)
        if self.scaling == "default":
            return plain
        slowed = plain / self.factor
        if self.scaling == "linear":
            return slowed
        keep = (
            self._kept_by_turns(plain) if self.scaling == "llama3" else self._kept_by_index(plain)
        )
        return slowed * (1 - keep) + plain * keep

    def _kept_by_turns(self, plain: Tensor) -> Tensor:
        """llama3: 0 slowed, 1 kept, by how often a pair turns over the original context."""
        turns = self.original_context * plain / (2 * math.pi)
        return ((turns - self.low) / (self.high - self.low)).clamp(0, 1)

    def _kept_by_index(self, plain: Tensor) -> Tensor:
        """yarn: 0 slowed, 1 kept, falling linearly between the pairs that turn `high` and `low`
        times."""
        pairs = len(plain)
        dim = 2 * pairs

        def index(turns: float) -> float:
            length = self.original_context / (turns * 2 * math.pi)
            return dim * math.log(length) / (2 * math.log(self.base))

        first, last = max(math.floor(index(self.high)), 0), min(math.ceil(index(self.low)), dim - 1)
        span = last - first or 0.001
        return 1 - ((torch.arange(pairs, dtype=torch.float32) - first) / span).clamp(0, 1)
