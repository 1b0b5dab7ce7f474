"""What is written and not yet answered, on the disk, so that no end of the program loses it.

    drafts = Drafts(folder)
    found = drafts.take_over()       # what an earlier run left, or None
    drafts.keep(draft)               # some ten times a second; writes what changed
    drafts.close()

Each running program has a file of its own, and holds a lock beside it for as long as it lives, also
where it is killed: a file that nobody holds was left behind, and the next start takes it over. A
file (0600) is replaced whole. With a folder of None nothing is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.paths import private_file

try:
    import fcntl
except ImportError:  # Windows: every file counts as left behind
    fcntl = None  # type: ignore[assignment]

PERIOD_S = 0.2
RETRY_S = 30.0
_BYTES_PER_S = 5_000_000
"""A large draft is written less often: about so much of it."""


class Draft(NamedTuple):
    """What would be lost.

    Attributes:
        shown: the text in the prompt, with labels for what is folded.
        folds: what these labels stand for.
        others: texts that are not in the prompt: sent and not answered, or set aside.
    """

    shown: str = ""
    folds: Mapping[str, str] = {}
    others: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.shown.strip() or self.others)


class Left(NamedTuple):
    """A draft of an earlier run, when it was written (seconds since 1970), and how many more there
    are for later starts."""

    draft: Draft
    at: float
    more: int


class Drafts:
    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.trouble = ""
        self._troubled = False
        self._folder, self._clock = folder, clock
        self._kept = Draft()
        self._due = 0.0
        self._path: Path | None = None
        self._lock: int | None = None

    def take_over(self) -> Left | None:
        """What an earlier run left, the newest first; it is this run's from now on."""
        if self._folder is None or not self._folder.is_dir():
            return None
        for lock_file in self._folder.glob("*.lock"):  # of runs that were killed and left nothing
            if not lock_file.with_suffix(".json").exists():
                _remove_if_left(lock_file)
        newest = sorted(self._folder.glob("*.json"), key=_written_at, reverse=True)
        for place, path in enumerate(newest, 1):
            lock = _locked(path)
            if lock is None:
                continue
            draft, at = _read(path), _written_at(path)
            if draft is None:
                _remove(path, lock)
                continue
            self._path, self._lock, self._kept = path, lock, draft
            return Left(draft, at, sum(map(_is_left, newest[place:])))
        return None

    def keep(self, draft: Draft, *, now: bool = False) -> None:
        """Write the draft, if it has changed and it is time (`now`: in any case)."""
        if self._folder is None or draft == self._kept:
            return
        if not now and self._clock() < self._due:
            return
        text = json.dumps(draft._asdict())
        self._due = self._clock() + PERIOD_S + len(text) / _BYTES_PER_S
        try:
            self._write(self._folder, draft, text)
            self._kept = draft
        except OSError as error:
            self._due = self._clock() + RETRY_S
            if not self._troubled:
                self.trouble = f"What you write is not being kept: {error.strerror}."
            self._troubled = True

    def _write(self, folder: Path, draft: Draft, text: str) -> None:
        if self._path is None:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._path = folder / f"{os.getpid()}-{time.time_ns():x}.json"
            self._lock = _locked(self._path)
        if draft.empty:
            self._path.unlink(missing_ok=True)
            return
        fresh = self._path.with_suffix(".new")
        with open(fresh, "w", encoding="utf-8", opener=private_file) as file:
            file.write(text)
        fresh.replace(self._path)

    def close(self) -> None:
        """Leave the file to the next start, if there is anything in it."""
        if self._path is not None and self._lock is not None:
            if self._kept.empty:
                _remove(self._path, self._lock)
            else:
                os.close(self._lock)
        self._folder = self._path = self._lock = None


def _locked(path: Path) -> int | None:
    """The lock beside a file, taken: a descriptor. None where another program holds it."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _is_left(path: Path) -> bool:
    lock = _locked(path)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _remove_if_left(path: Path) -> None:
    lock = _locked(path)
    if lock is not None:
        _remove(path.with_suffix(".json"), lock)


def _remove(path: Path, lock: int) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)
    os.close(lock)


def _read(path: Path) -> Draft | None:
    try:
        fields = json.loads(path.read_text("utf-8"))
        folds = {str(label): str(text) for label, text in fields["folds"].items()}
        draft = Draft(str(fields["shown"]), folds, tuple(map(str, fields["others"])))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if draft.empty else draft


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
