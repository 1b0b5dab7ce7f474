"""What the program remembers of its user between runs: the theme, and that the hint was seen.

A small JSON file of its owner alone (0600). One that cannot be read or written costs the memory and
nothing else; without a folder nothing is remembered.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FILE_NAME = "memory.json"


class Memory:
    """Values by name; each is read from the file when it is asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / FILE_NAME if folder is not None else None

    @property
    def kept(self) -> bool:
        """Whether anything is remembered."""
        return self._path is not None

    def get(self, name: str) -> object:
        """What was put under this name; None where that was nothing."""
        return self._read().get(name)

    def put(self, name: str, value: object) -> None:
        """Remember, beside what other runs put there in the meantime."""
        if self._path is None:
            return
        text = json.dumps({**self._read(), name: value})
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            os.replace(fresh, self._path)
        except OSError:
            fresh.unlink(missing_ok=True)

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self._path.read_bytes()) if self._path is not None else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
