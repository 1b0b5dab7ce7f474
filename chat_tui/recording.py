"""Writing a conversation down while it happens, without the screen ever waiting for the disk.

    recorder = Recorder(path)
    recorder.watch(Session(...))          # what is written from now on; one that was loaded, or new
    recorder.tick(chat)                   # ten times a second; writes once a second at most
    recorder.close(chat)

A tick compares the tree with what was handed over before, copies what differs and gives it to a
thread, which writes it in one transaction. So the program can be killed at any moment and loses the
last second of the answers that were growing. Where the database cannot be written, `trouble` says
so once, the chat goes on, and everything is tried again later.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chat_tui.answer import Answer, Prompt
from chat_tui.conversation import Conversation
from chat_tui.model import Model
from chat_tui.packing import pack_ints, pack_scores
from chat_tui.rows import WRITE_ANSWER, Row, answer_row, turn_row, write_turn
from chat_tui.schema import word_row
from chat_tui.session import Session, title_of
from chat_tui.store import Store, StoreError
from chat_tui.turn import RunningTurn
from engine.errors import EngineError
from engine.messages import TokenScore

PERIOD_S = 1.0
RETRY_S = 30.0
_CLOSING_S = 20.0


class Recorded(Protocol):
    """What is looked at: `chat.Chat`, or `rating.Rating`."""

    @property
    def conversation(self) -> Conversation: ...

    @property
    def turn(self) -> RunningTurn | None: ...


@dataclass
class _Written:
    """An answer to write: its row, and the scores from `start` on that were not yet."""

    answer: int
    turn: int
    prompt: Prompt
    model: Model
    row: Row
    start: int
    scores: list[TokenScore | None]
    indexed: str | None
    """The text for the search index, once it is whole."""


@dataclass
class _Batch:
    session: Session
    head: int | None
    shown: int | None
    turns: list[tuple[Row, str]] = field(default_factory=list)
    answers: list[_Written] = field(default_factory=list)
    gone_turns: list[int] = field(default_factory=list)
    gone_answers: list[int] = field(default_factory=list)


class Recorder:
    """Keeps one conversation after the other.

    Attributes:
        session: what is being written; its `id` is None until it is in the database.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
    ) -> None:
        self.session = Session()
        self._path = path
        self._clock, self._today = clock, today
        self._due = 0.0
        self._turns: dict[int, Row] = {}
        self._answers: dict[int, tuple[object, ...]] = {}
        self._scored: dict[int, tuple[int, int]] = {}  # how often rescored, how many written
        self._place: tuple[int | None, int | None] = (None, None)
        self._batches: queue.SimpleQueue[_Batch | threading.Event | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[tuple[Session, str]] = queue.SimpleQueue()
        self._reported = False
        self._said = ""
        self._writer = _Writer(path, self._batches, self._news)
        self._thread: threading.Thread | None = None

    def watch(self, session: Session) -> None:
        """Write this one from now on, and what is left of the last one. What was loaded is in the
        database already."""
        self._hand_over(self.session.conversation, self._place[1])
        self.session = session
        self._forget()
        if session.id is not None:
            tree = session.conversation.tree
            self._turns = {turn.id: turn_row(turn) for turn in tree.turns.values()}
            self._answers = {answer.id: _state(answer) for answer in tree.answers.values()}
            self._scored = {
                answer.id: (answer.rescored, len(answer.scores)) for answer in tree.answers.values()
            }
            head = session.conversation.head
            self._place = (
                head.id if head is not None else None,
                session.shown.id if session.shown is not None else None,
            )

    def tick(self, chat: Recorded) -> None:
        """Hand over what is new, if the last time is long enough ago."""
        self._hear()
        now = self._clock()
        if now >= self._due:
            self._due = now + PERIOD_S
            self._look_at(chat)

    def hurry(self, chat: Recorded) -> None:
        """Hand over what is new, now."""
        self._hear()
        self._look_at(chat)

    def trouble(self) -> str:
        """What went wrong since the last call, in one line; mostly nothing."""
        self._hear()
        said, self._said = self._said, ""
        return said

    def flush(self, chat: Recorded) -> None:
        """Write what is new, and wait for it."""
        self._hear()
        self._look_at(chat)
        if self._thread is not None and self._thread.is_alive():
            written = threading.Event()
            self._batches.put(written)
            written.wait(_CLOSING_S)
            self._hear()

    def close(self, chat: Recorded) -> None:
        """Write what is left, and wait for it."""
        self._hear()
        self._look_at(chat)
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join(_CLOSING_S)
            self._hear()

    # What is new.

    def _forget(self) -> None:
        """Nothing of this session counts as written."""
        self._turns, self._answers, self._scored = {}, {}, {}
        self._place = (None, None)

    def _hear(self) -> None:
        """Take what the writer says."""
        while not self._news.empty():
            session, trouble = self._news.get()
            if session is not self.session:
                continue
            self._forget()
            if trouble:
                self._due = self._clock() + RETRY_S
                if not self._reported:
                    self._said = trouble
                    self._reported = True
            else:
                self._due = 0.0
                self._said = "This conversation was continued elsewhere; it goes on as a new one."

    def _look_at(self, chat: Recorded) -> None:
        if chat.conversation is not self.session.conversation:
            self.watch(Session(conversation=chat.conversation))
        shown = chat.turn.turn if chat.turn is not None else None
        self._hand_over(chat.conversation, shown.id if shown is not None else None)

    def _hand_over(self, conversation: Conversation, shown: int | None) -> None:
        batch = self._batch(conversation, shown)
        if batch is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._writer.run, name="store", daemon=True)
            self._thread.start()
        self._batches.put(batch)

    def _batch(self, conversation: Conversation, shown: int | None) -> _Batch | None:
        """What differs from what was handed over before."""
        tree, head = conversation.tree, conversation.head
        place = (head.id if head is not None else None, shown)
        batch = _Batch(self.session, *place)
        for turn in tree.turns.values():
            row = turn_row(turn)
            if self._turns.get(turn.id) != row:
                self._turns[turn.id] = row
                batch.turns.append((row, turn.user))
        for answer in tree.answers.values():
            state = _state(answer)
            if self._answers.get(answer.id) != state:
                self._answers[answer.id] = state
                batch.answers.append(self._written(answer))
        batch.gone_turns = [number for number in self._turns if number not in tree.turns]
        batch.gone_answers = [number for number in self._answers if number not in tree.answers]
        for number in batch.gone_turns:
            del self._turns[number]
        for number in batch.gone_answers:
            del self._answers[number]
        nothing = not (batch.turns or batch.answers or batch.gone_turns or batch.gone_answers)
        if nothing and (place == self._place or not self._turns):
            return None
        self._place = place
        if not self.session.title:
            first = next(iter(tree.turns.values()), None)
            self.session.title = title_of(first.user if first is not None else "")
        self.session.created = self.session.created or self._today()
        self.session.updated = self._today()
        return batch

    def _written(self, answer: Answer) -> _Written:
        rescored, start = self._scored.get(answer.id, (0, 0))
        if rescored != answer.rescored:
            start = 0
        scores = list(answer.scores[start:]) if len(answer.scores) > start else []
        self._scored[answer.id] = answer.rescored, start + len(scores)
        whole = answer.text if answer.reason is not None else None
        return _Written(
            answer.id,
            answer.turn,
            answer.prompt,
            answer.model,
            answer_row(answer),
            start,
            scores,
            whole,
        )


def save(session: Session, path: Path | None = None) -> int:
    """Write a whole session at once, as a new one; returns its number.

    Raises:
        StoreError: it could not be written.
    """
    session.id, session.revision = None, 0
    recorder = Recorder(path, today=lambda: session.updated or time.time())
    recorder.session = session
    shown = session.shown.id if session.shown is not None else None
    batch = recorder._batch(session.conversation, shown)
    if batch is None:
        raise StoreError("There is nothing in it to be saved.")
    writer = recorder._writer
    try:
        return writer.write(batch)
    except sqlite3.Error as error:
        raise StoreError(f"It cannot be saved: {error}.") from error
    finally:
        writer.close()


def _state(answer: Answer) -> tuple[object, ...]:
    """Changes whenever an answer does."""
    return (
        len(answer.tokens),
        len(answer.text),
        answer.reason,
        answer.closing,
        len(answer.scores),
        answer.rescored,
    )


class _Diverged(Exception):
    """Another program has written to the session."""


class _Writer:
    """The thread's half: batches in, transactions out."""

    def __init__(
        self,
        path: Path | None,
        batches: queue.SimpleQueue[_Batch | threading.Event | None],
        news: queue.SimpleQueue[tuple[Session, str]],
    ) -> None:
        self._path = path
        self._batches, self._news = batches, news
        self._store: Store | None = None
        self._prompts: dict[tuple[int, Prompt], int] = {}
        self._models: dict[Model, int] = {}

    def run(self) -> None:
        while (batch := self._batches.get()) is not None:
            if isinstance(batch, threading.Event):
                batch.set()
                continue
            try:
                self.write(batch)
            except _Diverged:
                batch.session.id, batch.session.revision = None, 0
                self._news.put((batch.session, ""))
            except (sqlite3.Error, EngineError, ValueError) as error:
                text = f"The conversation is not being saved: {str(error).rstrip('.')}."
                self._prompts.clear()
                self._models.clear()
                self._news.put((batch.session, text))
        self.close()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def write(self, batch: _Batch) -> int:
        """One transaction; the session's number."""
        if self._store is None:
            self._store = Store.open(self._path)
        store, session = self._store, batch.session
        with store.writing() as connection:
            number = self._session(connection, batch)
            for row, user in batch.turns:
                write_turn(connection, number, row)
                if store.searchable:
                    self._index(connection, word_row(number, turn=int(str(row[0]))), user)
            for answer in batch.answers:
                self._answer(connection, number, answer)
                if answer.indexed is not None and store.searchable:
                    self._index(connection, word_row(number, answer=answer.answer), answer.indexed)
            for table, gone in (("turns", batch.gone_turns), ("answers", batch.gone_answers)):
                for place in gone:
                    connection.execute(
                        f"DELETE FROM {table} WHERE session = ? AND id = ?", (number, place)
                    )
        session.revision += session.id is not None
        session.id = number
        return number

    def _session(self, connection: sqlite3.Connection, batch: _Batch) -> int:
        session = batch.session
        values = (session.updated, batch.head, batch.shown)
        if session.id is None:
            inserted = connection.execute(
                "INSERT INTO sessions (updated, head, shown, title, created, rated) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*values, session.title, session.created, session.rated),
            )
            assert inserted.lastrowid is not None
            return inserted.lastrowid
        query = "SELECT revision, deleted FROM sessions WHERE id = ?"
        row = connection.execute(query, (session.id,)).fetchone()
        if row != (session.revision, None):
            raise _Diverged
        connection.execute(
            "UPDATE sessions SET updated = ?, head = ?, shown = ?, revision = revision + 1 "
            "WHERE id = ?",
            (*values, session.id),
        )
        return session.id

    def _answer(self, connection: sqlite3.Connection, number: int, answer: _Written) -> None:
        prompt = self._prompt(connection, number, answer.prompt)
        model = self._model(connection, answer.model)
        connection.execute(
            WRITE_ANSWER, (number, answer.answer, answer.turn, prompt, model, *answer.row)
        )
        if answer.scores:
            connection.execute(
                "DELETE FROM scores WHERE session = ? AND answer = ? AND start >= ?",
                (number, answer.answer, answer.start),
            )
            connection.execute(
                "INSERT INTO scores VALUES (?, ?, ?, ?)",
                (number, answer.answer, answer.start, pack_scores(answer.scores)),
            )

    def _prompt(self, connection: sqlite3.Connection, number: int, prompt: Prompt) -> int:
        key = (number, prompt)
        if key not in self._prompts:
            values = (
                number,
                pack_ints(prompt.preface),
                pack_ints(prompt.ids),
                prompt.anew,
                prompt.dropped,
                prompt.system,
                prompt.tools,
            )
            same = connection.execute(
                "SELECT id FROM prompts WHERE session = ? AND preface = ? AND ids = ? "
                "AND anew = ? AND dropped = ? AND system IS ? AND tools = ?",
                values,
            ).fetchone()
            if same is None:
                inserted = connection.execute(
                    "INSERT INTO prompts (session, preface, ids, anew, dropped, system, tools) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    values,
                )
                same = (inserted.lastrowid,)
            self._prompts[key] = same[0]
        return self._prompts[key]

    def _model(self, connection: sqlite3.Connection, model: Model) -> int:
        if model not in self._models:
            values = (
                model.name,
                model.path,
                model.variant,
                model.size,
                model.fingerprint,
                model.dtype,
                model.device,
            )
            connection.execute(
                "INSERT OR IGNORE INTO models "
                "(name, path, variant, size, fingerprint, dtype, device) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            (self._models[model],) = connection.execute(
                "SELECT id FROM models WHERE name = ? AND path = ? AND variant = ? AND size = ? "
                "AND fingerprint = ? AND dtype = ? AND device = ?",
                values,
            ).fetchone()
        return self._models[model]

    @staticmethod
    def _index(connection: sqlite3.Connection, row: int, text: str) -> None:
        connection.execute("INSERT OR REPLACE INTO words (rowid, text) VALUES (?, ?)", (row, text))
