"""Models of random weights, of any size and without a file: the speed of a dense network does not
depend on what its weights are, nor does it whether two ways to run it agree.

    loaded = as_loaded(random_llama(shape, device, dtype))
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention import UNLIMITED
from engine.byte_level import SPLITTERS, BytePairTokenizer
from engine.chat_format import PlainFormat
from engine.load import LoadedModel, assembled
from engine.models.base import Model, Shape
from engine.models.layers import DenseLinear
from engine.models.llama import Block, Llama, Weights
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS, Config, tensor_shapes
from engine.models.rope import Rope
from engine.tokenizer import Tokenizer
from engine.tools import NoTools, ToolDialect


class _Noise:
    """Values of a size that keeps activations near 1, made where they are used."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._source = torch.Generator(device).manual_seed(1)

    def __call__(self, *shape: int) -> Tensor:
        values = torch.randn(shape, generator=self._source, device=self.device, dtype=self.dtype)
        return values.mul_(shape[-1] ** -0.5)


def random_tensors(
    config: Config, device: torch.device, dtype: torch.dtype, variant: str = "V0"
) -> dict[str, Tensor]:
    """The parameters of a nanochat."""
    noise = _Noise(device, dtype)
    tensors = {
        name: noise(*shape) for name, shape in tensor_shapes(config, VARIANTS[variant]).items()
    }
    if "resid_lambdas" in tensors:
        tensors["resid_lambdas"] += 1
    return tensors


def random_nanochat(
    config: Config, device: torch.device, dtype: torch.dtype, variant: str = "V0"
) -> NanochatModel:
    tensors = random_tensors(config, device, dtype, variant)
    return NanochatModel(config, VARIANTS[variant], tensors, device=device, dtype=dtype)


def random_llama(shape: Shape, device: torch.device, dtype: torch.dtype, window: int) -> Llama:
    """With norms of q and k, and a window of attention in every second layer."""
    noise = _Noise(device, dtype)
    width, dim = shape.n_embd, shape.head_dim
    heads = shape.n_head + 2 * shape.n_kv_head

    def norm(*sizes: int) -> Tensor:
        return noise(*sizes) + 1

    blocks = tuple(
        Block(
            attention_norm=norm(width),
            qkv=DenseLinear(noise(heads * dim, width)),
            out=DenseLinear(noise(width, shape.n_head * dim)),
            mlp_norm=norm(width),
            gate_up=DenseLinear(noise(4 * width, width)),
            down=DenseLinear(noise(width, 2 * width)),
            qk_norm=norm(shape.n_head + shape.n_kv_head, dim),
            window=(window, 0) if layer % 2 else UNLIMITED,
        )
        for layer in range(shape.n_layer)
    )
    return Llama(
        Weights(
            shape=shape,
            embedding=noise(shape.vocab_size, width) * width**0.5,
            blocks=blocks,
            norm=norm(width),
            head=DenseLinear(noise(shape.vocab_size, width) * 3),
            frequencies=(Rope(1e4).frequencies(dim).to(device),),
            magnitudes=(1.0,),
            norm_eps=1e-5,
            embedding_scale=1.0,
            activation="silu",
            tied=False,
        )
    )


def pair_vocabulary(size: int) -> Tokenizer:
    """A vocabulary of `size` ids: the single bytes, then pairs of them. Ordinary BPE, so that what
    the engine does with tokens costs what it always costs."""
    single = [bytes([byte]) for byte in range(256)]
    pairs = (a + b for a in single for b in single)
    tokens = [*single, *(next(pairs) for _ in range(size - 256))]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    return BytePairTokenizer(tokens, ranks, {}, SPLITTERS["gpt-2"])


def as_loaded(
    model: Model,
    name: str,
    *,
    family: str,
    variant: str = "",
    stops: tuple[int, ...] = (),
    tools: ToolDialect | None = None,
) -> LoadedModel:
    """A model as the engine takes it, with a vocabulary and no turns."""
    tokenizer = pair_vocabulary(model.shape.vocab_size)
    return assembled(
        name,
        "",
        model,
        tokenizer,
        PlainFormat(tokenizer, stop_tokens=stops),
        tools or NoTools(),
        family=family,
        weight_types=str(model.dtype).removeprefix("torch."),
        variant=variant,
    )
