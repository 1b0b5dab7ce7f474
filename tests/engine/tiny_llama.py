"""A Llama of noise, made of its weights without a file: grouped heads, a window in every second
layer, norms of q and k."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention import UNLIMITED
from engine.models.base import Shape
from engine.models.layers import DenseLinear
from engine.models.llama import Block, Llama, Weights
from engine.models.rope import Rope

SHAPE = Shape(n_layer=4, n_head=4, n_kv_head=2, head_dim=16, n_embd=64, vocab_size=384, context=400)


def tiny_llama(shape: Shape = SHAPE, window: int = 20) -> Llama:
    random = torch.Generator().manual_seed(0)

    def noise(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=random) * sizes[-1] ** -0.5

    def linear(outputs: int, inputs: int) -> DenseLinear:
        return DenseLinear(noise(outputs, inputs))

    width, hidden, dim = shape.n_embd, 96, shape.head_dim
    heads = shape.n_head + 2 * shape.n_kv_head
    blocks = tuple(
        Block(
            attention_norm=1 + noise(width),
            qkv=linear(heads * dim, width),
            out=linear(width, shape.n_head * dim),
            mlp_norm=1 + noise(width),
            gate_up=linear(2 * hidden, width),
            down=linear(width, hidden),
            qk_norm=1 + noise(shape.n_head + shape.n_kv_head, dim),
            window=(window, 0) if layer % 2 else UNLIMITED,
        )
        for layer in range(shape.n_layer)
    )
    return Llama(
        Weights(
            shape=shape,
            embedding=noise(shape.vocab_size, width) * width**0.5,
            blocks=blocks,
            norm=1 + noise(width),
            head=DenseLinear(noise(shape.vocab_size, width) * 3),
            frequencies=(Rope(1e4).frequencies(dim),),
            magnitudes=(1.0,),
            norm_eps=1e-5,
            embedding_scale=1.0,
            activation="silu",
            tied=False,
        )
    )
