"""The Llama families as data, and the sizes of one model of them out of its metadata.

    architecture = from_gguf(file.metadata)             # of a GGUF file
    architecture.family.name, architecture.n_layer      # "qwen3", 28

A `Family` is a row of the table `FAMILIES`; `Architecture` is everything about one model that is
not a tensor; `engine/loading/config_json.py` reads it out of a config.json. What a model asks for
and this engine does not do is refused by name, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.attention import UNLIMITED, Window
from engine.errors import ModelFileError
from engine.loading.gguf import Metadata
from engine.models.rope import SCALINGS, Rope


@dataclass(frozen=True)
class Family:
    """What distinguishes a family.

    Attributes:
        name: for people, and the `general.architecture` of its GGUF files.
        model_type: in config.json.
        pairs_in_gguf: GGUF files hold q and k with adjacent rotary pairs already (llama.cpp's
            converter reorders them for this family only).
        biases: products that always have one.
        qk_norm: an RMS norm over each head of q and k.
        post_norms: norms behind attention and MLP, too.
        norm_offset: what is added to the norms' weights of a checkpoint; GGUF files have it in
            them.
        activation: of the gate.
        scaled_embedding: embeddings are multiplied by the root of their width.
        rope_base: where the metadata does not say.
        local_rope_base: of layers with a window; None is `rope_base`.
        window_every: every so manieth layer sees everything, the others a window; 0: all have it.
        defaults: what a config.json of the family may leave out.
    """

    name: str
    model_type: str
    pairs_in_gguf: bool = False
    biases: frozenset[str] = frozenset()
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    activation: str = "silu"
    scaled_embedding: bool = False
    rope_base: float = 10000.0
    local_rope_base: float | None = None
    window_every: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)


QKV = frozenset({"attn_q", "attn_k", "attn_v"})

FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", pairs_in_gguf=True),
    Family(
        "mistral",
        "mistral",
        pairs_in_gguf=True,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    Family("qwen2", "qwen2", biases=QKV, defaults={"num_key_value_heads": 32}),
    Family("qwen3", "qwen3", qk_norm=True, defaults={"num_key_value_heads": 32, "head_dim": 128}),
    Family(
        "gemma3",
        "gemma3_text",
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        activation="gelu_tanh",
        scaled_embedding=True,
        rope_base=1e6,
        local_rope_base=1e4,
        window_every=6,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
)

_LARGEST = 1 << 24
"""Of any one size: beyond it metadata is broken, and nothing is computed from it."""


@dataclass(frozen=True)
class Architecture:
    """One model's sizes and constants.

    Attributes:
        windows, ropes: of each layer; `ropes` are indices into `rope_kinds`.
        query_scale: q is multiplied by it beyond the usual head_dim ** -0.5.
        biases: products that have one.
        tied: the head is the embedding; None: it is where there is no tensor for it.
        assumptions: what was taken for granted, a sentence each.
    """

    family: Family
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_embd: int
    n_hidden: int
    context: int
    norm_eps: float
    windows: tuple[Window, ...]
    ropes: tuple[int, ...]
    rope_kinds: tuple[Rope, ...]
    activation: str
    query_scale: float = 1.0
    biases: frozenset[str] = frozenset()
    tied: bool | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def embedding_scale(self) -> float:
        return math.sqrt(self.n_embd) if self.family.scaled_embedding else 1.0


def from_gguf(metadata: Metadata) -> Architecture:
    """The architecture of a GGUF file.

    Raises:
        ModelFileError: another family, sizes that are missing or impossible, or a kind of rotary
            scaling that is not supported.
    """
    name = metadata.text("general.architecture")
    family = next((family for family in FAMILIES if family.name == name), None)
    if family is None:
        raise ModelFileError(
            f"{metadata.source}: architecture {name!r:.40} is not supported; supported are"
            f" {', '.join(family.name for family in FAMILIES)} and nanochat."
        )

    def integer(key: str, default: int | None = None) -> int:
        return metadata.integer(f"{name}.{key}", default)

    def number(key: str, default: float | None = None) -> float:
        return metadata.number(f"{name}.{key}", default)

    n_layer, n_head = integer("block_count"), integer("attention.head_count")
    n_embd = integer("embedding_length")
    head_dim = integer("attention.key_length", n_embd // max(n_head, 1))
    assumptions = []
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if number(key, 0.0):
            raise unsupported(metadata.source, f"{name}.{key}", "a cap on logits")
    for key, expected in (("rope.dimension_count", head_dim), ("attention.value_length", head_dim)):
        if integer(key, expected) != expected:
            raise unsupported(metadata.source, f"{name}.{key}", f"{integer(key)} of {head_dim}")
    kind = metadata.text(f"{name}.rope.scaling.type", "none")
    factor = number("rope.scaling.factor", 1.0)
    rope = Rope(
        number("rope.freq_base", family.rope_base),
        scaling={"none": "default", "": "default"}.get(kind, kind),
        factor=factor,
        original_context=integer("rope.scaling.original_context_length", integer("context_length")),
        low=number("rope.scaling.yarn_beta_slow", 1.0),
        high=number("rope.scaling.yarn_beta_fast", 32.0),
    )
    factor_key = "rope.scaling.yarn_attn_factor"
    if f"{name}.{factor_key}" in metadata:
        rope = replace(rope, attention_factor=rope.magnitude * number(factor_key))
    window = integer("attention.sliding_window", 0)
    key = f"{name}.attention.sliding_window_pattern"
    if isinstance(metadata.get(key), list):
        flags = metadata[key]
        assert isinstance(flags, list)
        if len(flags) != n_layer or not all(isinstance(flag, bool) for flag in flags):
            raise unsupported(metadata.source, key, flags)
        local = tuple(flag is True for flag in flags)
    else:
        local = every_nth_sees_all(n_layer, metadata.integer(key, family.window_every))
    # llama.cpp knows of Gemma's largest model by its layers that its queries are scaled otherwise.
    query_scale = 1.0
    if family.name == "gemma3" and n_layer == 62:
        query_scale = math.sqrt(head_dim * n_head / n_embd)
        assumptions.append("Queries are scaled by the width per head, as in Gemma 3 27B.")
    return checked(
        metadata.source,
        family,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=integer("attention.head_count_kv", n_head),
        head_dim=head_dim,
        n_embd=n_embd,
        n_hidden=integer("feed_forward_length"),
        context=integer("context_length"),
        norm_eps=number("attention.layer_norm_rms_epsilon", 1e-5),
        window=window,
        local=local if window else None,
        rope=rope,
        local_rope=Rope(number("rope.freq_base_swa", family.local_rope_base))
        if family.local_rope_base is not None
        else rope,
        activation=family.activation,
        query_scale=query_scale,
        biases=family.biases,
        assumptions=assumptions,
    )


def countable(n_layer: int) -> int:
    """Layers are counted through before they are checked."""
    return n_layer if 0 <= n_layer <= 4096 else 0


def every_nth_sees_all(n_layer: int, every: int) -> tuple[bool, ...]:
    """Which layers have a window: all but every `every`th; all where that is 0."""
    return tuple(every < 1 or (layer + 1) % every > 0 for layer in range(countable(n_layer)))


def checked(
    source: str | Path,
    family: Family,
    *,
    n_layer: int,
    n_head: int,
    n_kv_head: int,
    head_dim: int,
    n_embd: int,
    n_hidden: int,
    context: int,
    norm_eps: float,
    window: int,
    local: tuple[bool, ...] | None,
    rope: Rope,
    local_rope: Rope,
    activation: str,
    query_scale: float,
    biases: frozenset[str],
    tied: bool | None = None,
    assumptions: Sequence[str] = (),
) -> Architecture:
    sizes = {
        "layers": n_layer,
        "heads": n_head,
        "KV heads": n_kv_head,
        "head size": head_dim,
        "width": n_embd,
        "hidden width": n_hidden,
        "context": context,
    }
    for name, size in sizes.items():
        limit = 4096 if name in ("layers", "head size") else _LARGEST
        if type(size) is not int or not 1 <= size <= limit:
            raise ModelFileError(f"{source}: impossible size: {size!r:.30} {name}.")
    if n_head % n_kv_head or head_dim % 2:
        raise ModelFileError(
            f"{source}: impossible sizes: {n_head} heads of {head_dim}, {n_kv_head} KV heads."
        )
    for kind in (rope, local_rope):
        numbers = (kind.base, kind.factor, kind.low, kind.high, kind.magnitude, norm_eps)
        if kind.scaling not in SCALINGS:
            raise unsupported(source, "rope.scaling.type", kind.scaling)
        stretched = kind.scaling in ("llama3", "yarn")
        if not all(0 < number < 1e30 for number in (*numbers, query_scale)) or (
            stretched and (kind.high <= kind.low or kind.original_context < 1 or kind.base == 1)
        ):
            raise ModelFileError(f"{source}: its rotary frequencies or norms make no sense.")
    local = local or (False,) * n_layer
    kinds = (rope,) if local_rope == rope else (rope, local_rope)
    return Architecture(
        family=family,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=n_kv_head,
        head_dim=head_dim,
        n_embd=n_embd,
        n_hidden=n_hidden,
        context=context,
        norm_eps=norm_eps,
        # transformers' window counts the token itself, flash-attention's those to its left.
        windows=tuple((window - 1, 0) if is_local else UNLIMITED for is_local in local),
        ropes=tuple(int(is_local and len(kinds) > 1) for is_local in local),
        rope_kinds=kinds,
        activation=activation,
        query_scale=query_scale,
        biases=biases,
        tied=tied,
        assumptions=tuple(assumptions),
    )


def unsupported(source: str | Path, key: str, value: object) -> ModelFileError:
    return ModelFileError(f"{source}: {key} {value!r:.60} is not supported.")
