"""A KV cache whose tensors stay where they are, so that a captured step finds them again.

    cache = StaticCache(model.shape, rows=8, seq=4096, dtype=model.dtype, device=model.device)
    model.forward(prompt, cache)       # into row 0
    cache.spread(8)                    # its keys and values to all rows
    model.forward(column, cache)       # single tokens: nothing of it is read on the host
    cache.keep([0, 2, 3])              # finished rows leave; the others move up

    row 0   [ prompt ......... | its own tokens ... | room ]        `k` and `v` are views of the
    row 1   [ the same, copied | ...                | room ]        rows in use; so is the state
    row 2   [ the same, copied | ...                | room ]        beside them
    ...       rows not in use

Only `fit` and `reserve` give it other tensors, and `moves` counts how often.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention import UNLIMITED, Window, flash_attn_with_kvcache
from engine.kv_cache import KVCache, Positions, Spans
from engine.models.base import Shape

SHORTEST = 1024
"""Positions that there is room for at least; twice as many whenever they are used up."""

TILE = 128
"""Room is a multiple of this, the keys that an attention kernel takes at a time."""


class StaticCache(KVCache):
    def __init__(
        self, shape: Shape, rows: int, seq: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Empty, one row in use, with room for `rows` rows of `seq` positions."""
        self._shape = shape
        self._allocate(rows, seq, dtype, device)
        self.moves = 0
        self._shared = 0
        self._use(1)

    def _allocate(self, rows: int, seq: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = self._shape
        with torch.inference_mode(False):  # they will be written to in other modes, too
            super().__init__(
                shape.n_layer,
                rows,
                seq,
                shape.n_kv_head,
                shape.head_dim,
                dtype=dtype,
                device=device,
            )
        # Kernels may load what lies beyond a row's end and multiply it by 0.
        self._k, self._v = self.k.zero_(), self.v.zero_()
        self._seqlens = self.cache_seqlens
        self._states: dict[str, Tensor] = {}

    def _use(self, rows: int) -> None:
        self.k, self.v = self._k[:, :rows], self._v[:, :rows]
        self.cache_seqlens = self._seqlens[:rows]
        self.state = {name: self._states[name][:rows] for name in self.state}

    @property
    def rows(self) -> int:
        """That there is room for."""
        return self._k.size(1)

    def start_over(self) -> None:
        """Empty, one row in use."""
        self.state = {}
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Forget all rows but the first, and its positions from `length` on."""
        self._use(1)
        super().truncate(length)

    def fit(self, rows: int, seq: int, limit: int) -> None:
        """Make room for `rows` rows of `seq` positions, `limit` being the most that can be asked
        for. What is held stays."""
        if rows <= self.rows and seq <= self.seq:
            return
        batch, length = self.batch, self._length
        k, v, seqlens, states = self.k, self.v, self.cache_seqlens, self.state
        room = self.seq if seq <= self.seq else roomy(seq, limit)
        self._allocate(max(rows, self.rows), room, k.dtype, k.device)
        self._k[:, :batch, :length] = k[:, :, :length]
        self._v[:, :batch, :length] = v[:, :, :length]
        self._seqlens[:batch] = seqlens
        self._length = length
        self._use(batch)
        for name, value in states.items():
            self.remember(name, value)
        self.moves += 1

    def reserve(self, time: int, limit: int) -> None:
        self.fit(self.batch, self._length + time, limit)

    def remember(self, name: str, value: Tensor) -> None:
        if name not in self._states:
            with torch.inference_mode(False):
                self._states[name] = torch.zeros(
                    self.rows, *value.shape[1:], dtype=value.dtype, device=value.device
                )
        if name not in self.state:
            self.state[name] = self._states[name][: self.batch]
        self.state[name].copy_(value)

    def positions(self, time: int) -> Positions:
        return self.cache_seqlens[:, None] if time == 1 else super().positions(time)

    def spans(self) -> Spans | None:
        return None

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: Window = UNLIMITED
    ) -> Tensor:
        if k.size(1) > 1:
            return super().attend(layer, q, k, v, window)
        return flash_attn_with_kvcache(
            q,
            self.k[layer],
            self.v[layer],
            k,
            v,
            cache_seqlens=self.cache_seqlens,
            window_size=window,
            backend=self.backend,
            on_device=True,
        )

    def stepped_to(self, length: int) -> None:
        """Rows hold `length` positions now. A replayed step runs on the device alone: who replays
        it says so here."""
        self._length = length

    def spread(self, rows: int) -> None:
        """Give what row 0 holds to the rows up to `rows`."""
        self._shared = self._length
        for whole in (self._k, self._v):
            whole[:, 1:rows, : self._length] = whole[:, :1, : self._length]
        for name in self.state:
            self._states[name][1:rows] = self._states[name][:1]
        self._use(rows)
        self.cache_seqlens.fill_(self._length)

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these, which are in ascending order."""
        own = slice(self._shared, self._length)  # before it all rows are the same
        for place, row in enumerate(rows):
            if place != row:
                for whole in (self._k, self._v):
                    whole[:, place, own] = whole[:, row, own]
                for value in (self.cache_seqlens, *self.state.values()):
                    value[place].copy_(value[row])
        self._use(len(rows))


def roomy(seq: int, limit: int) -> int:
    """Positions to make room for where `seq` are needed now and `limit` at most."""
    room = SHORTEST
    while room < seq:
        room *= 2
    room = max(seq, min(room, limit))
    return -(-room // TILE) * TILE
