"""Where conversations are kept: one SQLite database for all of them.

    with Store.open() as store:
        store.sessions()                    # newest first
        session = store.load(12)            # a `Session`, its scores read when they are looked at
        store.search("binary search")
        store.rename(12, "Search"); store.delete(12)

`chat_tui/recording.py` writes, while a conversation happens. Everything here is one short
transaction, so two programs can use the database at once. A database of a newer version is refused
before anything in it is touched.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chat_tui.conversation import Conversation
from chat_tui.rows import read_answers, read_judged, read_turns
from chat_tui.schema import MIGRATIONS, SEARCH, WORDS_PER_SESSION, pattern
from chat_tui.session import Session
from chat_tui.tree import Tree, Turn
from engine.errors import EngineError
from engine.paths import data_dir

FILE_NAME = "sessions.db"
BUSY_S = 5.0
"""How long one program waits for another's transaction, which takes milliseconds."""
_FORGOTTEN_S = 86_400.0
"""A session that was deleted this long ago by a program that never came to remove it, goes."""

_THERE = "deleted IS NULL AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id)"


class StoreError(EngineError):
    """The database cannot be used. `str(error)` is one line."""


@dataclass(frozen=True)
class Summary:
    """A session as lists show it. `found` is what a search found in it."""

    id: int
    title: str
    created: float
    updated: float
    turns: int
    answers: int
    models: tuple[str, ...]
    found: str = ""


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"The saved sessions cannot be used: {_reason(error)}.") from error


class Store:
    """An open database. Whatever goes wrong with it is a `StoreError`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.searchable = _has_words(connection)

    @classmethod
    def open(cls, path: Path | None = None) -> Store:
        """Open the database, and make it where there is none.

        Args:
            path: None is the user's own.

        Raises:
            StoreError: it is of a newer version, it is no database, or the disk refuses.
        """
        path = path or data_dir() / FILE_NAME
        try:
            # Made here, for its owner alone: the files beside it (-wal, -shm) take over the mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be opened: {_reason(error)}.") from error
        try:
            _prepare(connection, path)
        except sqlite3.Error as error:
            connection.close()
            raise StoreError(f"{path} cannot be used: {_reason(error)}.") from error
        except StoreError:
            connection.close()
            raise
        return cls(connection)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    # Reading.

    @_in_words()
    def sessions(self) -> list[Summary]:
        """All sessions, the one that was changed last first."""
        return self._summaries(_THERE, ())

    @_in_words()
    def last(self) -> int | None:
        """The conversation that was changed last; no session in which prompts were rated."""
        query = (
            f"SELECT id FROM sessions WHERE {_THERE} AND rated = '' "
            "ORDER BY updated DESC, id DESC LIMIT 1"
        )
        row = self.connection.execute(query).fetchone()
        return None if row is None else int(row[0])

    @_in_words()
    def rated(self, file: Path) -> list[int]:
        """The sessions in which a file's prompts were rated, the first one first."""
        query = f"SELECT id FROM sessions WHERE {_THERE} AND rated = ? ORDER BY id"
        return [number for (number,) in self.connection.execute(query, (str(file.resolve()),))]

    @_in_words()
    def rounds(self, file: Path) -> list[int]:
        """The same; there is one at least.

        Raises:
            StoreError: the file's prompts were not rated.
        """
        if not (found := self.rated(file)):
            raise StoreError(f"The prompts of {file} were not rated: chat-tui rate {file} does it.")
        return found

    def judged(self, sessions: Sequence[int] | None = None) -> list[Turn]:
        """The turns of these sessions, or of all, of whose answers something was said. The answers
        have no tokens: only what they say and how they came about.

        Raises:
            StoreError: there is no such session.
        """
        known = {summary.id for summary in self.sessions()}
        for number in sessions or ():
            if number not in known:
                raise _absent(number)
        wanted = known if sessions is None else dict.fromkeys(sessions)
        return [turn for number in wanted for turn in read_judged(self.connection, number)]

    @_in_words()
    def load(self, number: int) -> Session:
        """A whole session.

        Raises:
            StoreError: there is none of this number.
        """
        query = (
            "SELECT title, created, updated, head, shown, revision, rated FROM sessions "
            "WHERE id = ? AND deleted IS NULL"
        )
        row = self.connection.execute(query, (number,)).fetchone()
        if row is None:
            raise _absent(number)
        title, created, updated, head, shown, revision, rated = row
        tree = Tree()
        try:
            answers = read_answers(self.connection, number)
            for turn in read_turns(self.connection, number):
                turn.answers = answers.get(turn.id, [])
                tree.put(turn)
            conversation = Conversation(tree, tree.answers.get(head))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"Session {number} is damaged: {error}.") from error
        return Session(
            number, title, created, updated, conversation, tree.turns.get(shown), revision, rated
        )

    @_in_words()
    def preview(self, number: int, turns: int = 6) -> list[tuple[str, str | None, int]]:
        """The first messages of a session, the beginning of the answer that was picked of each
        (None: of none), and how many there were."""
        query = """
            SELECT user, substr(answers.text, 1, 400),
                (SELECT count(*) FROM answers WHERE session = turns.session AND turn = turns.id)
            FROM turns LEFT JOIN answers
                ON answers.session = turns.session AND answers.id = turns.picked
            WHERE turns.session = ? ORDER BY turns.id LIMIT ?
        """
        return self.connection.execute(query, (number, turns)).fetchall()

    @_in_words()
    def search(self, words: str, limit: int = 50) -> list[Summary]:
        """Sessions in whose title, messages or answers all of `words` stand, best first; `found` is
        the place."""
        found: dict[int, str] = {}
        for number, snippet in (*self._search_titles(words), *self._search_words(words, limit)):
            found.setdefault(number, snippet)
        if not found:
            # Also what the index does not cut into words, such as Chinese.
            found = dict(self._search_text(words, limit))
        marks = ",".join("?" * len(found))
        summaries = self._summaries(f"{_THERE} AND id IN ({marks})", tuple(found), found)
        order = list(found)
        return sorted(summaries, key=lambda summary: order.index(summary.id))[:limit]

    def _search_titles(self, words: str) -> list[tuple[int, str]]:
        where = " AND ".join(r"title LIKE ? ESCAPE '\'" for _ in words.split())
        if not where:
            return []
        query = f"SELECT id, title FROM sessions WHERE {where} ORDER BY updated DESC"
        return self.connection.execute(query, [pattern(word) for word in words.split()]).fetchall()

    def _search_words(self, words: str, limit: int) -> list[tuple[int, str]]:
        quoted = " ".join('"' + word.replace('"', '""') + '"*' for word in words.split())
        if not quoted or not self.searchable:
            return []
        query = (
            f"SELECT rowid / {WORDS_PER_SESSION}, snippet(words, 0, '', '', '…', 12) "
            "FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
        )
        return self.connection.execute(query, (quoted, limit * 4)).fetchall()

    def _search_text(self, words: str, limit: int) -> list[tuple[int, str]]:
        if not words.strip():
            return []
        query = (
            r"SELECT session, user FROM turns WHERE user LIKE ?1 ESCAPE '\' UNION ALL "
            r"SELECT session, text FROM answers WHERE text LIKE ?1 ESCAPE '\' LIMIT ?2"
        )
        rows = self.connection.execute(query, (pattern(words.strip()), limit * 4))
        return [(number, _around(text, words.strip())) for number, text in rows]

    def _summaries(
        self, where: str, values: Sequence[object], found: dict[int, str] | None = None
    ) -> list[Summary]:
        query = f"""
            SELECT id, title, created, updated,
                (SELECT count(*) FROM turns WHERE session = sessions.id),
                (SELECT count(*) FROM answers WHERE session = sessions.id),
                (SELECT json_group_array(DISTINCT models.name) FROM answers
                    JOIN models ON models.id = answers.model WHERE session = sessions.id)
            FROM sessions WHERE {where} ORDER BY updated DESC, id DESC
        """
        return [
            Summary(
                number,
                title,
                created,
                updated,
                turns,
                answers,
                models=tuple(json.loads(names)),
                found=(found or {}).get(number, ""),
            )
            for number, title, created, updated, turns, answers, names in self.connection.execute(
                query, values
            )
        ]

    # Changing.

    def rename(self, number: int, title: str) -> None:
        """Give a session another title; any will do."""
        self._change(
            "UPDATE sessions SET title = ? WHERE id = ? AND deleted IS NULL", title, number
        )

    def delete(self, number: int) -> None:
        """Take a session out of sight; `undelete` brings it back until `purge` is called."""
        self._change(
            "UPDATE sessions SET deleted = ?, revision = revision + 1 "
            "WHERE id = ? AND deleted IS NULL",
            time.time(),
            number,
        )

    def undelete(self, number: int) -> None:
        self._change("UPDATE sessions SET deleted = NULL WHERE id = ?", number)

    @_in_words()
    def _change(self, statement: str, *values: object) -> None:
        with self.writing() as connection:
            if connection.execute(statement, values).rowcount == 0:
                raise _absent(values[-1])

    @_in_words()
    def purge(self, numbers: Sequence[int]) -> None:
        """Remove deleted sessions for good: these, and those that were left over."""
        marks = ",".join("?" * len(numbers))
        with self.writing() as connection:
            query = (
                f"SELECT id FROM sessions WHERE NOT ({_THERE}) "
                f"AND (coalesce(deleted, updated) < ? OR deleted AND id IN ({marks}))"
            )
            long_ago = time.time() - _FORGOTTEN_S
            gone = connection.execute(query, (long_ago, *numbers)).fetchall()
            for (number,) in gone:
                connection.execute("DELETE FROM sessions WHERE id = ?", (number,))
                if self.searchable:
                    first = number * WORDS_PER_SESSION
                    connection.execute(
                        "DELETE FROM words WHERE rowid BETWEEN ? AND ?",
                        (first, first + WORDS_PER_SESSION - 1),
                    )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer chat-tui (schema {version}, this one knows "
            f"{len(MIGRATIONS)}): update chat-tui; nothing was changed."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    # Another program may have done it in the meantime.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")
    with suppress(sqlite3.OperationalError):  # without FTS5 `search` reads the texts themselves
        connection.execute(SEARCH)


def _absent(number: object) -> StoreError:
    return StoreError(f"There is no session {number}; chat-tui sessions list shows them.")


def _has_words(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = 'words'"
    return connection.execute(query).fetchone() is not None


def _reason(error: OSError | sqlite3.Error) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _around(text: str, words: str) -> str:
    at = max(text.lower().find(words.lower()), 0)
    return " ".join(text[max(at - 30, 0) : at + 60].split())
