"""The sizes and constants of a model in its config.json: read as `transformers` writes it, of this
version or older ones, and written so that all of them, and the servers built on it, read it.

    architecture = from_config(read_json(path), path)
    config = to_config(architecture, ...)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.attention import UNLIMITED
from engine.errors import ModelFileError
from engine.loading.families import (
    FAMILIES,
    QKV,
    Architecture,
    Family,
    checked,
    countable,
    every_nth_sees_all,
    unsupported,
)
from engine.loading.gguf import Metadata
from engine.models.rope import SCALINGS, Rope

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
"""Names in config.json."""

_BIASES = {
    "attention_bias": QKV | {"attn_output"},
    "mlp_bias": frozenset({"ffn_gate", "ffn_up", "ffn_down"}),
}
"""Keys of a llama's config.json, and the products that then have a bias."""


def from_config(config: Mapping[str, Any], source: str | Path) -> Architecture:
    """The architecture that a config.json describes.

    Raises:
        ModelFileError: another family, sizes that are missing or impossible, or something that is
            not supported.
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
            raise unsupported(source, key, values[key])
    if values.get("use_bidirectional_attention"):
        raise unsupported(source, "use_bidirectional_attention", True)
    if values.get("quantization_config"):
        raise unsupported(source, "quantization_config", "weights packed by another program")
    activation = values.text("hidden_activation", values.text("hidden_act", family.activation))
    if activation not in _ACTIVATIONS:
        raise unsupported(source, "hidden_act", activation)
    n_layer, n_head = values.integer("num_hidden_layers"), values.integer("num_attention_heads")
    n_embd = values.integer("hidden_size")
    head_dim = values.integer("head_dim", n_embd // max(n_head, 1))
    context = values.integer("max_position_embeddings", 2048)
    ropes = _ropes_of_config(values, family, context, source)
    window, local = _windows_of_config(values, family, n_layer)
    biases = family.biases.union(*(own for key, own in _BIASES.items() if values.get(key)))
    scalar = values.number("query_pre_attn_scalar", float(head_dim))
    return checked(
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
        biases=biases,
        tied=values.flag("tie_word_embeddings", False),
        assumptions=assumptions,
    )


def _ropes_of_config(
    values: Metadata, family: Family, context: int, source: str | Path
) -> tuple[Rope, Rope]:
    """The frequencies of layers that see everything, and of those with a window."""
    parameters: Any = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise unsupported(source, "rope_scaling", parameters)
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
        raise unsupported(values.source, "partial_rotary_factor", values["partial_rotary_factor"])
    base = values.number("rope_theta", base)
    if kind == "default":
        return Rope(base)
    if kind not in SCALINGS:
        raise unsupported(values.source, "rope_type", kind)
    if values.get("mscale") or values.get("mscale_all_dim"):
        raise unsupported(values.source, "mscale", values.get("mscale"))
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
        raise unsupported(values.source, "sliding_window", window)
    if family.name in ("qwen2", "qwen3") and not values.flag("use_sliding_window", False):
        window = 0
    if family.name == "llama" or window < 1:
        return 0, None
    kinds = values.get("layer_types")
    if kinds is not None:
        known = {"full_attention", "sliding_attention"}
        if not isinstance(kinds, list) or len(kinds) != n_layer or not known >= set(kinds):
            raise unsupported(values.source, "layer_types", kinds)
        return window, tuple(kind == "sliding_attention" for kind in kinds)
    if family.window_every:
        return window, every_nth_sees_all(
            n_layer, values.integer("sliding_window_pattern", family.window_every)
        )
    if family.name in ("qwen2", "qwen3"):
        first = values.integer("max_window_layers", 28)
        return window, tuple(layer >= first for layer in range(countable(n_layer)))
    return window, every_nth_sees_all(n_layer, 0)


_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
"""By the type of model, the class of `transformers` that runs it."""


def to_config(
    a: Architecture, *, vocab_size: int, tied: bool, biases: frozenset[str], dtype: str
) -> dict[str, Any]:
    """What `from_config` makes `a` of.

    Args:
        vocab_size: rows of the embedding.
        biases: the products that have one.
        dtype: of the weights, as torch calls it.

    Raises:
        ModelFileError: a config.json of the family cannot say it.
    """
    family, gate = a.family, "hidden_activation" if a.family.name == "gemma3" else "hidden_act"
    config: dict[str, Any] = {
        "architectures": [_CLASSES[family.model_type]],
        "model_type": family.model_type,
        "torch_dtype": dtype,
        "vocab_size": vocab_size,
        "hidden_size": a.n_embd,
        "intermediate_size": a.n_hidden,
        "num_hidden_layers": a.n_layer,
        "num_attention_heads": a.n_head,
        "num_key_value_heads": a.n_kv_head,
        "head_dim": a.head_dim,
        "max_position_embeddings": a.context,
        "rms_norm_eps": a.norm_eps,
        gate: "gelu_pytorch_tanh" if a.activation == "gelu_tanh" else a.activation,
        "tie_word_embeddings": tied,
        **_rope_config(a),
        **_window_config(a),
    }
    if family.name == "gemma3":
        config["query_pre_attn_scalar"] = round(a.head_dim / a.query_scale**2)
    if biases != family.biases:
        said = {key: products & biases for key, products in _BIASES.items()}
        if family.name != "llama" or any(said[key] not in (set(), _BIASES[key]) for key in said):
            listed = ", ".join(sorted(biases)) or "none"
            raise ModelFileError(f"a {family.name} with these biases is not supported: {listed}.")
        config |= {key: bool(products) for key, products in said.items()}
    return config


def _rope_config(a: Architecture) -> dict[str, Any]:
    """In the form before `rope_parameters`, which newer versions read as well."""
    rope, *local = a.rope_kinds
    config: dict[str, Any] = {"rope_theta": rope.base, "rope_scaling": None}
    if local:
        config["rope_local_base_freq"] = local[0].base
    if rope.scaling == "default":
        return config
    scaling: dict[str, Any] = {"rope_type": rope.scaling, "factor": rope.factor}
    if rope.scaling in ("llama3", "yarn"):
        low, high = ("low_freq_factor", "high_freq_factor")
        if rope.scaling == "yarn":
            low, high = "beta_slow", "beta_fast"
        scaling |= {
            "original_max_position_embeddings": rope.original_context,
            low: rope.low,
            high: rope.high,
        }
    if rope.attention_factor is not None:
        scaling["attention_factor"] = rope.attention_factor
    return {**config, "rope_scaling": scaling}


def _window_config(a: Architecture) -> dict[str, Any]:
    """The windows, which `transformers` counts with the token itself in them."""
    local = [window != UNLIMITED for window in a.windows]
    if not any(local):
        return {"sliding_window": None} if a.family.name == "mistral" else {}
    window = 1 + next(left for left, _ in a.windows if left >= 0)
    if a.family.name == "llama":
        raise ModelFileError("a llama with a sliding window is not supported.")
    if a.family.name == "mistral":
        return {"sliding_window": window}
    kinds = ["sliding_attention" if is_local else "full_attention" for is_local in local]
    config: dict[str, Any] = {"sliding_window": window, "layer_types": kinds}
    if a.family.name != "gemma3":
        config |= {"use_sliding_window": True, "max_window_layers": 0}
    return config
