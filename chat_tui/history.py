"""What was typed before: the prompt's Up and Down, kept between runs.

`PromptHistory(path)` reads the file when it is first needed; `add` appends one JSON string per
line. The file is its owner's alone (0600). A file that cannot be read or written costs the memory
between runs and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path

from engine.paths import private_file

LIMIT = 1000
LONGEST = 20_000
"""Characters of a prompt that is still worth a place in the file; pastes may be megabytes."""


class PromptHistory:
    """A list of prompts and a place in it; the draft is the entry behind the last.

    What is changed in an entry while one walks past stays changed until something is sent.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: list[str] | None = None
        self._place = 0
        self._changed: dict[int, str] = {}
        self._aside = ""

    @property
    def entries(self) -> list[str]:
        if self._entries is None:
            self._entries = self._read()
            self._place = len(self._entries)
        return self._entries

    def add(self, text: str) -> str:
        """Remember `text`, which was sent, unless it repeats the last one. Returns the draft that
        was left for it."""
        entries = self.entries
        drafts = [self._aside]
        if self._place < len(entries):
            drafts.append(self._changed.get(len(entries), ""))
        if text.strip() and (not entries or entries[-1] != text):
            entries.append(text)
            self._append(text)
        self._place, self._aside = len(entries), ""
        self._changed.clear()
        return "\n\n".join(filter(None, drafts))

    def set_aside(self, text: str) -> None:
        """Keep what is being written while something else is sent."""
        self._aside = "\n\n".join(filter(None, [self._aside, text if text.strip() else ""]))

    @property
    def left(self) -> list[str]:
        """What was written and is not in the prompt."""
        changed = [text for place, text in self._changed.items() if place != self._place]
        return list(filter(str.strip, [*changed, self._aside]))

    def previous(self, current: str) -> str | None:
        """One entry back from `current`; None at the oldest."""
        return self._go(-1, current) if self.entries and self._place > 0 else None

    def next(self, current: str) -> str | None:
        """One entry forward, at last the draft, and what was set aside; None behind it."""
        if self._place < len(self.entries):
            return self._go(1, current)
        aside, self._aside = self._aside, ""
        return aside or None

    def _go(self, step: int, current: str) -> str:
        entries = [*self.entries, ""]
        if current != entries[self._place]:
            self._changed[self._place] = current
        else:
            self._changed.pop(self._place, None)
        self._place += step
        return self._changed.get(self._place, entries[self._place])

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
            with open(self._path, "a", encoding="utf-8", opener=private_file) as file:
                file.write(json.dumps(text) + "\n")
        except OSError:
            self._path = None

    def _rewrite(self, entries: list[str]) -> None:
        assert self._path is not None
        fresh = self._path.with_suffix(".new")
        try:
            with open(fresh, "w", encoding="utf-8", opener=private_file) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
