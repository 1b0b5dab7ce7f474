"""Reads safetensors files: the header at once, each tensor's bytes when it is asked for.

    tensors = read_safetensors(path)                 # {name: SafeTensor}
    tensors = read_sharded(folder)                   # of all of a model's files
    tensors["model.norm.weight"].copy_to(out)        # a torch tensor, in its dtype

Tensors are read, not mapped: the pages of a mapping that were touched count as the program's memory
until the system takes them back, so converting a mapped checkpoint would hold it twice.

Nothing in a header is believed: names, shapes and offsets are held against the file's size before
anything is allocated. The format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.loading.finite import is_finite
from engine.loading.model_folder import safetensors_files

MAX_HEADER = 100 << 20
"""The format's own limit."""

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1} | {
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}

_CHUNK = 4 << 20
"""Bytes read at a time where values are converted."""


@dataclass(frozen=True)
class SafeTensor:
    """One tensor of a file: `format` is the name of its dtype there, `start` its first byte."""

    name: str
    format: str
    shape: tuple[int, ...]
    path: Path
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * SIZES[self.format]

    def copy_to(self, out: Tensor) -> None:
        """Read it into `out`, a contiguous CPU tensor of its shape, converting to its dtype.

        Raises:
            ModelFileError: a dtype that is not supported, the file cannot be read, or it holds
                values that are not numbers.
        """
        dtype = DTYPES.get(self.format)
        if dtype is None:
            raise ModelFileError(
                f"{self.path}: {self.name} is stored as {self.format}, which is not supported;"
                " supported are F32, F16 and BF16."
            )
        flat = out.view(-1)
        step = len(flat) if dtype == out.dtype else _CHUNK // dtype.itemsize
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.start)
                for at in range(0, len(flat), max(step, 1)):
                    part = flat[at : at + step]
                    into = part if dtype == out.dtype else torch.empty(len(part), dtype=dtype)
                    _read_exactly(file, into)
                    if not is_finite(into):
                        raise ModelFileError(
                            f"{self.path}: {self.name} has values that are not numbers (NaN or"
                            " infinite); the training diverged or the file is damaged."
                        )
                    if into is not part:
                        part.copy_(into)
        except OSError as error:
            raise ModelFileError(
                f"{self.path} cannot be read: {error.strerror or error}."
            ) from error


def _read_exactly(file: Any, into: Tensor) -> None:
    view = memoryview(into.view(torch.uint8).numpy())  # type: ignore[arg-type]
    while view:
        count = file.readinto(view[: 1 << 30])
        if not count:
            raise OSError("it became shorter while it was read")
        view = view[count:]


def read_safetensors(path: Path) -> dict[str, SafeTensor]:
    """The tensors of one file.

    Raises:
        ModelFileError: it cannot be read, or its header is not what the format says.
    """

    def broken(what: str) -> ModelFileError:
        return ModelFileError(f"{path} is broken: {what}; download it again.")

    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 10 or not 2 <= length <= min(MAX_HEADER, size - 8):
                raise broken(f"its header of {length} bytes does not fit into its {size} bytes")
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise broken("its header is no JSON") from error
    if not isinstance(header, dict):
        raise broken("its header is no JSON object")
    header.pop("__metadata__", None)
    tensors: dict[str, SafeTensor] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        shown = repr(name[:60])
        try:
            format, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            item = SIZES[format]
            numbers = [*shape, start, end]
            if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise broken(f"tensor {shown} is not described as the format says") from None
        if len(shape) > 8 or math.prod(shape) * item != end - start or 8 + length + end > size:
            raise broken(f"tensor {shown} does not lie inside the file with its shape {shape[:8]}")
        spans.append((start, end))
        tensors[name] = SafeTensor(name, format, tuple(shape), path, 8 + length + start)
    spans.sort()
    if any(before[1] > after[0] for before, after in itertools.pairwise(spans)):
        raise broken("its tensors overlap")
    return tensors


def read_sharded(folder: Path) -> dict[str, SafeTensor]:
    """The tensors of a model's folder: of `model.safetensors`, of the shards that its index names,
    or of its only safetensors file.

    Raises:
        ModelFileError: there is none, a shard is missing, or a tensor appears twice.
    """
    files = safetensors_files(folder)
    if not files:
        raise ModelFileError(f"{folder}: there is no model in it (no *.safetensors).")
    tensors: dict[str, SafeTensor] = {}
    for file in files:
        for name, tensor in read_safetensors(file).items():
            if name in tensors:
                raise ModelFileError(
                    f"{folder} is broken: {name[:80]!r} is in {tensors[name].path.name} and in"
                    f" {file.name}; download it again."
                )
            tensors[name] = tensor
    return tensors
