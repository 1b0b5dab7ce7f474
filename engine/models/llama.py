"""Llama and its kin (SmolLM2, Qwen, Mistral, Gemma 3): pre-norm blocks of grouped-query attention
and a gated MLP (Touvron et al. 2023).

    x = x + out(attention(rotary(qkv(rms(x)))))
    x = x + down(act(gate(rms(x))) * up(rms(x)))

q, k and v are one product, gate and up another. What the families do differently is data in here:
norms of q and k (Qwen 3, Gemma 3), norms behind attention and MLP, a second set of rotary
frequencies and windows of attention (Gemma 3), biases inside the products (Qwen 2.5). Which family
has what is said in `engine/loading/families.py`; loaders build the weights; this file only runs
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from engine.attention import UNLIMITED, Window
from engine.flash import AttentionBackend, select
from engine.kv_cache import Cache, KVCache
from engine.models import pieces
from engine.models.base import Shape
from engine.models.layers import Linear, Rotary
from engine.native.program import LOGITS, Program, listed


@dataclass(frozen=True)
class Block:
    """One layer. What is None is not there."""

    attention_norm: Tensor
    """(n_embd,)"""
    qkv: Linear
    """n_embd -> (n_head + 2 * n_kv_head) * head_dim, in this order"""
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    """n_embd -> 2 * hidden, the gate first"""
    down: Linear
    qk_norm: Tensor | None = None
    """(n_head + n_kv_head, head_dim): weights of an RMS norm over each head of q and k"""
    attention_post_norm: Tensor | None = None
    """(n_embd,), of what attention adds"""
    mlp_post_norm: Tensor | None = None
    window: Window = UNLIMITED
    rope: int = 0
    """Which of the model's frequencies turn its heads"""

    def linears(self) -> tuple[Linear, ...]:
        return (self.qkv, self.out, self.gate_up, self.down)

    def norms(self) -> list[Tensor]:
        found = (
            self.attention_norm,
            self.mlp_norm,
            self.attention_post_norm,
            self.mlp_post_norm,
        )
        return [norm for norm in found if norm is not None]


@dataclass(frozen=True)
class Weights:
    """All that a `Llama` is made of.

    Attributes:
        embedding: (vocab_size, n_embd) in the dtype of the activations.
        frequencies: for each kind of layer, radians per position of a head's pairs, float32
            (head_dim / 2,).
        magnitudes: for each of them, what q and k are multiplied by.
        embedding_scale: what embeddings are multiplied by.
        activation: a key of `engine.models.pieces.ACTIVATIONS`.
        tied: `head` is the embedding, so that it is counted once.
    """

    shape: Shape
    embedding: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Linear
    frequencies: tuple[Tensor, ...]
    magnitudes: tuple[float, ...]
    norm_eps: float
    embedding_scale: float
    activation: str
    tied: bool


class Llama:
    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.shape = weights.shape
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.backend: AttentionBackend = select(self.device, self.dtype, self.shape.head_dim)
        self.pieces = pieces.select(self.device, self.dtype)
        self.rotaries = [
            Rotary(frequencies, magnitude)
            for frequencies, magnitude in zip(weights.frequencies, weights.magnitudes, strict=True)
        ]
        self.native, self.native_note = listed(self.device, self.shape, self.dtype, self._list_step)

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
        positions = cache.positions(time)
        tables = [rotary.table(positions) for rotary in self.rotaries]
        if self.native and (spans := self.native.takes(ids, cache)):
            logits = self.native.run(ids, spans, tables)
            cache.advance(1)
            return logits[:, None] if all_positions else logits
        weights, shape = self.weights, self.shape
        eps, width, head = weights.norm_eps, (shape.n_embd,), (shape.head_dim,)
        n_head, turned = shape.n_head, shape.n_head + shape.n_kv_head
        x = F.embedding(ids, weights.embedding)
        if weights.embedding_scale != 1:
            x = x * weights.embedding_scale
        for layer, block in enumerate(weights.blocks):
            h = F.rms_norm(x, width, block.attention_norm, eps)
            heads = block.qkv(h).view(batch, time, -1, shape.head_dim)
            qk = heads[:, :, :turned]
            if block.qk_norm is not None:
                qk = F.rms_norm(qk, head, None, eps) * block.qk_norm
            qk = self.pieces.rotate_pairs(qk, tables[block.rope])
            q, k = qk[:, :, :n_head], qk[:, :, n_head:]
            if not all_positions and layer == shape.n_layer - 1:
                # Behind the last keys and values only the last position is asked for.
                q, x = q[:, -1:], x[:, -1:]
            attended = cache.attend(layer, q, k, heads[:, :, turned:], block.window)
            h = block.out(attended.flatten(2))
            if block.attention_post_norm is not None:
                h = F.rms_norm(h, width, block.attention_post_norm, eps)
            x, h = self.pieces.add_norm(x, h, block.mlp_norm, eps)
            h = block.down(self.pieces.gated(block.gate_up(h), weights.activation))
            if block.mlp_post_norm is not None:
                h = F.rms_norm(h, width, block.mlp_post_norm, eps)
            x = x + h
        cache.advance(time)
        if not all_positions:
            x = x[:, -1]
        return weights.head(F.rms_norm(x, width, weights.norm, eps)).float()

    def _list_step(self, p: Program) -> None:
        """What `forward` computes, for one token."""
        weights, shape = self.weights, self.shape
        eps, width, head = weights.norm_eps, shape.n_embd, shape.head_dim
        turned = shape.n_head + shape.n_kv_head
        hidden = sum(matrix.out for matrix in weights.blocks[0].gate_up.matrices()) // 2
        x, h = p.register(width), p.register(width)
        qkv, attended = (
            p.register((turned + shape.n_kv_head) * head),
            p.register(shape.n_head * head),
        )
        gate_up, gated = p.register(2 * hidden), p.register(hidden)
        p.embed(x, weights.embedding, weights.embedding_scale)
        for layer, block in enumerate(weights.blocks):
            p.norm(h, x, width, block.attention_norm, eps)
            p.product(qkv, h, block.qkv.matrices())
            if block.qk_norm is not None:
                p.norm(qkv, qkv, head, block.qk_norm, eps, heads=turned)
            p.rotate_pairs(qkv, turned, block.rope)
            p.attend(attended, qkv, layer, block.window[0])
            self._add(p, x, h, attended, block.out, block.attention_post_norm)
            p.norm(h, x, width, block.mlp_norm, eps)
            p.product(gate_up, h, block.gate_up.matrices())
            p.gated(gated, gate_up, hidden, weights.activation)
            self._add(p, x, h, gated, block.down, block.mlp_post_norm)
        p.norm(h, x, width, weights.norm, eps)
        p.product(LOGITS, h, weights.head.matrices())

    def _add(
        self, p: Program, x: int, h: int, src: int, linear: Linear, post_norm: Tensor | None
    ) -> None:
        """x += linear(src), normed where there is a norm behind it."""
        if post_norm is None:
            p.product(x, src, linear.matrices(), add=True)
            return
        width = self.shape.n_embd
        p.product(h, src, linear.matrices())
        p.norm(h, h, width, post_norm, self.weights.norm_eps)
        p.mix(x, 1.0, h, 1.0, width)

    def weight_bytes(self) -> int:
        linears = [linear for block in self.weights.blocks for linear in block.linears()]
        return sum(linear.weight_bytes() for linear in [*linears, self.weights.head])

    def parameters(self) -> int:
        weights, shape = self.weights, self.shape
        linears = [linear for block in weights.blocks for linear in block.linears()]
        norms = [weights.norm, *(norm for block in weights.blocks for norm in block.norms())]
        # Each head of q, and each of k, has the one norm.
        per_head = sum(2 * shape.head_dim for b in weights.blocks if b.qk_norm is not None)
        embedding = 0 if weights.tied else weights.embedding.numel()
        counted = sum(linear.parameters() for linear in [*linears, weights.head])
        return counted + sum(norm.numel() for norm in norms) + per_head + embedding
