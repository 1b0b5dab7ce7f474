"""Loads a GGUF file: its network, its vocabulary, and what it says about itself.

    found = load_gguf(path, torch.device("cpu"), dtype=None)
    found.model, found.tokenizer, found.metadata

On a CPU, where quantised weights are packed for the kernels, the result is kept in the cache
(`engine/loading/converted.py`) and mapped from there the next time; where it cannot be kept, the
model is built in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from engine.loading import converted, families
from engine.loading.converted import ConvertedWriter, Unwritable
from engine.loading.gguf import Metadata, read_gguf
from engine.loading.llama import build_llama, dense_bytes, kept_bytes, require_vocabulary
from engine.loading.tensors import GGUFTensors
from engine.memory import require_memory, total_memory
from engine.models.llama import Llama
from engine.tokenizer import Tokenizer

DENSE_SHARE = 8
"""4-bit weights are kept a second time in bf16, for wide inputs, where that takes less than this
part of the machine's memory. Without it a prefill takes three times as long."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class GGUFModel:
    """`metadata` is the file's without its long lists; `family` and `assumptions` as in
    `Architecture`."""

    model: Llama
    tokenizer: Tokenizer
    metadata: Metadata
    family: str
    weight_types: str
    assumptions: tuple[str, ...]


def load_gguf(path: Path, device: torch.device, dtype: torch.dtype | None) -> GGUFModel:
    """Load the file at `path`; `dtype` None keeps quantised weights as they are where a kernel of
    `device` takes them.

    Raises:
        ModelFileError: it is missing, broken or of a kind that is not supported.
        EngineError: it does not fit into memory.
    """
    place = None
    if device.type == "cpu" and dtype is None:
        place = converted.converted_place(path, DENSE_SHARE, total_memory())
        if place is not None and (stored := converted.read_converted(place)) is not None:
            return _from_stored(stored, path)
    file = read_gguf(path)
    architecture = families.from_gguf(file.metadata)
    source = GGUFTensors(file)
    needed = kept_bytes(source, device, dtype)
    require_memory(str(path), needed, device)
    tokenizer = Tokenizer.from_gguf(file.metadata)
    require_vocabulary(source, tokenizer.vocab_size)
    dense = dense_bytes(source)
    keeps_dense = dense < (total_memory() or 0) // DENSE_SHARE

    def build(keep: Callable[[_T], _T]) -> Llama:
        return build_llama(
            architecture,
            GGUFTensors(file),
            device,
            dtype,
            gguf=True,
            keep=keep,
            keeps_dense=keeps_dense,
        )

    short = {key: value for key, value in file.metadata.items() if not isinstance(value, list)}
    facts: dict[str, Any] = {
        "metadata": short,
        "family": architecture.family.name,
        "weight_types": source.formats(),
        "assumptions": architecture.assumptions,
    }
    if place is not None and converted.enough_room(place, needed + dense * keeps_dense):
        try:
            with ConvertedWriter(place, path) as writer:
                weights = build(writer.keep).weights
                tensors = _tensors(tokenizer.stored())
                writer.finish({"weights": weights, "tokenizer": tensors, **facts})
            del weights
            stored = converted.read_converted(place)
            if stored is not None:
                return _from_stored(stored, path)
        except Unwritable:
            pass
    return GGUFModel(
        build(lambda value: value),
        tokenizer,
        Metadata(short, path),
        facts["family"],
        facts["weight_types"],
        facts["assumptions"],
    )


def gguf_bytes(path: Path, device: torch.device, dtype: torch.dtype | None) -> int:
    """What the network in a file takes once it is loaded, the 16-bit copies included.

    Raises:
        ModelFileError: the file is broken.
    """
    source = GGUFTensors(read_gguf(path))
    dense = dense_bytes(source) if device.type == "cpu" and dtype is None else 0
    keeps_dense = dense < (total_memory() or 0) // DENSE_SHARE
    return kept_bytes(source, device, dtype) + dense * keeps_dense


def _from_stored(stored: dict[str, Any], path: Path) -> GGUFModel:
    return GGUFModel(
        Llama(stored["weights"]),
        Tokenizer.from_stored(_arrays(stored["tokenizer"])),
        Metadata(stored["metadata"], path),
        stored["family"],
        stored["weight_types"],
        stored["assumptions"],
    )


def _tensors(stored: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors, which is what a conversion holds."""
    return {
        name: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        for name, value in stored.items()
    }


def _arrays(stored: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.numpy() if isinstance(value, Tensor) else value
        for name, value in stored.items()
    }
