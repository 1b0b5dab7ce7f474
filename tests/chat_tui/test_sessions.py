"""Saved sessions in the program: recorded, listed, opened, deleted and brought back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.recording import save
from chat_tui.screens.sessions import SessionsScreen
from chat_tui.session import Session, title_of
from chat_tui.settings import Settings
from chat_tui.store import Store
from engine.messages import Overflowed
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.pictures import SIZES, Clock, Snap, by_size, pictures
from tests.chat_tui.running import Running, running, until
from tests.chat_tui.talking import Talk

ONE = Settings(samples=1)
LIBRARY = (
    ("Why is the sky blue?", "Because of **Rayleigh scattering**: air scatters blue light most."),
    ("Name three rivers of Europe, and say where each begins.", "The Rhine begins in the Alps."),
    ("多摩川はどこから流れていますか。", "多摩川は山梨県の笠取山から流れています。"),
    ("How long does light take from the sun? Be exact.", "Eight minutes and nineteen seconds."),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def say(run: Running, text: str, answer: str) -> None:
    await run.send(text)
    run.backend.answer(answer)
    await run.settle()


async def two_sessions(path: Path) -> None:
    for text, answer in (("What is red?", "A fox"), ("What is blue?", "The sea")):
        async with running(ONE, keep=path) as run:
            await say(run, text, answer)


async def test_a_conversation_is_recorded_while_it_happens(path: Path) -> None:
    async with running(ONE, keep=path) as run:
        await say(run, "What is red?", "A fox")
        await run.send("/new")
        await say(run, "What is blue?", "The sea")
    with Store.open(path) as store:
        assert [summary.title for summary in store.sessions()] == ["What is blue?", "What is red?"]


async def test_nothing_is_kept_where_nothing_is_to_be_kept(tmp_path: Path) -> None:
    async with running(ONE) as run:
        await say(run, "Hi", "one")
        await run.press("ctrl+o")
        assert "--private" in run.told
    assert list(tmp_path.iterdir()) == []


async def test_the_list_is_searched_looked_into_and_one_is_opened(path: Path) -> None:
    await two_sessions(path)
    async with running(ONE, keep=path, size=(100, 30)) as run:
        await say(run, "Third", "three")
        await run.press("ctrl+o")
        screen = run.app.screen
        assert isinstance(screen, SessionsScreen)
        assert screen.list.option_count == 3
        screen.search.value = "fox"
        await until(run.pilot, lambda: screen.list.option_count == 1)
        assert "A fox" in str(screen.query_one("#preview").render())
        await run.press("enter")
        assert run.kept == ["A fox"]
        assert [entry.text for entry in run.app.transcript.entries] == ["What is red?", "A fox"]
        await say(run, "And then?", "It runs")
    with Store.open(path) as store:
        turns = {summary.title: summary.turns for summary in store.sessions()}
    assert turns == {"What is red?": 2, "What is blue?": 1, "Third": 1}


async def test_deleting_asks_once_and_can_be_undone_until_the_program_ends(path: Path) -> None:
    await two_sessions(path)
    async with running(ONE, keep=path) as run:
        await run.press("ctrl+o", "down", "d")
        screen = run.app.screen
        assert isinstance(screen, SessionsScreen)
        assert "d again" in str(screen.query_one("#ask").render())
        assert screen.list.option_count == 2
        await run.press("d")
        assert screen.list.option_count == 1
        await run.press("u")
        assert screen.list.option_count == 2
        await run.press("d", "d", "escape")
        with Store.open(path) as store:
            assert [summary.title for summary in store.sessions()] == ["What is red?"]
            assert store.connection.execute("SELECT count(*) FROM sessions").fetchone() == (2,)
    with Store.open(path) as store:
        assert store.connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


async def test_a_conversation_gets_any_name_from_the_prompt(path: Path) -> None:
    async with running(ONE, keep=path) as run:
        await run.send("/rename")
        assert "/rename NAME" in run.told
        await run.press("ctrl+u")
        await say(run, "What is red?", "A fox")
        await run.send("/rename 1: Füchse & [red]/..")
        assert "is now called 1: Füchse & [red]/.." in run.told
        await say(run, "And blue?", "The sea")
    async with running(ONE, keep=path) as run:
        await run.send("/rename Before the first word")
        await say(run, "Hi", "one")
    with Store.open(path) as store:
        titles = [summary.title for summary in store.sessions()]
    assert titles == ["Before the first word", "1: Füchse & [red]/.."]
    async with running(ONE) as run:
        await run.send("/rename x")
        assert "--private" in run.told


async def test_a_session_is_renamed_in_the_list(path: Path) -> None:
    await two_sessions(path)
    async with running(ONE, keep=path) as run:
        await say(run, "Third", "three")
        run.app.keeping.flush()
        await run.press("ctrl+o", "down", "r")
        screen = run.app.screen
        assert isinstance(screen, SessionsScreen)
        assert screen.naming.value == "Third"
        screen.naming.value = "  The third\tone "
        await run.press("enter")
        assert screen.list.has_focus
        await run.press("down", "r", *"!!", "escape")  # as it was
        await run.press("escape")
        assert run.app.screen is run.app.main
        # The one that is open goes on under its new name.
        await say(run, "More", "four")
        await run.send(f"/export md {path.parent / 'third.md'}")
    with Store.open(path) as store:
        titles = [summary.title for summary in store.sessions()]
    assert titles == ["The third one", "What is blue?", "What is red?"]
    assert (path.parent / "third.md").read_text("utf-8").startswith("# The third one\n")


async def test_a_preview_says_where_nothing_was_picked(path: Path) -> None:
    async with running(Settings(samples=2), keep=path) as run:
        await run.send("Which?")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("ctrl+o")
        assert "2 answers, none picked" in str(run.app.screen.query_one("#preview").render())


async def test_the_list_opens_over_what_is_looked_at_but_not_over_a_question(path: Path) -> None:
    async with running(ONE, keep=path) as run:
        await say(run, "Hi", "one")
        await run.press("ctrl+t", "ctrl+o")
        assert isinstance(run.app.screen, SessionsScreen)
        assert len(run.app.screen_stack) == 2
        await run.press("escape")
        await run.send("Much more")
        run.backend.say(Overflowed(run.backend.ask.ask, 9000, 2048, (6000, 3000)))
        await run.settle()
        question = run.app.screen
        for key in ("ctrl+t", "ctrl+o"):
            await run.press(key)
            assert run.app.screen is question
        await run.press("escape")
        assert run.text == "Much more"


async def test_a_damaged_database_is_said_in_a_line(path: Path) -> None:
    await two_sessions(path)
    with Store.open(path) as store:
        store.connection.execute("UPDATE answers SET mask = x'010203' WHERE session = 1")
        store.connection.execute("DROP TABLE prompts")
    async with running(ONE, keep=path) as run:
        await run.press("ctrl+o", "down", "enter")
        assert "cannot be used: no such table" in run.told
        assert run.app.screen is run.app.main


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_how_the_list_looks(
    snap_compare: Snap, size: tuple[int, int], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monday = 1_790_000_000.0
    for number, (said, answer) in enumerate(LIBRARY):
        talk = Talk(Settings(samples=2))
        talk.ask(said, answer, "Another answer.", pick=None if number == 1 else 0)
        shown = talk.chat.turn.turn if talk.chat.turn is not None else None
        at = monday + 86_400 * number
        save(Session(None, title_of(said), at, at, talk.chat.conversation, shown), path)
    app = ChatApp(ONE, FakeBackend(), keep=path, clock=Clock().monotonic)

    async def before(pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+o", "down")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_the_session_that_is_open_is_not_deleted(path: Path) -> None:
    async with running(ONE, keep=path) as run:
        await say(run, "Hi", "one")
        run.app.keeping.flush()
        await run.press("ctrl+o", "down", "d")
        assert "is open" in str(run.app.screen.query_one("#ask").render())


async def test_what_cannot_be_kept_is_said_once_and_the_chat_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.mkdir()
    async with running(ONE, keep=path) as run:
        await say(run, "Hi", "one")
        run.app.keeping.flush()
        await run.settle()
        await say(run, "More", "two")
        run.app.keeping.flush()
        await run.settle()
        assert run.kept == ["one", "two"]
        notices = [entry.text for entry in run.app.transcript.entries if "saved" in entry.text]
        assert len(notices) == 1
        await run.press("ctrl+o")
        assert "cannot be opened" in run.told


async def test_the_tree_is_exported_from_the_prompt(tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+2")
        await run.send("/export dpo")
        assert "takes a format" in run.told
        assert run.text == "/export dpo"
        await run.press("ctrl+u")
        await run.send(f"/export dpo {out}")
    (row,) = map(json.loads, out.read_text("utf-8").splitlines())
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("two", "one")
