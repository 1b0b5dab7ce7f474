"""The database's tables, and how each version came out of the one before.

A statement in `MIGRATIONS` is never changed once it was released: what is to be different is a new
entry. `PRAGMA user_version` counts the entries that were run.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # head: the answer that the path ends with; shown: the turn without a pick behind it.
        # revision counts the writes, so that a program notices another one's.
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, created REAL NOT NULL,
            updated REAL NOT NULL, head INTEGER, shown INTEGER, revision INTEGER NOT NULL DEFAULT 0,
            deleted REAL)""",
        """CREATE TABLE models (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, path TEXT NOT NULL, variant TEXT NOT NULL,
            size INTEGER NOT NULL, fingerprint TEXT NOT NULL, dtype TEXT NOT NULL,
            device TEXT NOT NULL,
            UNIQUE (name, path, variant, size, fingerprint, dtype, device))""",
        """CREATE TABLE prompts (
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            preface BLOB NOT NULL, ids BLOB NOT NULL, anew INTEGER NOT NULL,
            dropped INTEGER NOT NULL, system TEXT, tools INTEGER NOT NULL)""",
        "CREATE INDEX prompts_of_session ON prompts (session)",
        """CREATE TABLE turns (
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, id INTEGER NOT NULL,
            parent INTEGER, user TEXT NOT NULL, picked INTEGER, asked_at REAL NOT NULL,
            PRIMARY KEY (session, id))""",
        # tokens, mask, ends, closing: 32-bit integers; calls, forced: JSON.
        """CREATE TABLE answers (
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, id INTEGER NOT NULL,
            turn INTEGER NOT NULL, prompt INTEGER NOT NULL REFERENCES prompts ON DELETE CASCADE,
            model INTEGER NOT NULL REFERENCES models, seed INTEGER NOT NULL,
            temperature REAL NOT NULL, top_k INTEGER, given INTEGER NOT NULL, source INTEGER,
            tokens BLOB NOT NULL, mask BLOB NOT NULL, ends BLOB NOT NULL, text TEXT NOT NULL,
            calls TEXT NOT NULL, forced TEXT NOT NULL, closing BLOB NOT NULL, reason TEXT,
            scored INTEGER NOT NULL, PRIMARY KEY (session, id))""",
        # Chunks, because an answer grows and its scores are many: start is the first token's place.
        """CREATE TABLE scores (
            session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
            answer INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL,
            PRIMARY KEY (session, answer, start))""",
    ),
    (
        # What was said of a turn's answers when they were rated, as JSON; and the file whose
        # prompts a session rates.
        "ALTER TABLE turns ADD COLUMN judgement TEXT",
        "ALTER TABLE sessions ADD COLUMN rated TEXT NOT NULL DEFAULT ''",
    ),
)

SEARCH = "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize='unicode61')"
"""The index over messages and answers. Not a migration: not every SQLite has FTS5."""

WORDS_PER_SESSION = 1 << 32


def word_row(session: int, *, turn: int | None = None, answer: int | None = None) -> int:
    """The row of `words` that a message, or an answer, has."""
    place = 2 * turn if turn is not None else 2 * (answer or 0) + 1
    return session * WORDS_PER_SESSION + place


def pattern(words: str) -> str:
    r"""For LIKE with `ESCAPE '\'`: `words` anywhere in a text."""
    for special in "\\%_":
        words = words.replace(special, f"\\{special}")
    return f"%{words}%"
