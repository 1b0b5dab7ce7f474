"""The Llama families as data, and the sizes of one model of them out of its metadata.

    architecture = from_config(config, path)            # a config.json
    architecture = from_gguf(file.metadata)             # a GGUF file
    architecture.family.name, architecture.n_layer      # "qwen3", 28

A `Family` is a row of the table `FAMILIES`; `Architecture` is everything about one model that is
not a tensor. What a model asks for and this engine does not do is refused by name, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


_QKV = frozenset({"attn_q", "attn_k", "attn_v"})

FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", pairs_in_gguf=True),
    Family(
        "mistral",
        "mistral",
        pairs_in_gguf=True,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    Family("qwen2", "qwen2", biases=_QKV, defaults={"num_key_value_heads": 32}),
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

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
"""Names in config.json."""

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
            raise _unsupported(metadata.source, f"{name}.{key}", "a cap on logits")
    for key, expected in (("rope.dimension_count", head_dim), ("attention.value_length", head_dim)):
        if integer(key, expected) != expected:
            raise _unsupported(metadata.source, f"{name}.{key}", f"{integer(key)} of {head_dim}")
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
    window = integer("attention.sliding_window", 0)
    every = family.window_every
    if f"{name}.attention.sliding_window_pattern" in metadata:
        every = integer("attention.sliding_window_pattern")
    # llama.cpp knows of Gemma's largest model by its layers that its queries are scaled otherwise.
    query_scale = 1.0
    if family.name == "gemma3" and n_layer == 62:
        query_scale = math.sqrt(head_dim * n_head / n_embd)
        assumptions.append("Queries are scaled by the width per head, as in Gemma 3 27B.")
    return _checked(
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
        local=_every(n_layer, every) if window else None,
        rope=rope,
        local_rope=Rope(number("rope.freq_base_swa", family.local_rope_base))
        if family.local_rope_base is not None
        else rope,
        activation=family.activation,
        query_scale=query_scale,
        biases=family.biases,
        assumptions=assumptions,
    )


def from_config(config: Mapping[str, Any], source: str | Path) -> Architecture:
    """The architecture that a config.json describes.

    Raises:
        ModelFileError: as `from_gguf`.
    """
    text = config.get("text_config")
    assumptions = []
    if isinstance(text, Mapping) and config.get("model_type") == "gemma3":
        config = {"model_type": "gemma3_text", **text}
        assumptions.append("Only the text part is loaded; images are not understood.")
    values = Metadata(dict(config), source)
    model_type = values.text("model_type")
    family = next((family for family in FAMILIES if family.model_type == model_type), None)
    if family is None:
        raise ModelFileError(
            f"{source}: model type {model_type!r:.40} is not supported; supported are"
            f" {', '.join(family.model_type for family in FAMILIES)} and nanochat."
        )
    # An explicit null stands for "none", so it hides the default too.
    said = {**family.defaults, **config}
    values = Metadata({key: value for key, value in said.items() if value is not None}, source)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if values.get(key):
            raise _unsupported(source, key, values[key])
    if values.get("use_bidirectional_attention"):
        raise _unsupported(source, "use_bidirectional_attention", True)
    if values.get("quantization_config"):
        raise _unsupported(source, "quantization_config", "weights packed by another program")
    activation = values.text("hidden_activation", values.text("hidden_act", family.activation))
    if activation not in _ACTIVATIONS:
        raise _unsupported(source, "hidden_act", activation)
    n_layer, n_head = values.integer("num_hidden_layers"), values.integer("num_attention_heads")
    n_embd = values.integer("hidden_size")
    head_dim = values.integer("head_dim", n_embd // max(n_head, 1))
    context = values.integer("max_position_embeddings", 2048)
    ropes = _ropes_of_config(values, family, context, source)
    window, local = _windows_of_config(values, family, n_layer)
    biases = set(family.biases)
    if values.get("attention_bias"):
        biases |= {*_QKV, "attn_output"}
    if values.get("mlp_bias"):
        biases |= {"ffn_gate", "ffn_up", "ffn_down"}
    scalar = values.number("query_pre_attn_scalar", float(head_dim))
    return _checked(
        source,
        family,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=values.integer("num_key_value_heads", n_head),
        head_dim=head_dim,
        n_embd=n_embd,
        n_hidden=values.integer("intermediate_size"),
        context=context,
        norm_eps=values.number("rms_norm_eps", 1e-6),
        window=window,
        local=local,
        rope=ropes[0],
        local_rope=ropes[1],
        activation=_ACTIVATIONS[activation],
        query_scale=math.sqrt(head_dim / scalar) if scalar > 0 and head_dim > 0 else 0.0,
        biases=frozenset(biases),
        tied=values.flag("tie_word_embeddings", False),
        assumptions=assumptions,
    )


def _ropes_of_config(
    values: Metadata, family: Family, context: int, source: str | Path
) -> tuple[Rope, Rope]:
    """The frequencies of layers that see everything, and of those with a window."""
    parameters: Any = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise _unsupported(source, "rope_scaling", parameters)
    base = values.number("rope_theta", family.rope_base)
    nested = "full_attention" in parameters or "sliding_attention" in parameters
    whole = (parameters.get("full_attention") or {}) if nested else parameters
    rope = _rope_of(Metadata(dict(whole), source), base, context)
    if family.local_rope_base is None:
        return rope, rope
    local_base = values.number("rope_local_base_freq", family.local_rope_base)
    local = (parameters.get("sliding_attention") or {}) if nested else {}
    return rope, _rope_of(Metadata(dict(local), source), local_base, context)


def _rope_of(values: Metadata, base: float, context: int) -> Rope:
    kind = values.get("rope_type") or values.get("type") or "default"
    if values.number("partial_rotary_factor", 1.0) != 1.0:
        raise _unsupported(values.source, "partial_rotary_factor", values["partial_rotary_factor"])
    base = values.number("rope_theta", base)
    if kind == "default":
        return Rope(base)
    if kind not in SCALINGS:
        raise _unsupported(values.source, "rope_type", kind)
    if values.get("mscale") or values.get("mscale_all_dim"):
        raise _unsupported(values.source, "mscale", values.get("mscale"))
    low, high = ("low_freq_factor", "high_freq_factor")
    defaults = (1.0, 4.0)
    if kind == "yarn":
        low, high, defaults = "beta_slow", "beta_fast", (1.0, 32.0)
    attention_factor = values.get("attention_factor")
    return Rope(
        base,
        scaling=str(kind),
        factor=values.number("factor"),
        original_context=values.integer("original_max_position_embeddings", context),
        low=values.number(low, defaults[0]),
        high=values.number(high, defaults[1]),
        attention_factor=None if attention_factor is None else values.number("attention_factor"),
    )


def _windows_of_config(
    values: Metadata, family: Family, n_layer: int
) -> tuple[int, tuple[bool, ...] | None]:
    """The window's size, and which layers have it; None: none has."""
    window = values.get("sliding_window") or 0
    if not isinstance(window, int) or isinstance(window, bool):
        raise _unsupported(values.source, "sliding_window", window)
    if family.name in ("qwen2", "qwen3") and not values.flag("use_sliding_window", False):
        window = 0
    if family.name == "llama" or window < 1:
        return 0, None
    kinds = values.get("layer_types")
    if kinds is not None:
        known = {"full_attention", "sliding_attention"}
        if not isinstance(kinds, list) or len(kinds) != n_layer or not known >= set(kinds):
            raise _unsupported(values.source, "layer_types", kinds)
        return window, tuple(kind == "sliding_attention" for kind in kinds)
    if family.window_every:
        return window, _every(
            n_layer, values.integer("sliding_window_pattern", family.window_every)
        )
    if family.name in ("qwen2", "qwen3"):
        first = values.integer("max_window_layers", 28)
        return window, tuple(layer >= first for layer in range(_small(n_layer)))
    return window, _every(n_layer, 0)


def _small(n_layer: int) -> int:
    """Layers are counted through before they are checked."""
    return n_layer if 0 <= n_layer <= 4096 else 0


def _every(n_layer: int, every: int) -> tuple[bool, ...]:
    """Which layers have a window: all but every `every`th; all where that is 0."""
    return tuple(every < 1 or (layer + 1) % every > 0 for layer in range(_small(n_layer)))


def _checked(
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
            raise _unsupported(source, "rope.scaling.type", kind.scaling)
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


def _unsupported(source: str | Path, key: str, value: object) -> ModelFileError:
    return ModelFileError(f"{source}: {key} {value!r:.60} is not supported.")
