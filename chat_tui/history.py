"""What was typed before: the prompt's Up and Down, kept between runs.

`PromptHistory(path)` reads the file when it is first needed; `add` appends one JSON string per
line. The file is its owner's alone (0600). A file that cannot be read or written costs the memory
between runs and nothing else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

LIMIT = 1000
LONGEST = 20_000
"""Characters of a prompt that is still worth a place in the file; pastes may be megabytes."""


class PromptHistory:
    """A list of prompts and a place in it; the draft is the entry behind the last."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: list[str] | None = None
        self._place = 0
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        if self._entries is None:
            self._entries = self._read()
            self._place = len(self._entries)
        return self._entries

    def add(self, text: str) -> None:
        """Remember `text`, unless it repeats the last one; go back to an empty draft."""
        entries = self.entries
        if text.strip() and (not entries or entries[-1] != text):
            entries.append(text)
            self._append(text)
        self._place, self._draft = len(entries), ""

    def previous(self, current: str) -> str | None:
        """One entry back from `current`; None at the oldest."""
        entries = self.entries
        if self._place == 0:
            return None
        if self._place == len(entries):
            self._draft = current
        self._place -= 1
        return entries[self._place]

    def next(self) -> str | None:
        """One entry forward, at last the draft; None behind it."""
        entries = self.entries
        if self._place >= len(entries):
            return None
        self._place += 1
        return self._draft if self._place == len(entries) else entries[self._place]

    def _read(self) -> list[str]:
        entries: list[str] = []
        try:
            lines = self._path.read_text("utf-8").splitlines() if self._path else []
        except (OSError, UnicodeDecodeError):
            return []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, str):
                entries.append(entry)
        if len(entries) > 2 * LIMIT:
            self._rewrite(entries[-LIMIT:])
        return entries[-LIMIT:]

    def _append(self, text: str) -> None:
        if self._path is None or len(text) > LONGEST:
            return
        try:
            with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                file.write(json.dumps(text) + "\n")
        except OSError:
            self._path = None

    def _rewrite(self, entries: list[str]) -> None:
        assert self._path is not None
        fresh = self._path.with_suffix(".new")
        try:
            with open(fresh, "w", encoding="utf-8", opener=_private) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
