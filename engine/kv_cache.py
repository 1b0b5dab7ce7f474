"""Keys and values of the past, for KV heads only, in the layout that flash-attention reads.

`KVCache` holds (n_layers, batch, seq, n_kv_head, head_dim); `prefill(other)` gives a prompt that
was run at batch 1 to all rows. `SharedPrefixCache` does not copy it: N rows attend to the one
prefix together and to their own tails, and the two results are merged by log-sum-exp (Juravsky et
al. 2024, "Hydragen"). On a CPU copying a 2,048-token prompt to 8 rows costs more than a prefill
step and is then read 8 times per token; on a GPU the copy is cheap and FA3 wants it.

Both have the one face that the models use: `attend(layer, ...)` for every layer, then `advance(n)`
once. The rows of a cache are in lockstep: they hold the same prompt and the same number of steps
since.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from engine.attention import (
    UNLIMITED,
    Window,
    attend_with_lse,
    flash_attn_with_kvcache,
    merge,
)
from engine.errors import CacheMismatchError
from engine.flash import AttentionBackend, select

TAIL_BLOCK = 256
"""A tail grows by doubling from this many positions, so that a short answer does not reserve the
whole context."""


Positions: TypeAlias = "slice | Tensor"
"""The same for all rows and known to the host, or (B, T) and known to the device alone."""


class RowTail(NamedTuple):
    """What one row holds behind some position: k and v (n_layers, length, n_kv_head, head_dim), and
    its state."""

    k: Tensor
    v: Tensor
    state: dict[str, Tensor]

    @property
    def length(self) -> int:
        return self.k.size(1)


class Span(NamedTuple):
    """The first `length` positions of k and v, (n_layers, batch, seq, n_kv_head, head_dim) both and
    with the same strides."""

    k: Tensor
    v: Tensor
    length: int


class Spans(NamedTuple):
    """Where keys and values are: what all rows share comes first."""

    shared: Span | None
    own: Span


class Cache(Protocol):
    """What a model needs of the past."""

    @property
    def batch(self) -> int: ...

    @property
    def length(self) -> int:
        """Positions held by each row."""
        ...

    @property
    def state(self) -> dict[str, Tensor]:
        """Per-row state that is not attention's, batch first: nanochat's `prev_embedding`."""
        ...

    def remember(self, name: str, value: Tensor) -> None:
        """Replace a state by a copy of `value`."""
        ...

    def positions(self, time: int) -> Positions:
        """Where the next `time` tokens of each row stand."""
        ...

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: Window = UNLIMITED
    ) -> Tensor:
        """Append (B, T, Hkv, D) keys and values of one layer; q (B, T, H, D), or of the last of
        these positions only, -> as q."""
        ...

    def spans(self) -> Spans | None:
        """For a reader that appends and attends by itself: one position behind the last of `own`,
        for which there is room. None where the host does not know the lengths."""
        ...

    def advance(self, time: int) -> None:
        """Every layer has appended `time` positions."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these, in this order."""
        ...

    def reserve(self, time: int, limit: int) -> None:
        """Make room for `time` more positions; `limit` is the most positions that can ever be asked
        for."""
        ...

    def tail_of(self, row: int, start: int) -> RowTail:
        """A copy of what `row` holds from position `start` on."""
        ...


def _room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor (n_layers, batch, seq, n_kv_head, head_dim), on a CPU uninitialised: a GPU's kernels
    may load what lies beyond a row's end and multiply it by 0.

    On a CPU the positions of one head lie side by side in memory, as it reads one head after the
    other: attention takes two thirds of the time after 2,048 tokens (9 heads on 3 of 64, bfloat16,
    CPU time of one row: 0.41 ms a layer for 0.61).
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    n_layers, batch, seq, n_kv_head, head_dim = shape
    return torch.empty(n_layers, batch, n_kv_head, seq, head_dim, dtype=dtype).transpose(2, 3)


class KVCache:
    """A cache in which every row has its own keys and values."""

    def __init__(
        self,
        n_layers: int,
        batch: int,
        seq: int,
        n_kv_head: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        backend: AttentionBackend | None = None,
    ) -> None:
        device = torch.device(device)
        shape = (n_layers, batch, seq, n_kv_head, head_dim)
        self.k = _room(shape, dtype, device)
        self.v = _room(shape, dtype, device)
        self.cache_seqlens = torch.zeros(batch, dtype=torch.int32, device=device)
        self.backend = backend or select(device, dtype, head_dim)
        self.state: dict[str, Tensor] = {}
        self._length = 0

    @property
    def batch(self) -> int:
        return self.k.size(1)

    @property
    def seq(self) -> int:
        """Positions that fit."""
        return self.k.size(2)

    @property
    def length(self) -> int:
        return self._length

    def remember(self, name: str, value: Tensor) -> None:
        self.state[name] = value.clone()

    def positions(self, time: int) -> Positions:
        return slice(self._length, self._length + time)

    def prefill(self, other: KVCache) -> None:
        """Copy the prompt that `other` holds at batch 1 (or at this batch) into every row of this
        empty cache.

        Raises:
            CacheMismatchError: this cache is not empty, or `other` has other layers, heads, head
                size, batch, or more positions than fit here.
        """
        if self._length:
            raise CacheMismatchError(
                f"Cannot prefill a cache that is not empty: it holds {self._length} positions."
            )
        for name, dim in (("layers", 0), ("KV heads", 3), ("head size", 4)):
            if self.k.size(dim) != other.k.size(dim):
                raise CacheMismatchError(
                    f"Cannot prefill: {name}: {self.k.size(dim)} here, {other.k.size(dim)} there."
                )
        if other.batch not in (1, self.batch):
            raise CacheMismatchError(
                f"Cannot prefill: batch: {self.batch} here, {other.batch} there (1 would do)."
            )
        if other.length > self.seq:
            raise CacheMismatchError(
                f"Cannot prefill: {other.length} positions exceed the capacity of {self.seq}."
            )
        self.k[:, :, : other.length] = other.k[:, :, : other.length]
        self.v[:, :, : other.length] = other.v[:, :, : other.length]
        self.cache_seqlens.fill_(other.length)
        self._length = other.length
        for name, value in other.state.items():
            self.remember(name, value.expand(self.batch, *value.shape[1:]))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: Window = UNLIMITED
    ) -> Tensor:
        return flash_attn_with_kvcache(
            q,
            self.k[layer],
            self.v[layer],
            k,
            v,
            cache_seqlens=self.cache_seqlens,
            window_size=window,
            backend=self.backend,
            lengths=[self._length] * self.batch,
        )

    def spans(self) -> Spans | None:
        return Spans(None, Span(self.k, self.v, self._length))

    def advance(self, time: int) -> None:
        self._length += time
        self.cache_seqlens += time

    def keep(self, rows: list[int]) -> None:
        self.k, self.v = self._rows(self.k, rows), self._rows(self.v, rows)
        index = torch.tensor(rows, device=self.k.device)
        self.cache_seqlens = self.cache_seqlens.index_select(0, index)
        self.state = {name: value.index_select(0, index) for name, value in self.state.items()}

    def _rows(self, old: Tensor, rows: list[int]) -> Tensor:
        kept = _room((old.size(0), len(rows), *old.shape[2:]), old.dtype, old.device)
        for place, row in enumerate(rows):
            kept[:, place, : self._length] = old[:, row, : self._length]
        return kept

    def reserve(self, time: int, limit: int) -> None:
        needed = self._length + time
        if needed <= self.seq:
            return
        # Doubling: copying costs less than one further pass over the cache for each doubling of its
        # length.
        seq = max(needed, min(2 * self.seq, limit))
        for name in ("k", "v"):
            old: Tensor = getattr(self, name)
            new = _room((*old.shape[:2], seq, *old.shape[3:]), old.dtype, old.device)
            new[:, :, : self._length] = old[:, :, : self._length]
            setattr(self, name, new)

    def tail_of(self, row: int, start: int) -> RowTail:
        k, v = (x[:, row, start : self._length].clone() for x in (self.k, self.v))
        return RowTail(k, v, {name: x[row : row + 1].clone() for name, x in self.state.items()})

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on."""
        self._length = min(self._length, length)
        self.cache_seqlens.fill_(self._length)

    def append(self, tail: RowTail, length: int, limit: int) -> None:
        """Put the first `length` positions of `tail`, and its state, behind this cache of one
        row."""
        self.reserve(length, limit)
        end = self._length + length
        self.k[:, 0, self._length : end] = tail.k[:, :length]
        self.v[:, 0, self._length : end] = tail.v[:, :length]
        for name, value in tail.state.items():
            self.remember(name, value)
        self.advance(length)


class SharedPrefixCache:
    """N rows over one prompt: the prefix is held once, each row has a tail of its own.

    Steps are single tokens (decode); the prefix is only read. It is read in parts of equal length,
    so that KV heads times parts are a multiple of the threads: 3 heads alone keep two threads busy
    for two thirds of the time. What does not divide begins the tails.
    """

    def __init__(self, prefix: KVCache, batch: int) -> None:
        """`prefix` holds the prompt at batch 1."""
        if prefix.batch != 1 or prefix.length == 0:
            raise CacheMismatchError(
                "A shared prefix is one row with a prompt in it,"
                f" not {prefix.batch} rows of {prefix.length}."
            )
        n_layers, _, _, n_kv_head, head_dim = prefix.k.shape
        threads = torch.get_num_threads()
        self.parts = threads // math.gcd(threads, n_kv_head)
        left_over = prefix.length % self.parts
        self.prefix = prefix
        self._shared = prefix.length - left_over
        self.tail = KVCache(
            n_layers,
            batch,
            TAIL_BLOCK,
            n_kv_head,
            head_dim,
            dtype=prefix.k.dtype,
            device=prefix.k.device,
            backend=prefix.backend,
        )
        if left_over:
            end = prefix.tail_of(0, self._shared)
            self.tail.k[:, :, :left_over] = end.k[:, None]
            self.tail.v[:, :, :left_over] = end.v[:, None]
            self.tail.advance(left_over)
        self.tail.state = {
            name: value.expand(batch, *value.shape[1:]).clone()
            for name, value in prefix.state.items()
        }

    @property
    def batch(self) -> int:
        return self.tail.batch

    @property
    def length(self) -> int:
        return self._shared + self.tail.length

    @property
    def state(self) -> dict[str, Tensor]:
        return self.tail.state

    def remember(self, name: str, value: Tensor) -> None:
        self.tail.remember(name, value)

    def positions(self, time: int) -> Positions:
        return slice(self.length, self.length + time)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: Window = UNLIMITED
    ) -> Tensor:
        batch, time, heads, dim = q.shape
        assert time == 1, "a shared prefix is decoded one token at a time"
        at = self.tail.length
        tail_k, tail_v = self.tail.k[layer], self.tail.v[layer]
        tail_k[:, at] = k[:, 0]
        tail_v[:, at] = v[:, 0]
        kv_heads = k.size(2)
        group = heads // kv_heads
        # Row by row: the group's query heads stand on the time axis, so that K and V are read once
        # per KV head.
        own = q.view(batch, kv_heads, group, dim)
        position, left = self.length, window[0]
        first = 0 if left < 0 else max(0, position - left)
        in_tail = max(0, first - self._shared)
        out, lse = attend_with_lse(
            own,
            tail_k[:, in_tail : at + 1].transpose(1, 2),
            tail_v[:, in_tail : at + 1].transpose(1, 2),
            None,
        )
        if first < self._shared:
            # All rows at once, one pass over the prefix: (B, Hkv, G, D) -> (1, Hkv, B * G, D).
            together = own.transpose(0, 1).reshape(1, kv_heads, batch * group, dim)
            seen = self._shared - first
            parts = self.parts if seen % self.parts == 0 else 1  # a window may cut anywhere
            past_k, past_v = (
                x[layer, 0, first : self._shared].view(parts, -1, kv_heads, dim).transpose(1, 2)
                for x in (self.prefix.k, self.prefix.v)
            )
            past, past_lse = attend_with_lse(
                together.expand(parts, -1, -1, -1), past_k, past_v, None
            )
            past = past.view(parts, kv_heads, batch, group, dim).transpose(1, 2)
            past_lse = past_lse.view(parts, kv_heads, batch, group).transpose(1, 2)
            out = merge(torch.cat((past, out[None])), torch.cat((past_lse, lse[None])))
        return out.reshape(batch, 1, heads, dim)

    def spans(self) -> Spans | None:
        prefix, tail = self.prefix, self.tail
        shared = Span(prefix.k, prefix.v, self._shared)
        return Spans(shared, Span(tail.k, tail.v, tail.length))

    def advance(self, time: int) -> None:
        self.tail.advance(time)

    def keep(self, rows: list[int]) -> None:
        self.tail.keep(rows)

    def reserve(self, time: int, limit: int) -> None:
        self.tail.reserve(time, limit - self._shared)

    def tail_of(self, row: int, start: int) -> RowTail:
        return self.tail.tail_of(row, start - self._shared)
