"""The models that `--model` can be given by name here: the catalogue's, nanochats under the base
directory, and what lies in the hub client's cache.

    for model in known_models(): print(model.name, model.path)

Only names and sizes are looked at; torch is not imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError
from engine.loading import catalog, hub, nanochat_paths


@dataclass(frozen=True)
class KnownModel:
    """A model that has a name.

    Attributes:
        name: what `--model` takes.
        kind: "catalogue", "nanochat" or "hub".
        title: for people.
        size: bytes on disk, or of the download.
        path: where it lies; None where it would be fetched first.
    """

    name: str
    kind: str
    title: str
    size: int
    path: Path | None


def known_models() -> list[KnownModel]:
    """All of them, the catalogue's first."""
    models = [
        KnownModel(entry.name, "catalogue", entry.title, entry.size, catalog.find(entry.name))
        for entry in catalog.CATALOG.values()
    ]
    for name in nanochat_paths.names():
        try:
            path = nanochat_paths.locate(name)
        except ModelFileError:  # gone since it was listed
            continue
        if path is not None:
            models.append(KnownModel(name, "nanochat", path.name, _size(path), path))
    for name, path in hub.found():
        title = "safetensors" if path.is_dir() else path.name
        models.append(KnownModel(name, "hub", title, _size(path), path))
    return models


def _size(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    total = 0
    for file in files:
        try:
            total += os.stat(file).st_size
        except OSError:
            continue
    return total
