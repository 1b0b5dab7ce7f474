"""What could stand at the end of a path that is being typed.

    for path in paths("~/no"): ...          # Path of "~/notes/", Path of "~/novel.txt"

A folder comes first and ends with a slash; what begins with a dot is only offered to who typed one.
"""

from __future__ import annotations

import os
from typing import NamedTuple

MOST = 200  # names of a folder that are worth offering


class PathChoice(NamedTuple):
    """`text` is the whole path, written as it was begun."""

    text: str
    is_folder: bool


def paths(typed: str) -> list[PathChoice]:
    """Paths that begin with `typed`; none where its folder cannot be read."""
    folder, name = os.path.split(typed)
    lead = typed[: len(typed) - len(name)]
    found: list[PathChoice] = []
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            for entry in entries:
                hidden = entry.name.startswith(".") and not name.startswith(".")
                if hidden or not entry.name.startswith(name) or not entry.name.isprintable():
                    continue
                is_folder = entry.is_dir()
                found.append(PathChoice(lead + entry.name + "/" * is_folder, is_folder))
    except (OSError, ValueError):
        return []
    return sorted(found, key=lambda choice: (not choice.is_folder, choice.text))[:MOST]
