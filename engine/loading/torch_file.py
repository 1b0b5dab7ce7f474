"""Reads a `.pt` file of named tensors without trusting it.

    tensors = read_tensors(Path("model_000650.pt"))        # memory-mapped, on the CPU

A `.pt` file is a zip archive of a pickle and of raw tensor data. Loading it must neither execute
what it holds nor allocate what it merely claims to hold, so before `torch.load(weights_only=True)`
sees it: the archive's own sizes are held against the file, its members must be stored as they are
(a mapped deflated member would be read as noise, an inflated one could fill the memory), and the
pickle may name nothing but tensors and their storages. What comes out is mapped from the file, and
together no larger than it.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import ModelFileError

MAX_PICKLE = 16 << 20
"""Bytes of the pickle alone: the tensors' names and shapes. A model of a thousand layers needs one
percent of it."""

_HARMLESS = re.compile(
    r"collections OrderedDict|torch \w+Storage|torch\._utils _rebuild_(tensor_v2|parameter)"
)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict by name: contiguous, on the CPU, mapped from the file.

    Raises:
        ModelFileError: the file is not a zip archive, is cut off, claims more than it holds, holds
            anything but named tensors, or asks for code.
    """
    try:
        size = path.stat().st_size
        _check_archive(path, size)
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except ModelFileError:
        raise
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except pickle.UnpicklingError as error:  # torch's own words advise to trust the file
        raise ModelFileError(
            f"{path}: holds something other than named tensors; it was not loaded."
        ) from error
    except Exception as error:  # a damaged pickle fails in as many ways as there are opcodes
        raise _broken(path, error) from error
    if not isinstance(loaded, dict):
        raise ModelFileError(f"{path}: holds a {type(loaded).__name__}, not a dict of tensors.")
    tensors: dict[str, Tensor] = {}
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ModelFileError(
                f"{path}: {str(name)[:80]!r} is a {type(tensor).__name__}, not a tensor."
            )
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise ModelFileError(f"{path}: {name} is not a plain contiguous tensor.")
        tensors[name] = tensor.detach()
    # Tensors may share storages: many names for the same bytes would be many copies once converted.
    claimed = sum(tensor.nbytes for tensor in tensors.values())
    if claimed > size:
        raise ModelFileError(f"{path}: its tensors claim {claimed} bytes, the file has {size}.")
    return tensors


def _check_archive(path: Path, size: int) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                end = member.header_offset + member.compress_size
                if member.compress_type != zipfile.ZIP_STORED or end > size:
                    raise ModelFileError(
                        f"{path}: {member.filename[:80]!r} is compressed or cut off; a checkpoint "
                        "that torch.save wrote is neither. Copy or save it again."
                    )
            pickles = [m for m in members if m.filename.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1 or pickles[0].file_size > MAX_PICKLE:
                raise ModelFileError(f"{path}: is a zip archive, but torch.save did not write it.")
            content = archive.read(pickles[0])
    except zipfile.BadZipFile as error:
        raise ModelFileError(
            f"{path}: is not a whole .pt file ({error}); it was cut off while it was saved or "
            "copied, or is something else. Copy or save it again."
        ) from error
    if (
        content[:2] != b"\x80\x02"
    ):  # protocol 2: what the scan below and torch's loader are made for
        raise ModelFileError(f"{path}: its pickle is not of the kind that torch.save writes.")
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument)):
            named = str(argument)[:80].replace(" ", ".")
            raise ModelFileError(
                f"{path}: asks to import {named!r}, which no checkpoint needs; it was not loaded."
            )


def _broken(path: Path, error: Exception) -> ModelFileError:
    said = " ".join(str(error).split()) or type(error).__name__
    printable = "".join(c for c in said[:160] if c.isprintable())
    return ModelFileError(f"{path}: is damaged or not a checkpoint ({printable}).")
