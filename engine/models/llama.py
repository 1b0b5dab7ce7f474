"""Llama and its kin (SmolLM2): pre-norm blocks of grouped-query attention and SwiGLU (Touvron et
al. 2023).

    x = x + out(attention(rotary(qkv(rms(x)))))
    x = x + down(silu(gate(rms(x))) * up(rms(x)))

q, k and v are one product, gate and up another. Loaders build the weights; this file only runs
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import AttentionBackend, select
from engine.kv_cache import Cache, KVCache
from engine.models.base import Shape
from engine.models.layers import Linear, Rotary


@dataclass(frozen=True)
class Block:
    attention_norm: Tensor
    """(n_embd,)"""
    qkv: Linear
    """n_embd -> (n_head + 2 * n_kv_head) * head_dim, in this order"""
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    """n_embd -> 2 * hidden, the gate first"""
    down: Linear


class Llama:
    def __init__(
        self,
        shape: Shape,
        *,
        embedding: Tensor,
        blocks: list[Block],
        norm: Tensor,
        head: Linear,
        rotary: Rotary,
        norm_eps: float,
        tied: bool,
    ) -> None:
        """`embedding` is (vocab_size, n_embd) in the dtype of the activations; `tied` says that
        `head` is the same matrix, so that it is counted once."""
        self.shape = shape
        self.device = embedding.device
        self.dtype = embedding.dtype
        self.embedding = embedding
        self.blocks = blocks
        self.norm = norm
        self.head = head
        self.rotary = rotary
        self.norm_eps = norm_eps
        self.tied = tied
        self.backend: AttentionBackend = select(self.device, self.dtype)

    def new_cache(self, batch: int, seq: int) -> KVCache:
        shape = self.shape
        return KVCache(
            shape.n_layer,
            batch,
            seq,
            shape.n_kv_head,
            shape.head_dim,
            dtype=self.dtype,
            device=self.device,
            backend=self.backend,
        )

    def forward(self, ids: Tensor, cache: Cache, *, all_positions: bool = False) -> Tensor:
        batch, time = ids.shape
        shape, eps, width = self.shape, self.norm_eps, (self.shape.n_embd,)
        turned = shape.n_head + shape.n_kv_head
        x = F.embedding(ids, self.embedding)
        table = self.rotary.table(cache.length, time)
        for layer, block in enumerate(self.blocks):
            h = F.rms_norm(x, width, block.attention_norm, eps)
            heads = block.qkv(h).view(batch, time, -1, shape.head_dim)
            qk = Rotary.apply(heads[:, :, :turned], table)
            attended = cache.attend(
                layer, qk[:, :, : shape.n_head], qk[:, :, shape.n_head :], heads[:, :, turned:]
            )
            x = x + block.out(attended.flatten(2))
            h = F.rms_norm(x, width, block.mlp_norm, eps)
            gate, up = block.gate_up(h).chunk(2, -1)
            x = x + block.down(F.silu(gate) * up)
        cache.advance(time)
        if not all_positions:
            x = x[:, -1]
        return self.head(F.rms_norm(x, width, self.norm, eps)).float()

    def weight_bytes(self) -> int:
        linears = [w for b in self.blocks for w in (b.qkv, b.out, b.gate_up, b.down)]
        return sum(linear.weight_bytes() for linear in [*linears, self.head])

    def parameters(self) -> int:
        linears = [w for b in self.blocks for w in (b.qkv, b.out, b.gate_up, b.down)]
        norms = self.norm.numel() * (2 * len(self.blocks) + 1)
        embedding = 0 if self.tied else self.embedding.numel()
        return norms + embedding + sum(w.parameters() for w in [*linears, self.head])


def inverse_frequencies(head_dim: int, base: float, device: torch.device) -> Tensor:
    """Radians per position of each pair, base^(-2i / D) (Su et al. 2021), float32 (head_dim /
    2,)."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device)
    return 1.0 / base ** (steps / head_dim)
