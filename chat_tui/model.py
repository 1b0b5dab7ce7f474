"""Which weights an answer came from: enough to find them again, and to tell two files apart.

`Model.of(info)` is made once per load from what the engine says; every answer refers to one.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from engine.messages import ModelInfo

_SAMPLED = 1 << 20
"""Bytes hashed at either end of a file: a whole 16 GB file would take a core for half a minute."""


@dataclass(frozen=True)
class Model:
    """A model's identity.

    Attributes:
        name: as the engine calls it.
        path: of its file or folder; the address of the server where it runs.
        variant: what distinguishes it within its family, in words.
        size: bytes of the file, or of the folder's files.
        fingerprint: SHA-256 of the size, the first and the last MiB (of each file, in order);
            empty where nothing could be read. Of its address and name where it runs on a server:
            its token ids then mean the same to itself alone.
        dtype, device: how it ran.
    """

    name: str
    path: str = ""
    variant: str = ""
    size: int = 0
    fingerprint: str = ""
    dtype: str = ""
    device: str = ""

    @classmethod
    def of(cls, info: ModelInfo) -> Model:
        """The identity of a model that has just been loaded; reads a few MiB of its file."""
        if "://" in info.path:
            there = f"{info.path} {info.name}"
            size, fingerprint = 0, hashlib.sha256(there.encode()).hexdigest()
        else:
            size, fingerprint = _fingerprint(Path(info.path)) if info.path else (0, "")
        return cls(info.name, info.path, info.variant, size, fingerprint, info.dtype, info.device)

    def speaks_with(self, other: Model) -> bool:
        """Whether `other`'s token ids mean the same here. How a model ran does not matter, nor by
        which name it was asked for, where the files can be compared."""
        if self.fingerprint and other.fingerprint:
            return self.fingerprint == other.fingerprint
        return self.name == other.name


GIVEN = Model("given")
"""Stands for what wrote the answers that a prompt came with."""


def _fingerprint(path: Path) -> tuple[int, str]:
    """Size and hash; (0, "") where the path is not to be read."""
    digest, total = hashlib.sha256(), 0
    try:
        files = (
            sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        )
        for place in files:
            with open(place, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                total += size
                digest.update(size.to_bytes(8, "little"))
                digest.update(file.read(_SAMPLED))
                file.seek(max(size - _SAMPLED, min(size, _SAMPLED)))
                digest.update(file.read())
    except OSError:
        return 0, ""
    return total, digest.hexdigest()


def short_names(models: Iterable[Model]) -> dict[Model, str]:
    """As short as tells them apart: the last part of a name or path; where that is not enough, with
    where the model runs, or all of its path."""
    names = {model: _short(model.name) for model in models}
    for longer in (_located, _whole):
        counts = Counter(names.values())
        names = {
            model: name if counts[name] == 1 else longer(model) for model, name in names.items()
        }
    return names


def _short(name: str) -> str:
    return name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf") or name


def _located(model: Model) -> str:
    if "://" in model.path:
        return f"{_short(model.name)}@{urlsplit(model.path).netloc}"
    folder = Path(model.name).parent.name
    return f"{folder}/{_short(model.name)}" if folder else _short(model.name)


def _whole(model: Model) -> str:
    return f"{model.name} {model.dtype} {model.device}".strip()
