"""Writes tensors as safetensors: one file, or shards with the index that names them.

    parts = [Part("model.norm.weight", (576,), lambda out: stored.copy_to(out)), ...]
    write_sharded(folder, parts, torch.bfloat16, progress)

Where each tensor lies follows from the shapes, so the header is written first and one tensor after
the other behind it: no more than one of them is in memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.loading.model_folder import INDEX
from engine.loading.safetensors import DTYPES

LARGEST = 5_000_000_000
"""Bytes of tensors in one file: what `transformers` writes, and the hub takes."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Part:
    """A tensor to be written: `fill` writes its values into a tensor of `shape`."""

    name: str
    shape: tuple[int, ...]
    fill: Callable[[Tensor], None]


def write_sharded(
    folder: Path,
    parts: Sequence[Part],
    dtype: torch.dtype,
    wrote: Callable[[int], None],
    largest: int = LARGEST,
) -> None:
    """Write `parts` in their order; `wrote` is told the bytes of all that is written so far.

    Raises:
        OSError: the disk is full, or the folder is not to be written to.
    """
    shards: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        own = _bytes(part, dtype)
        if shards[-1] and size + own > largest:
            shards.append([])
            size = 0
        shards[-1].append(part)
        size += own
    names = ["model.safetensors"]
    if len(shards) > 1:
        count = len(shards)
        names = [f"model-{at:05d}-of-{count:05d}.safetensors" for at in range(1, count + 1)]
    done = 0
    for name, shard in zip(names, shards, strict=True):
        with (folder / name).open("wb") as file:
            file.write(_header(shard, dtype))
            for part in shard:
                values = torch.empty(part.shape, dtype=dtype)
                part.fill(values)
                file.write(memoryview(values.view(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
                done += values.nbytes
                wrote(done)
            file.flush()
            os.fsync(file.fileno())
    if len(shards) > 1:
        places = {
            part.name: name for name, shard in zip(names, shards, strict=True) for part in shard
        }
        index = {"metadata": {"total_size": done}, "weight_map": places}
        (folder / INDEX).write_text(json.dumps(index, indent=2), "utf-8")


def _bytes(part: Part, dtype: torch.dtype) -> int:
    return math.prod(part.shape) * dtype.itemsize


def _header(parts: Sequence[Part], dtype: torch.dtype) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for part in parts:
        end = at + _bytes(part, dtype)
        entries[part.name] = {
            "dtype": _NAMES[dtype],
            "shape": list(part.shape),
            "data_offsets": [at, end],
        }
        at = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # so that the tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header
