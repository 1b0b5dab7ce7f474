"""Loads nanochat as the Hugging Face port stores it (`NanoChatForCausalLM`): config.json and
safetensors. The port knows nanochat's first form only, V0.

    checkpoint = load_port(folder, config, device="cpu", dtype=None, assume={})
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.errors import ModelFileError
from engine.loading.gguf import Metadata
from engine.loading.nanochat import NanochatCheckpoint, check
from engine.loading.nanochat_identity import identify
from engine.loading.safetensors import DTYPES, SafeTensor, read_sharded
from engine.memory import require_memory
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS

_WHOLE = {
    "model.embed_tokens.weight": "transformer.wte.weight",
    "lm_head.weight": "lm_head.weight",
}
_BLOCK = {
    "self_attn.q_proj": "attn.c_q",
    "self_attn.k_proj": "attn.c_k",
    "self_attn.v_proj": "attn.c_v",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}


def load_port(
    folder: Path,
    config: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype | None,
    assume: Mapping[str, object],
) -> NanochatCheckpoint:
    """Load the folder whose config.json is `config`; `dtype` is bfloat16 when None.

    Raises:
        ModelFileError: a file is missing or broken, or is not what the port writes.
        EngineError: `assume` makes no sense, or it does not fit into memory.
    """
    where = str(folder)
    values = Metadata({k: v for k, v in config.items() if v is not None}, folder / "config.json")
    heads = values.integer("num_attention_heads")
    meta = {
        "model_config": {
            "sequence_len": values.integer("max_position_embeddings"),
            "vocab_size": values.integer("vocab_size"),
            "n_layer": values.integer("num_hidden_layers"),
            "n_head": heads,
            "n_kv_head": values.integer("num_key_value_heads", heads),
            "n_embd": values.integer("hidden_size"),
        }
    }
    if values.text("hidden_act", "relu2") != "relu2" or values.flag("attention_bias", False):
        raise ModelFileError(f"{where}: its config.json is not that of a nanochat.")
    stored = {_our_name(name, where): tensor for name, tensor in read_sharded(folder).items()}
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    identity = identify(shapes, meta, {"variant": "V0", **assume}, where=where)
    rope: Any = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rope, Mapping) or rope.get("rope_type", "default") != "default":
        raise ModelFileError(f"{where}: its rotary scaling is not supported.")
    plain = VARIANTS["V0"]
    rope = Metadata(dict(rope), values.source)
    said = {
        "softcap": values.number("final_logit_softcapping", plain.softcap),
        "rotary_base": rope.number("rope_theta", values.number("rope_theta", plain.rotary_base)),
    }
    variant = replace(
        identity.variant, **{name: value for name, value in said.items() if name not in assume}
    )
    identity = replace(identity, variant=variant)
    kind = dtype or torch.bfloat16
    needed = sum(math.prod(shape) for shape in shapes.values()) * kind.itemsize
    require_memory(where, needed, device)
    tensors = {name: _read(tensor, kind) for name, tensor in stored.items()}
    check(tensors, identity, where=where)
    return NanochatCheckpoint(
        model=NanochatModel(identity.config, variant, tensors, device=device, dtype=kind),
        variant=variant.name,
        assumptions=tuple(note for note in identity.assumptions if "variant V0" not in note),
        reason="the Hugging Face port knows no other",
        source=None,
        meta=meta,
        path=folder,
        tokenizer_path=folder / "tokenizer.json",
    )


def _our_name(name: str, where: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    _, _, rest = name.partition("model.layers.")
    layer, _, part = rest.partition(".")
    stem, _, kind = part.rpartition(".")
    if kind != "weight" or stem not in _BLOCK or not layer.isdecimal():
        raise ModelFileError(f"{where}: {name[:80]!r} is no tensor that a nanochat of V0 has.")
    return f"transformer.h.{layer}.{_BLOCK[stem]}.weight"


def _read(tensor: SafeTensor, dtype: torch.dtype) -> torch.Tensor:
    if math.prod(tensor.shape) == 0 or tensor.format not in DTYPES:
        raise ModelFileError(f"{tensor.path}: {tensor.name} is empty or no floating-point tensor.")
    out = torch.empty(tensor.shape, dtype=dtype)
    tensor.copy_to(out)
    return out
