"""About how much memory a model takes, known before it is loaded: for one that is to stand beside
others, which leave it less than the machine has.

What the loaders check is the weights they have to hold, and of a conversion, which is mapped from
its file, nothing. Beside others the copies in 16 bits count as well, and room for answers: after
the weights of SmolLM2 (365 MB with the copies) and of a 213M model in bf16 (430 MB), the first
answers to 500 and 1,800 tokens took 70 and 60 MB more.
"""

from __future__ import annotations

from pathlib import Path

import torch

from engine.loading.gguf_model import gguf_bytes
from engine.loading.llama import kept_bytes
from engine.loading.nanochat_paths import locate
from engine.loading.safetensors import read_sharded
from engine.loading.tensors import HubTensors

ANSWERS = 256 << 20
"""Bytes for prompts, answers, and what computing them takes."""


def footprint(path: Path, device: torch.device, dtype: torch.dtype | None, *, gguf: bool) -> int:
    """Bytes, for a file or a folder that `load_model` would load; of a nanochat checkpoint that is
    in float32 twice as many as it takes.

    Raises:
        ModelFileError: what says so is broken.
    """
    if gguf:
        return gguf_bytes(path, device, dtype) + ANSWERS
    if (path / "config.json").is_file():
        tensors = HubTensors(path, read_sharded(path), post_norms=False)
        return kept_bytes(tensors, device, dtype) + ANSWERS
    file = locate(str(path))
    return (file.stat().st_size if file is not None else 0) + ANSWERS
