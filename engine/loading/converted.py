"""Models as the kernels want them, kept in files that are memory-mapped at the next start.

    place = converted_place(path, "cpu")              # where this file's conversion lies
    found = read_converted(place)                     # None: none, stale or damaged
    with ConvertedWriter(place, source=path) as writer:
        layer = writer.keep(layer)                    # its tensors are on disk now, and mapped
        writer.finish({"weights": weights, ...})

Unpacking a GGUF file's blocks and packing them for the 4-bit kernel takes a second for 135M
weights; mapping the result takes milliseconds. A conversion is written tensor by tensor while the
model is built, so that building it never holds more than one layer in memory.

A place is named by all that the conversion depends on: the file (path, size, time of change), the
machine's instruction set, torch and the native step (which decide the packed layout), and the code
that converts. So a conversion is never out of date, only no longer asked for; those of the same
file are removed when a new one is made. A file is written under another name and renamed when it is
whole: of two programs at once, the last one wins and both have a model. It ends in a table of
contents with a checksum for each tensor; where anything does not fit, there is no conversion and
the caller makes a new one.

What is in a file: tensors at multiples of 64 bytes, a JSON document, and a trailer of 24 bytes: the
document's length and CRC-32, and `MAGIC`. The document names dataclasses out of `CLASSES` only;
nothing in it is run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import mmap
import os
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from engine.errors import EngineError
from engine.models.base import Shape
from engine.models.layers import (
    Biased,
    DenseLinear,
    Int4Linear,
    Int8Linear,
    PackedLinear,
    Stacked,
)
from engine.models.llama import Block, Weights
from engine.native import library
from engine.paths import cache_dir, private_folder

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Weights, Block, Shape),
        *(Biased, DenseLinear, Int4Linear, Int8Linear, PackedLinear, Stacked),
    )
}
"""What a document may be made of."""

MAGIC = b"chatTUI1"
_TRAILER = struct.Struct("<QQ8s")
_ALIGNMENT = 64
_MAX_DOCUMENT = 64 << 20
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
    )
}

_T = TypeVar("_T")


class Unwritable(Exception):
    """The conversion cannot be stored; the model can do without."""


def converted_place(path: Path, *settings: object) -> Path | None:
    """Where the conversion of the file at `path` lies, whether it is there or not; `settings` are
    further things that it depends on. None where there can be none."""
    try:
        path = path.resolve()
        stat = path.stat()
        folder = private_folder(cache_dir() / "converted")
    except (OSError, EngineError):
        return None
    what = (
        stat.st_size,
        stat.st_mtime_ns,
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        library.lanes(),
        _code(),
        *settings,
    )
    return folder / f"{_digest(str(path))}-{_digest(repr(what))}.weights"


@functools.cache
def _code() -> str:
    """The digest of the modules that decide what is in a conversion: a version number that nobody
    has to remember to raise."""
    package = Path(__file__).parent.parent
    modules = (
        "loading/converted.py",
        "loading/families.py",
        "loading/gguf.py",
        "loading/gguf_model.py",
        "loading/llama.py",
        "loading/quants.py",
        "loading/tensors.py",
        "models/layers.py",
        "models/llama.py",
        "models/rope.py",
        "native/packing.py",
        "byte_level.py",
        "sentencepiece.py",
        "tokenizer.py",
    )
    total = hashlib.sha256()
    for module in modules:
        total.update((package / module).read_bytes())
    return total.hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_converted(place: Path) -> dict[str, Any] | None:
    """What was given to `ConvertedWriter.finish`, its tensors mapped; None where there is no whole
    conversion at `place`."""
    try:
        with place.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return _Contents(mapped).document()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return None


class _Contents:
    def __init__(self, mapped: mmap.mmap) -> None:
        length, crc, magic = _TRAILER.unpack(mapped[-_TRAILER.size :])
        self.end = len(mapped) - _TRAILER.size - length
        if magic != MAGIC or not 0 < length <= _MAX_DOCUMENT or self.end < 0:
            raise ValueError
        text = mapped[self.end : self.end + length]
        if zlib.crc32(text) != crc:
            raise ValueError
        self.parsed = json.loads(text)
        self.buffer = torch.frombuffer(mapped, dtype=torch.uint8)
        self.tensors = [self._tensor(*entry) for entry in self.parsed["tensors"]]

    def _tensor(self, start: int, dtype: str, shape: list[int], checksum: int) -> Tensor:
        kind = _DTYPES[dtype]
        count = 1
        for size in shape:
            count *= size
        end = start + count * kind.itemsize
        if min(shape, default=1) < 0 or not 0 <= start <= end <= self.end:
            raise ValueError
        flat = self.buffer[start:end]
        if _checksum(flat) != checksum:
            raise ValueError
        return flat.view(kind).view(shape)

    def document(self) -> dict[str, Any]:
        document = self._decoded(self.parsed["document"])
        if not isinstance(document, dict):
            raise ValueError
        return document

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self._decoded, value))
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return self.tensors[value["tensor"]]
        fields = {name: self._decoded(field) for name, field in value["fields"].items()}
        return CLASSES[value["class"]](**fields) if "class" in value else fields


def _checksum(flat: Tensor) -> int:
    """Of a uint8 tensor: the sum of its words and of its last bytes. It finds flipped bits and
    pages of zeros, at the speed of memory (365 MB in 0.04 s; CRC-32 takes 0.3)."""
    whole = len(flat) // 8 * 8
    words = int(flat[:whole].view(torch.int64).sum()) if whole else 0
    return words + int(flat[whole:].sum())


class ConvertedWriter:
    """Writes a conversion; leaving the block without `finish` leaves nothing behind."""

    def __init__(self, place: Path, source: Path) -> None:
        self.place = place
        self.source = source

    def __enter__(self) -> ConvertedWriter:
        """Raises Unwritable where no file can be made."""
        try:
            _remove_orphans(self.place)
            handle, name = tempfile.mkstemp(".part", self.place.stem + ".", self.place.parent)
        except OSError as error:
            raise Unwritable(str(error)) from error
        self._file = os.fdopen(handle, "r+b")
        self._part = Path(name)
        self._entries: list[tuple[int, str, list[int], int]] = []
        self._kept: dict[int, tuple[int, Tensor]] = {}
        self._at = 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.clear()  # each of them holds a mapping
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink()

    def keep(self, value: _T) -> _T:
        """`value`, a tensor or a dataclass or tuple with tensors in it, with those mapped from the
        file instead of held in memory.

        Raises:
            Unwritable: the disk is full, or worse.
        """
        return _mapped_over(value, self._keep)  # type: ignore[no-any-return]

    def _keep(self, tensor: Tensor) -> Tensor:
        if id(tensor) in self._kept:
            return tensor
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        start = -(-self._at // _ALIGNMENT) * _ALIGNMENT
        try:
            self._file.seek(start)
            self._file.write(memoryview(flat.numpy()))  # type: ignore[arg-type]
            self._file.flush()
            # From a multiple of the page size on, as mapping requires.
            page = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            end = start + len(flat)
            mapped = mmap.mmap(
                self._file.fileno(), end - page, access=mmap.ACCESS_COPY, offset=page
            )
        except (OSError, ValueError) as error:
            raise Unwritable(str(error)) from error
        self._at = end
        kept = torch.frombuffer(mapped, dtype=torch.uint8, offset=start - page)
        kept = kept.view(tensor.dtype).view(tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._kept[id(kept)] = (len(self._entries), kept)
        self._entries.append((start, dtype, list(tensor.shape), _checksum(flat)))
        return kept

    def finish(self, document: Mapping[str, Any]) -> None:
        """Put the file in place, with `document`: JSON values, tuples, dataclasses out of `CLASSES`
        and tensors that were kept.

        Raises:
            Unwritable: as `keep`.
        """
        document = self.keep(dict(document))
        contents = {
            "document": self._encoded(document),
            "tensors": self._entries,
            "source": str(self.source.resolve()),
        }
        text = json.dumps(contents).encode()
        try:
            self._file.seek(self._at)
            self._file.write(text)
            self._file.write(_TRAILER.pack(len(text), zlib.crc32(text), MAGIC))
            self._file.flush()
            os.replace(self._part, self.place)
        except OSError as error:
            raise Unwritable(str(error)) from error

    def _encoded(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return {"tensor": self._kept[id(value)][0]}
        if isinstance(value, (list, tuple)):
            return list(map(self._encoded, value))
        if isinstance(value, Mapping):
            return {"fields": {name: self._encoded(field) for name, field in value.items()}}
        if dataclasses.is_dataclass(value):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return {"class": type(value).__name__, **self._encoded(fields)}
        return value


def _mapped_over(value: Any, keep: Any) -> Any:
    if isinstance(value, Tensor):
        return keep(value)
    if isinstance(value, tuple):
        return tuple(_mapped_over(one, keep) for one in value)
    if isinstance(value, dict):
        return {name: _mapped_over(one, keep) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value,
            **{
                field.name: _mapped_over(getattr(value, field.name), keep)
                for field in dataclasses.fields(value)
            },
        )
    return value


def enough_room(place: Path, size: int) -> bool:
    """Whether `size` bytes take less than a quarter of what is free on the disk."""
    try:
        return size < shutil.disk_usage(place.parent).free // 4
    except OSError:
        return False


def _remove_orphans(place: Path) -> None:
    """Remove other conversions of the same file, those of files that are gone, and what programs
    that died an hour ago or more left half written."""
    mine = place.name.partition("-")[0]
    for file in place.parent.iterdir():
        with contextlib.suppress(OSError):
            if file.suffix == ".part":
                if file.stat().st_mtime < time.time() - 3600:
                    file.unlink()
            elif file.suffix == ".weights" and (
                file.name.startswith(mine) or not _source_exists(file)
            ):
                file.unlink()


def _source_exists(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            opened.seek(-_TRAILER.size, os.SEEK_END)
            length, _, magic = _TRAILER.unpack(opened.read())
            if magic != MAGIC or length > _MAX_DOCUMENT:
                return False
            opened.seek(-_TRAILER.size - length, os.SEEK_END)
            return Path(json.loads(opened.read(length))["source"]).exists()
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return False
