"""What every network of the engine looks like from outside: token ids in, logits out, the past in a
cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from engine.kv_cache import Cache, KVCache
from engine.models.pieces import Pieces
from engine.native import prompt

if TYPE_CHECKING:
    from engine.native.program import Program


@dataclass(frozen=True)
class Shape:
    """The sizes that the engine and the caches need to know of a network."""

    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_embd: int
    vocab_size: int
    context: int

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of K and V that one position takes in all layers."""
        return 2 * self.n_layer * self.n_kv_head * self.head_dim * dtype.itemsize


class Model(Protocol):
    """A decoder. It holds no state of a conversation: all of that is in the cache."""

    shape: Shape
    device: torch.device
    dtype: torch.dtype
    """Of activations and of the KV cache."""
    pieces: Pieces
    native: Program | None
    """A decode step of its own on a CPU."""
    native_note: str
    """Why there is none there."""

    def new_cache(self, batch: int, seq: int) -> KVCache:
        """An empty cache with room for `seq` positions of `batch` rows."""
        ...

    def forward(self, ids: Tensor, cache: Cache, *, all_positions: bool = False) -> Tensor:
        """Run `ids` (B, T) behind what `cache` holds and append them to it.

        Returns float32 logits, (B, vocab_size) of the last position, or (B, T, vocab_size) of all.
        """
        ...

    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        ...

    def parameters(self) -> int: ...


def running(model: Model) -> tuple[str, str]:
    """What attends to the past, and why nothing faster does: what `ModelInfo` calls its backend and
    the note on it."""
    backend = model.new_cache(1, 1).backend
    notes = [backend.note, model.pieces.note, model.native_note]
    if not model.native:
        return backend.name, "; ".join(filter(None, notes))
    if not prompt.usable(model.dtype, model.shape.head_dim):
        notes = [f"prompts by {backend.name}", *notes]
    return "native", "; ".join(filter(None, notes))
