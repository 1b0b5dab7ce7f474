"""Which weights an answer came from: enough to find them again, and to tell two files apart.

`Model.of(info)` is made once per load from what the engine says; every answer refers to one.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
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
    """As short as tells them apart: the end of a name or path; where a model runs, if it is called
    the same elsewhere; all that is known of it, where even that is not enough."""
    names = {model: _end(model.name, 1) for model in models}
    by_ends = [partial(_end_of, parts=parts) for parts in range(2, 7)]
    ladder: list[Callable[[Model], str]] = [_placed, *by_ends, _whole]
    for longer in ladder:
        counts = Counter(names.values())
        names = {
            model: name if counts[name] == 1 else longer(model) for model, name in names.items()
        }
    return names


def _end(name: str, parts: int) -> str:
    path = name.rstrip("/\\").replace("\\", "/").removesuffix(".gguf")
    return "/".join(path.split("/")[-parts:]) or name


def _end_of(model: Model, parts: int) -> str:
    return _placed(model) if "://" in model.path else _end(model.name, parts)


def _placed(model: Model) -> str:
    place = urlsplit(model.path).netloc
    return _end(model.name, 1) + (f"@{place}" if place else "")


def _whole(model: Model) -> str:
    return " ".join(filter(None, (model.name, model.path, model.dtype, model.device)))
