"""Conversations are kept while they happen, found again, and never damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from chat_tui.packing import pack_scores, unpack_scores
from chat_tui.recording import Recorder, save
from chat_tui.schema import MIGRATIONS
from chat_tui.session import Session, title_of
from chat_tui.store import Store, StoreError
from chat_tui.tree import Judgement
from engine.messages import Alternative, TokenScore
from tests.chat_tui.judging import Said, judge
from tests.chat_tui.talking import Talk


class Kept(Talk):
    """A chat that is recorded; `save` lets a second pass."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.recorder = Recorder(path, clock=lambda: self.now)
        self.path = path

    def save(self) -> None:
        self.now += 1.1
        self.recorder.tick(self.chat)

    def close(self) -> None:
        self.recorder.close(self.chat)

    def resumed(self) -> Kept:
        other = Kept(self.path)
        with_store = Store.open(self.path)
        number = self.recorder.session.id
        assert number is not None
        session = with_store.load(number)
        other.chat.open(session.conversation, session.shown)
        other.recorder.watch(session)
        return other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def kept(path: Path) -> Kept:
    """Two turns; the second has no pick yet, and the first has been forked."""
    kept = Kept(path)
    kept.ask("What is red?", "The rose", "A fox", pick=1)
    kept.save()
    kept.ask("And blue?", "The sea", "Ink", pick=0)
    kept.chat.undo()
    kept.chat.fork(kept.chat.conversation.tree.answers[3], 1, " sky", 1)
    kept.answer(" above")
    kept.save()
    return kept


def score(token: int, logprob: float = -0.25) -> TokenScore:
    others = (Alternative(7, b"\xe2\x88", -0.5), Alternative(token, "∂".encode(), logprob))
    return TokenScore(token, "∂".encode(), logprob, None, 1.25, 1, others)


def test_a_session_comes_back_as_it_was(kept: Kept) -> None:
    kept.close()
    with Store.open(kept.path) as store:
        (summary,) = store.sessions()
        session = store.load(summary.id)
        assert (summary.title, summary.turns, summary.answers) == ("What is red?", 2, 5)
        tree, old = session.conversation.tree, kept.chat.conversation.tree
        assert tree.turns == old.turns
        assert session.conversation.tokens == kept.chat.conversation.tokens
        assert session.conversation.mask == kept.chat.conversation.mask
        assert session.shown is tree.turns[2]
        assert tree.answers[5].source == 3


def test_a_resumed_session_goes_on_where_it_stood(kept: Kept) -> None:
    kept.close()
    other = kept.resumed()
    assert other.shown == kept.shown
    other.chat.pick(2)
    other.ask("Third", "x", "y", pick=0)
    assert other.kept == ["What is red?", "A fox", "And blue?", "The sky above", "Third", "x"]
    other.close()
    with Store.open(kept.path) as store:
        assert [(s.id, s.turns) for s in store.sessions()] == [(1, 3)]


def test_a_growing_answer_is_kept_and_counts_as_stopped_when_the_program_is_gone(
    kept: Kept,
) -> None:
    kept.chat.pick(0)
    kept.chat.send("Third")
    kept.drain()
    kept.backend.start()
    kept.backend.step("a", "b")
    kept.drain()
    kept.save()
    kept.backend.step("c", "d")
    kept.drain()
    kept.save()
    wait_for(kept.path, "SELECT count(*) FROM answers WHERE text = 'ac'", 1)
    with Store.open(kept.path) as store:
        answers = store.load(1).conversation.tree.turns[3].answers
    assert [(answer.text, answer.reason) for answer in answers] == [
        ("ac", "cancelled"),
        ("bd", "cancelled"),
    ]
    kept.close()


def wait_for(path: Path, query: str, value: object) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with suppress(sqlite3.OperationalError), sqlite3.connect(path) as connection:
            if connection.execute(query).fetchone()[0] == value:
                return
        time.sleep(0.01)
    raise AssertionError(query)


def test_nothing_is_written_before_there_is_something(path: Path) -> None:
    kept = Kept(path)
    kept.save()
    kept.close()
    assert not path.exists()


def test_a_message_that_came_to_nothing_is_not_kept(path: Path) -> None:
    kept = Kept(path)
    kept.chat.send("Hi")
    kept.drain()
    kept.backend.start()
    kept.drain()
    kept.save()
    kept.chat.stop()
    kept.backend.finish("cancelled")
    kept.drain()
    kept.close()
    with Store.open(path) as store:
        assert store.sessions() == []
        assert store.last() is None


def test_a_new_conversation_is_a_new_session_and_the_old_one_is_whole(kept: Kept) -> None:
    kept.chat.send("Third")
    kept.drain()
    kept.backend.start()
    kept.backend.step("a", "b")
    kept.drain()
    kept.chat.new()
    kept.ask("Another", "one", "two", pick=0)
    kept.close()
    with Store.open(kept.path) as store:
        assert [(s.title, s.turns) for s in store.sessions()] == [
            ("Another", 1),
            ("What is red?", 3),
        ]


def test_two_programs_on_one_session_do_not_write_over_each_other(kept: Kept) -> None:
    kept.close()
    one, two = kept.resumed(), kept.resumed()
    one.chat.pick(0)
    one.ask("from one", "x", "y", pick=0)
    one.close()
    two.chat.pick(1)
    two.ask("from two", "x", "y", pick=1)
    two.save()
    deadline = time.monotonic() + 5
    while not (trouble := two.recorder.trouble()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "continued elsewhere" in trouble
    two.close()
    with Store.open(kept.path) as store:
        texts = {
            s.id: [pick.user for pick in store.load(s.id).conversation.path]
            for s in store.sessions()
        }
    assert texts == {
        1: ["What is red?", "And blue?", "from one"],
        2: ["What is red?", "And blue?", "from two"],
    }


def test_scores_come_back_exactly_and_only_when_they_are_looked_at(kept: Kept) -> None:
    answer = kept.chat.conversation.tree.answers[1]
    answer.scores = [score(5), None]
    kept.save()
    answer.scores = [score(5), None, score(6, -1e-300)]
    kept.close()
    with Store.open(kept.path) as store:
        scores = store.load(1).conversation.tree.answers[1].scores
        assert len(scores) == 3
        assert list(scores) == answer.scores


def test_floats_of_four_bytes_take_four() -> None:
    short = [score(n, -0.5) for n in range(1000)]
    exact = [score(n, -0.1) for n in range(1000)]
    assert unpack_scores(pack_scores(short)) == short
    assert unpack_scores(pack_scores(exact)) == exact
    assert unpack_scores(pack_scores([])) == []


def test_the_database_is_its_owners_alone(kept: Kept) -> None:
    kept.close()
    for file in kept.path.parent.glob("sessions.db*"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_newer_database_is_refused_and_left_as_it_is(kept: Kept) -> None:
    kept.close()
    with sqlite3.connect(kept.path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = kept.path.read_bytes()
    with pytest.raises(StoreError, match="newer chat-tui"):
        Store.open(kept.path)
    assert kept.path.read_bytes() == before
    other = Kept(kept.path)
    other.ask("Hi", "one", "two", pick=0)
    other.close()
    assert "newer chat-tui" in other.recorder.trouble()
    assert kept.path.read_bytes() == before


def test_an_older_database_is_brought_up_to_date(path: Path) -> None:
    """As the first version wrote it, with a pick in it."""
    with sqlite3.connect(path) as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO sessions (title, created, updated) VALUES ('Old', 1, 2)")
        connection.execute("INSERT INTO turns VALUES (1, 1, NULL, 'What is red?', 7, 3.0)")
    connection.close()
    with Store.open(path) as store:
        (turn,) = store.load(1).conversation.tree.turns.values()
        assert (turn.user, turn.picked, turn.judgement) == ("What is red?", 7, None)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()
    # And then it takes what the older one could not hold.
    kept = Kept(path)
    kept.ask("And blue?", "The sea", "Ink")
    (turn,) = kept.chat.conversation.tree.turns.values()
    turn.judgement = Judgement("bad", (1, 2), True, 5.0, 2.5, "key")
    kept.close()
    with Store.open(path) as store:
        (read,) = store.load(2).conversation.tree.turns.values()
        assert read.judgement == turn.judgement
        assert [turn.user for turn in store.judged()] == ["What is red?", "And blue?"]


def test_what_is_no_database_is_said_in_one_line(path: Path) -> None:
    path.write_text("not a database, but long enough to be looked at as if it were one" * 20)
    with pytest.raises(StoreError, match="cannot be used") as error:
        Store.open(path)
    assert "\n" not in str(error.value)


def test_a_disk_that_refuses_is_said_once_and_everything_is_written_later(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    kept = Kept(folder / "sessions.db")
    said = []
    for text in ("one", "two"):
        kept.ask(text, "a", "b", pick=0)
        kept.now += 60
        kept.save()
        deadline = time.monotonic() + 2
        while not said and time.monotonic() < deadline:
            said += [line for line in [kept.recorder.trouble()] if line]
            time.sleep(0.01)
    assert len(said) == 1
    assert "cannot be opened" in said[0]
    time.sleep(0.1)
    kept.recorder.trouble()
    folder.mkdir()
    kept.close()
    with Store.open(folder / "sessions.db") as store:
        assert [summary.turns for summary in store.sessions()] == [2]


def test_words_are_found_in_titles_messages_and_answers(kept: Kept) -> None:
    kept.chat.new()
    kept.ask("你好世界 and 100%", "Grüße", "two", pick=0)
    kept.close()
    with Store.open(kept.path) as store:

        def found(words: str) -> list[int]:
            return [summary.id for summary in store.search(words)]

        assert found("fox") == [1]
        assert found("rose the") == [1]
        assert found("GRÜ") == found("grüße") == [2]
        assert found("世界") == [2]
        assert found("100%") == [2]
        assert found('"') == found("zebra") == found("") == []
        assert "fox" in store.search("fox")[0].found
        store.searchable = False
        assert found("fox") == [1]


def test_what_is_deleted_can_come_back_until_it_is_purged(kept: Kept) -> None:
    kept.close()
    with Store.open(kept.path) as store:
        store.delete(1)
        assert store.sessions() == []
        with pytest.raises(StoreError, match="no session 1"):
            store.load(1)
        store.purge([])
        store.undelete(1)
        assert [summary.id for summary in store.sessions()] == [1]
        store.rename(1, "'; DROP TABLE turns; --\n∂")
        assert store.sessions()[0].title == "'; DROP TABLE turns; --\n∂"
        store.delete(1)
        store.purge([1])
        for table in ("sessions", "turns", "answers", "scores", "prompts", "words"):
            query = f"SELECT count(*) FROM {table}"
            assert store.connection.execute(query).fetchone() == (0,)
        with pytest.raises(StoreError, match="no session 1"):
            store.rename(1, "x")


def test_a_long_session_opens_with_few_questions_and_reads_scores_later(path: Path) -> None:
    kept = Kept(path)
    tree = kept.chat.conversation.tree
    kept.ask("message 0", "a " * 200, "b " * 200, pick=0)
    first = kept.chat.conversation.path[0].answer
    first.scores = [score(5)] * len(first.tokens)
    for number in range(1, 60):
        parent = kept.chat.conversation.head
        turn = tree.add_turn(parent, f"message {number}")
        for _ in range(3):
            answer = tree.add_answer(turn, prompt=first.prompt, model=first.model)
            answer.tokens, answer.mask, answer.ends = first.tokens, first.mask, first.ends
            answer.text, answer.reason, answer.scores = first.text, "stop", first.scores
        kept.chat.conversation.pick(answer)
    kept.close()
    with Store.open(path) as store:
        said: list[str] = []
        store.connection.set_trace_callback(said.append)
        session = store.load(1)
        store.connection.set_trace_callback(None)
        assert len(session.conversation.path) == 60
        # As many questions as for a short one, and none for what is read when it is looked at.
        assert len(said) < 10
        assert not [line for line in said if "FROM scores" in line]
        last = session.conversation.path[-1].answer
        assert last.scores[0] == first.scores[0]


def test_a_session_of_rated_prompts_is_found_by_their_file_and_is_not_the_last_conversation(
    path: Path, tmp_path: Path
) -> None:
    kept = Kept(path)
    kept.ask("Hi", "one", "two", pick=0)
    kept.close()
    rating = judge()
    rating.judge("skip", Said(), Said("no"))
    rating.session.rated = str(tmp_path / "prompts.txt")
    number = save(rating.session, path)
    with Store.open(path) as store:
        assert store.last() == 1
        assert store.rated(tmp_path / "x" / ".." / "prompts.txt") == [number]
        assert store.load(number).rated == rating.session.rated
        assert store.rated(tmp_path / "other.txt") == []


def test_killing_the_program_loses_nothing_that_is_older_than_a_second(path: Path) -> None:
    script = f"""
import time
from pathlib import Path
from tests.chat_tui.test_store import Kept
kept = Kept(Path({str(path)!r}))
kept.ask("What is red?", "The rose", "A fox", pick=1)
kept.chat.send("Go on")
kept.drain()
kept.backend.start()
for number in range(10**6):
    kept.backend.step(f"{{number}} ", "x")
    kept.drain()
    kept.now = time.monotonic()
    kept.recorder.tick(kept.chat)
    print(number, flush=True)
    time.sleep(0.01)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    shown: list[tuple[float, int]] = []
    for line in process.stdout:
        shown.append((time.monotonic(), int(line)))
        if shown[-1][0] - shown[0][0] > 1.6:
            break
    process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    process.wait()
    with Store.open(path) as store:
        answer = store.load(1).conversation.tree.turns[2].answers[0]
    older = [number for when, number in shown if when < killed - 1.3]
    assert len(answer.tokens) > older[-1]


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Hi", "Hi"),
        ("  two\n\nlines ", "two lines"),
        ("", "(empty)"),
        ("word " * 30, "word " * 10 + "word…"),
        ("x" * 200, "x" * 59 + "…"),
        ("Read a.txt\n\n--- a.txt ---\nx\n--- end of a.txt ---", "Read a.txt"),
    ],
)
def test_a_title_is_the_first_message_shortened(message: str, title: str) -> None:
    assert title_of(message) == title
    assert Session().title == ""
