"""The rating screen: one key for each thing that can be said, and nothing told that is hidden."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot

from chat_tui.look import PLAIN, Look
from chat_tui.paced import STATUS_EVERY
from chat_tui.prompts import FilePrompt, read_prompts
from chat_tui.rate_app import RateApp
from chat_tui.screens.help import HelpScreen
from chat_tui.session import Session
from chat_tui.settings import Settings
from chat_tui.store import Store
from engine.messages import Died, Failed
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.pictures import SIZES, Clock, Snap, by_size, pictures

SETTINGS = Settings(samples=4, temperatures=(0.2, 0.7, 1.0, 1.3), seed=7)
QUESTION = "Twelve boxes of seven apples, and 12 on the table: how many?"
ANSWERS = (
    "Twelve boxes of seven apples are 84 apples.\n\nWith the 12 on the table there are **96** in "
    "all.",
    "There are 96 apples:\n\n- 12 boxes\n- 7 in each\n- 12 more\n\n```python\nprint(12 * 7 + 12)\n"
    "```",
    "I count *96*. The boxes hold 84, and 84 and 12 are 96, so that is the number of apples.",
    "",
)


@dataclass
class Rates:
    """What a test acts on."""

    app: RateApp
    backend: FakeBackend
    pilot: Pilot[None]
    clock: Clock

    async def settle(self) -> None:
        for _ in range(STATUS_EVERY):  # figures are drawn with one in so many drains
            self.app.drain()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        self.clock.now += 7
        await self.pilot.press(*keys)
        await self.settle()

    async def answer(self, *texts: str) -> None:
        """To the prompt that is asked now."""
        self.backend.answer(*(texts or ANSWERS)[: self.backend.ask.samples])
        await self.settle()

    async def until(self, text: str) -> None:
        """A layout that takes two rounds is drawn in between."""
        for _ in range(100):
            if text in self.shown:
                return
            await self.pilot.pause(0.01)
        raise AssertionError(self.shown)

    @property
    def shown(self) -> str:
        """All that the screen shows."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)

    @property
    def told(self) -> str:
        return self.app.told.content.plain

    @property
    def keys(self) -> str:
        return self.app.footer.content.plain

    @property
    def verdicts(self) -> list[object]:
        tree = self.app.rating.conversation.tree
        return [
            tree.answers[turn.picked].text[:2] if turn.picked else turn.verdict
            for turn in tree.turns.values()
            if turn.judgement is not None
        ]


def file(folder: Path, count: int = 100) -> list[FilePrompt]:
    path = folder / "prompts.txt"
    path.write_text("\n".join([QUESTION, *(f"Question {n}?" for n in range(2, count + 1))]))
    return read_prompts(path)


def app_of(
    prompts: list[FilePrompt],
    backend: FakeBackend,
    clock: Clock,
    keep: Path,
    *,
    blind: bool,
    look: Look = PLAIN,
) -> RateApp:
    session = Session(title="Rating prompts.txt", rated="prompts.txt")
    return RateApp(
        SETTINGS,
        backend,
        prompts,
        session,
        file="prompts.txt",
        keep=keep,
        blind=blind,
        look=look,
        clock=clock.monotonic,
    )


@asynccontextmanager
async def rating(
    folder: Path,
    *,
    count: int = 100,
    prompts: list[FilePrompt] | None = None,
    blind: bool = False,
    size: tuple[int, int] = (100, 30),
    look: Look = PLAIN,
) -> AsyncIterator[Rates]:
    backend, clock = FakeBackend(), Clock()
    asked, keep = prompts or file(folder, count), folder / "sessions.db"
    app = app_of(asked, backend, clock, keep, blind=blind, look=look)
    async with app.run_test(size=size) as pilot:
        run = Rates(app, backend, pilot, clock)
        backend.ready()
        await run.settle()
        try:
            yield run
        finally:
            app.close()


async def test_each_verdict_has_its_key(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        for key in "2tbs":
            await run.answer("a", "b", "c", "d")
            await run.press(key)
        await run.answer("a", "b", "c", "d")
        await run.press("right", "down", "enter")
        assert run.verdicts == ["b", "tie", "bad", "skip", "d"]
        assert run.told == "prompt 5: answer 4 · T 1.3 · u takes it back"
        assert "5/100" in run.shown
        assert "8.6 a minute · 11 min left" in run.shown
        await run.press("u")
        assert run.verdicts == ["b", "tie", "bad", "skip"]
        assert "Question 5?" in run.shown


async def test_it_looks_as_the_chat_does_and_the_mouse_picks(tmp_path: Path) -> None:
    async with rating(tmp_path, look=Look("nord", ascii=True)) as run:
        await run.answer("a", "b", "c", "d")
        assert run.app.theme == "nord"
        screen = run.app.screen._compositor
        assert "".join(strip.text for strip in screen.render_strips()).isascii()
        pane = run.app.grid.pane(1)
        await run.pilot.hover(pane)
        line = screen.render_strips()[pane.region.y].text
        await run.pilot.click(offset=(line.index(" pick ") + 2, pane.region.y))
        await run.settle()
        assert run.verdicts == ["b"]


async def test_answers_that_say_the_same_are_told_to(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        await run.answer("a", "a", "a", "a")
        assert run.told == "All answers say the same."
        await run.press("s")
        assert run.told == "prompt 1: skipped · u takes it back"


async def test_what_is_said_is_in_the_database_at_once(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        await run.answer("a", "b", "c", "d")
        await run.pilot.press("3")  # and no drain follows
        deadline = time.monotonic() + 5
        found: list[object] = []
        while not found and time.monotonic() < deadline:
            query = (
                "SELECT answers.text FROM turns JOIN answers ON answers.id = turns.picked "
                "WHERE turns.judgement LIKE '%pick%'"
            )
            connection = sqlite3.connect(tmp_path / "sessions.db")
            with closing(connection), suppress(sqlite3.OperationalError):  # it is being made
                found = connection.execute(query).fetchall()
            time.sleep(0.01)
        assert found == [("c",)]


async def test_answers_grow_on_the_screen_and_are_read_from_the_top(tmp_path: Path) -> None:
    async with rating(tmp_path, size=(80, 24)) as run:
        assert "waiting" not in run.shown
        run.backend.start()
        run.backend.step("some", "words", "of", "four")
        await run.settle()
        run.backend.step(*[" more"] * 4)
        await run.settle()
        assert "some more" in run.shown
        run.backend.step("\n\nline" * 20, "", "", "")
        run.backend.finish()
        await run.settle()
        assert "some more" in run.shown
        # The next is there as a whole when one comes to it.
        await run.answer("one\n\n" * 20, "two", "three", "")
        await run.press("1")
        assert [pane.scroll_offset.y for pane in run.app.grid.panes] == [0] * 4
        assert all(text in run.shown for text in ("one", "two", "three", "It says nothing."))
        await run.press("t")
        assert "waiting" not in run.shown


async def test_a_prompt_that_has_to_wait_says_for_what(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        run.backend.start()
        run.backend.step("a", "b", "c", "d")
        await run.settle()
        await run.press("1")
        assert "waiting for the prompt before; Esc stops it" in run.shown
        await run.press("escape")
        run.backend.finish("cancelled")
        await run.settle()
        assert run.backend.ask.text == "Question 2?"


async def test_blind_nothing_tells_what_made_an_answer(tmp_path: Path) -> None:
    async with rating(tmp_path, blind=True) as run:
        run.backend.start()
        run.backend.step("a", "b", "c", "d")
        await run.settle()
        assert "shown when all of them are there" in run.shown
        run.backend.finish()
        await run.settle()
        assert {p.text for p in run.app.grid.panes} == {"a", "b", "c", "d"}
        assert [p.text for p in run.app.grid.panes] != ["a", "b", "c", "d"]
        for hidden in ("T 0", "T 1", "SmolLM2", " tok", " ppl ", "seed", "top-k"):
            assert hidden not in run.shown
        picked = run.app.grid.panes[2].text
        await run.press("3")
        assert run.verdicts == [picked]
        temperature = dict(zip("abcd", ("0.2", "0.7", "1", "1.3"), strict=True))[picked]
        assert run.told == f"prompt 1: answer 3 · T {temperature} · u takes it back"


async def test_a_long_prompt_is_read_from_its_beginning_and_unfolded_with_a_key(
    tmp_path: Path,
) -> None:
    async with rating(tmp_path, prompts=[FilePrompt("\n".join(map(str, range(100))))]) as run:
        await run.answer("a", "b", "c", "d")
        assert "▌ 0\n ▌ 1\n" in run.shown
        assert len(run.app.transcript.lines) < 30
        await run.press("p")
        assert len(run.app.transcript.lines) == 100


async def test_a_failure_is_said_and_one_key_asks_again(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        run.backend.say(Failed(run.backend.ask.ask, "The server refused it."))
        await run.settle()
        assert "The server refused it." in run.shown
        assert run.keys.startswith("r ask again")
        asked = len(run.backend.asks)
        run.backend.answer(*"abcd")  # the next one, ahead
        await run.settle()
        await run.press("r")
        await run.answer("a", "b", "c", "d")  # another one ahead, and then
        assert run.backend.asks[-1].text == QUESTION
        assert len(run.backend.asks) > asked
        await run.answer("e", "f", "g", "h")
        assert "The server refused it." not in run.shown
        await run.press("1")
        assert run.verdicts == ["e"]


async def test_what_is_typed_for_the_answers_works_in_the_prompt_as_well(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        await run.answer("a", "b", "c", "d")
        await run.press("tab")
        assert run.app.transcript.has_focus
        await run.press("r")  # means something else in the chat
        assert run.told == "The answers are there."
        await run.press("i", "e", "c")
        await run.press("2")
        assert run.verdicts == ["b"]
        await run.answer("a", "b", "c", "d")
        await run.press("tab", "u")
        assert run.verdicts == []


async def test_at_the_end_it_says_what_to_do_with_it(tmp_path: Path) -> None:
    async with rating(tmp_path, count=2) as run:
        await run.answer()
        await run.answer()
        await run.press("s", "1")
        await run.until("That was the last of 2 prompts: 1 picked, 1 skipped.")
        assert "chat-tui export --rated prompts.txt --format dpo" in run.shown
        await run.press("s")
        assert QUESTION in run.shown
        await run.press("1")
        assert "2 picked." in run.shown
        await run.press("u", "ctrl+p")
        await run.app.workers.wait_for_complete()
        await run.settle()
        assert "All are bad" in run.shown
        assert "ctrl" not in run.shown.lower()
        await run.press("escape", "f1")
        assert isinstance(run.app.screen, HelpScreen)
        assert "A tie" in run.shown
        await run.press("escape", "q")
        assert not run.app.is_running


async def test_what_cannot_be_saved_is_said_as_long_as_it_is_so(tmp_path: Path) -> None:
    folder = tmp_path / "sessions.db"
    folder.mkdir()
    async with rating(tmp_path) as run:
        await run.answer("a", "b", "c", "d")
        await run.press("1")
        run.app.recorder.flush(run.app.rating)
        await run.press("t")
        assert "is not being saved" in run.told


async def test_quitting_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    async with rating(tmp_path) as run:
        await run.answer("a", "b", "c", "d")
        await run.press("2")
        run.backend.start()
        run.backend.step("a", "b", "c", "d")
        await run.settle()
        await run.press("t")
        await run.press("q")
    with Store.open(tmp_path / "sessions.db") as store:
        turns = store.load(1).conversation.tree.turns.values()
    assert [(turn.verdict, turn.answers[0].reason) for turn in turns if turn.judgement] == [
        ("pick", "stop"),
        ("tie", "cancelled"),
    ]


# How it looks.

Play = Callable[[Rates], Awaitable[None]]


def check(
    snap: Snap,
    clock: Clock,
    folder: Path,
    size: tuple[int, int],
    play: Play,
    *,
    count: int = 100,
    blind: bool = False,
) -> None:
    backend = FakeBackend()
    app = app_of(file(folder, count), backend, clock, folder / "sessions.db", blind=blind)

    async def before(pilot: Pilot[None]) -> None:
        run = Rates(app, backend, pilot, clock)
        backend.ready()
        await run.settle()
        await play(run)
        await run.settle()

    assert snap(app, terminal_size=size, run_before=before)
    app.close()


async def in_the_middle(run: Rates) -> None:
    for key in "2tb1":
        await run.answer()
        await run.press(key)
    await run.answer()
    await run.answer()


@pictures
@pytest.mark.parametrize("size", [(40, 20), *SIZES], ids=by_size)
def test_rating_in_the_middle(
    snap_compare: Snap, clock: Clock, tmp_path: Path, size: tuple[int, int]
) -> None:
    check(snap_compare, clock, tmp_path, size, in_the_middle)


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_rating_blind(
    snap_compare: Snap, clock: Clock, tmp_path: Path, size: tuple[int, int]
) -> None:
    check(snap_compare, clock, tmp_path, size, in_the_middle, blind=True)


@pictures
def test_rating_with_the_engine_gone(snap_compare: Snap, clock: Clock, tmp_path: Path) -> None:
    async def play(run: Rates) -> None:
        await run.answer()
        await run.press("1")
        run.backend.start()
        run.backend.step("Some", "words", "of", "four")
        run.backend.say(Died("The engine was killed (often for lack of memory)."))
        await run.settle()

    check(snap_compare, clock, tmp_path, (80, 24), play)


@pictures
def test_rating_at_the_end(snap_compare: Snap, clock: Clock, tmp_path: Path) -> None:
    async def play(run: Rates) -> None:
        for key in "2tbs1":
            await run.answer()
            await run.press(key)

    check(snap_compare, clock, tmp_path, (80, 24), play, count=5)
