"""Small nanochats of seeded noise, for the variants that no real file is at hand of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.models.nanochat_variants import VARIANTS, Config, tensor_shapes


def small_config(variant: str, **changes: Any) -> Config:
    """Five layers, grouped heads, a padded vocabulary, windows that a prompt of 300 is cut by."""
    sizes: dict[str, Any] = {
        # A third of 400 and a quarter of it round to different windows.
        "sequence_len": 400 if variant in ("V5", "V6") else 280,
        "vocab_size": 90,
        "n_layer": 5,
        "n_head": 4,
        "n_kv_head": 2,
        "n_embd": 64,
        "window_pattern": "SSL",
        "vocab_rows": 128,
        "bigram_rows": 5 * 128 if variant == "V3e" else 0,
    }
    return Config(**{**sizes, **changes})


def noise(config: Config, variant: str, seed: int = 0) -> dict[str, Tensor]:
    """Parameters that all matter: nothing is zero, and no layer drowns the others."""
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config, VARIANTS[variant]).items():
        values = torch.randn(shape, generator=random)
        if name == "resid_lambdas":
            values = 1 + 0.1 * values
        elif name.endswith("_lambdas") or name in ("smear_lambda", "backout_lambda"):
            values = 0.3 + 0.1 * values
        elif "embed" not in name and "wte" not in name:
            values = values * shape[-1] ** -0.5
        if name == "lm_head.weight":
            values = 6 * values  # logits that the cap bends
        tensors[name] = values
    return tensors


def meta_of(config: Config, variant: str) -> dict[str, Any]:
    """As nanochat's SFT script writes it."""
    names = ("sequence_len", "vocab_size", "n_layer", "n_head", "n_kv_head", "n_embd")
    model_config = {name: getattr(config, name) for name in names}
    if VARIANTS[variant].short_window is not None:
        model_config["window_pattern"] = config.window_pattern
    return {"step": 123, "val_bpb": 0.5, "model_config": model_config}


def write_checkpoint(
    base: Path,
    variant: str,
    *,
    folder: str = "chatsft_checkpoints/d5",
    step: int = 123,
    tensors: Any = None,
    meta: Any = None,
) -> Path:
    """A checkpoint as under `NANOCHAT_BASE_DIR`, its tokenizer an empty file; returns the model's
    path."""
    config = small_config(variant)
    (base / folder).mkdir(parents=True, exist_ok=True)
    (base / "tokenizer").mkdir(exist_ok=True)
    (base / "tokenizer" / "tokenizer.pkl").touch()
    path = base / folder / f"model_{step:06d}.pt"
    torch.save(noise(config, variant) if tensors is None else tensors, path)
    path.with_name(f"meta_{step:06d}.json").write_text(
        json.dumps(meta_of(config, variant) if meta is None else meta)
    )
    return path
