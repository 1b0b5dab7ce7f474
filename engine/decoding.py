"""How the rows of one ask get their next ids: the face that `Engine.generate` knows, and the plain
way to do it.

`EagerDecoder` samples on the host's word: it runs the network on the column before, waits for the
logits and samples. `engine/pipelined.py` keeps a GPU busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.kv_cache import Cache, KVCache, RowTail, SharedPrefixCache
from engine.messages import SamplingParams, per_row
from engine.models.base import Model
from engine.rows import RowState
from engine.scoring import measured

RESERVE = 512
"""Positions that a cache starts with beyond the prompt; it grows when an answer outlives them."""


@dataclass(frozen=True)
class Asked:
    """What an ask wants of its rows; `seed` is settled. `prompt` is in tokens."""

    prompt: int
    num_samples: int
    params: SamplingParams
    seed: int


class Samples(Protocol):
    def __call__(self, logits: Tensor, rows: Sequence[int]) -> list[int]: ...


class Decoder(Protocol):
    """The rows of one ask. `active` are those that have not finished, in the order of their
    places."""

    def prompt_cache(self, reused: KVCache | None) -> KVCache:
        """Where the prompt is to be run, at batch 1: `reused`, or an empty cache."""
        ...

    def begin(self, prompt: KVCache, logits: Tensor) -> None:
        """The prompt is in that cache and ends with these logits (1, vocab_size)."""
        ...

    def column(self, active: Sequence[RowState], last: bool) -> list[int]:
        """The next id of each row, to be pushed: its forced one, or what it sampled. The ids pushed
        before have been run by then. `last`: all rows end with this column."""
        ...

    def measured(self, active: Sequence[RowState]) -> list[list[float]]:
        """What `engine.scoring.read` wants to know of the ids that the rows have just pushed."""
        ...

    def tail_of(self, place: int, start: int) -> RowTail:
        """What the row holds from position `start` on; its last id may or may not have been run."""
        ...

    def keep(self, places: list[int]) -> None:
        """Drop all rows but these, which are in ascending order."""
        ...


class EagerDecoder:
    def __init__(self, model: Model, asked: Asked, sampler: Samples) -> None:
        self.model = model
        self.asked = asked
        self._sampler = sampler
        self._temperatures = per_row(asked.params.temperatures, asked.num_samples)
        self._top_ks = per_row(asked.params.top_ks, asked.num_samples)
        self._cache: Cache

    def prompt_cache(self, reused: KVCache | None) -> KVCache:
        context = self.model.shape.context
        return reused or self.model.new_cache(1, min(context, self.asked.prompt + RESERVE))

    def begin(self, prompt: KVCache, logits: Tensor) -> None:
        self._logits = logits
        # A native step computes one row as it computes it among others, to the bit, where its keys
        # are in the same places.
        alone = self.asked.num_samples == 1 and not self.model.native
        self._cache = prompt if alone else self._given_to_rows(prompt)

    def _given_to_rows(self, prompt: KVCache) -> Cache:
        """The prompt's KV state for all rows: shared on a CPU, where a copy costs more than it
        saves; copied where memory is fast and the attention kernels want plain rows."""
        if self.model.device.type == "cpu":
            return SharedPrefixCache(prompt, self.asked.num_samples)
        cache = self.model.new_cache(self.asked.num_samples, prompt.seq)
        cache.prefill(prompt)
        return cache

    @torch.inference_mode()
    def column(self, active: Sequence[RowState], last: bool) -> list[int]:
        if active[0].tokens:
            self._cache.reserve(1, self.model.shape.context)
            ids = torch.tensor([[row.tokens[-1]] for row in active], device=self.model.device)
            self._logits = self.model.forward(ids, self._cache)
        sampled = self._sampler(self._logits, [row.index for row in active])
        return [
            row.forced_tokens[0] if row.forced_tokens else token
            for row, token in zip(active, sampled, strict=True)
        ]

    @torch.inference_mode()
    def measured(self, active: Sequence[RowState]) -> list[list[float]]:
        return measured(
            self._logits,
            [row.tokens[-1] for row in active],
            self.asked.params.alternatives or 0,
            [self._temperatures[row.index] for row in active],
            [self._top_ks[row.index] for row in active],
        )

    def tail_of(self, place: int, start: int) -> RowTail:
        return self._cache.tail_of(place, start)

    def keep(self, places: list[int]) -> None:
        self._cache.keep(places)
