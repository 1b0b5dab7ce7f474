"""About how much memory a model will take, from the size of its files alone: for one that is to
stand beside others.

Measured with answers to 500 to 1,800 tokens, weights and the growth of the rest of the process: 98
MB of 4-bit GGUF came to 365 and 60 MB (the 16-bit copies for prefills among them), 426 MB of bf16
safetensors to 430 and 70 MB.
"""

from __future__ import annotations

from pathlib import Path

GGUF_FACTOR = 4.0
"""Weights in memory for each byte of a quantised file."""
ANSWERS = 256 << 20
"""Bytes for prompts, answers and what computing them takes."""


def footprint(path: Path) -> int:
    """Bytes, for what `catalog.resolve` gives: a file, or a folder with weights in it. Rather too
    many than too few: a nanochat checkpoint in float32 is held in half of it."""
    if path.is_file():
        files = [path]
    else:
        kinds = ("*.safetensors", "*.gguf", "model_*.pt")
        found = (sorted(path.glob(kind)) for kind in kinds)
        files = next((names for names in found if names), [])
        if files and files[0].suffix == ".pt":
            files = files[-1:]  # one checkpoint of a run
    size = sum(file.stat().st_size for file in files)
    quantised = any(file.suffix == ".gguf" for file in files)
    return round(size * (GGUF_FACTOR if quantised else 1.0)) + ANSWERS
