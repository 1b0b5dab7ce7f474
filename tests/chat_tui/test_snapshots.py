"""How the main screens look. `pytest --snapshot-update` takes them anew; look at them then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.look import PLAIN, Look
from chat_tui.settings import Settings
from engine.messages import Died, Overflowed, ToolCall
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.pictures import SIZES, Clock, Snap, by_size, pictures
from tests.chat_tui.running import Running

pytestmark = pictures

Play = Callable[[Running], Awaitable[None]]
ANSWERS = (
    "Twelve boxes of seven apples are <<12*7=84>> apples.\n\nWith the 12 on the table there are "
    "**96** in all.",
    "There are 96 apples:\n\n- 12 boxes\n- 7 in each\n- 12 more\n\n```python\nprint(12 * 7 + 12)\n"
    "```",
    "I count *96*. The boxes hold 84, and 84 and 12 are 96, so that is the number of apples.",
    "96.",
)
CALL = ToolCall(33, 44, "12*7", "84", True)


def check(
    snap: Snap,
    clock: Clock,
    size: tuple[int, int],
    play: Play,
    samples: int = 2,
    ready: bool = True,
    look: Look = PLAIN,
    state: Path | None = None,
) -> None:
    backend = FakeBackend()
    settings = Settings(samples=samples)
    app = ChatApp(settings, backend, clock=clock.monotonic, look=look, state=state)

    async def before(pilot: Pilot[None]) -> None:
        run = Running(app, backend, pilot)
        if ready:
            backend.ready()
        await run.settle()
        await play(run)
        await run.settle()

    assert snap(app, terminal_size=size, run_before=before)


async def answering(run: Running, clock: Clock, *, steps: int = 14, end: bool = False) -> None:
    await run.send("Twelve boxes of seven apples, and 12 on the table: how many?")
    run.backend.start()
    await run.settle()
    rows = [ANSWERS[row % 4] for row in range(run.backend.ask.samples)]
    words = [row.split(" ") for row in rows]
    for place in range(steps):
        clock.now += 0.04
        for row, row_words in enumerate(words):
            if place == len(row_words):
                run.backend.end_row(row)
        texts = [
            (" " if place else "") + row_words[place] if place < len(row_words) else ""
            for row_words in words
        ]
        forced = [row for row, text in enumerate(texts) if "<<" in text]
        run.backend.step(*texts, forced=forced, calls=[(row, 0, CALL) for row in forced])
        await run.settle()
    if end:
        run.backend.finish()
        await run.settle()


@pytest.mark.parametrize("size", SIZES, ids=by_size)
@pytest.mark.parametrize("samples", [1, 3, 8])
def test_answers_growing(
    snap_compare: Snap, clock: Clock, samples: int, size: tuple[int, int]
) -> None:
    check(snap_compare, clock, size, lambda run: answering(run, clock), samples)


@pytest.mark.parametrize("size", [(40, 20), (80, 24)], ids=by_size)
def test_a_second_turn_below_the_first(
    snap_compare: Snap, clock: Clock, size: tuple[int, int]
) -> None:
    async def play(run: Running) -> None:
        await answering(run, clock, steps=40, end=True)
        await run.press("alt+1")
        await answering(run, clock, steps=6)
        await run.press("tab", "right")

    check(snap_compare, clock, size, play)


@pytest.mark.parametrize("size", [(40, 20), *SIZES], ids=by_size)
def test_an_empty_conversation(snap_compare: Snap, clock: Clock, size: tuple[int, int]) -> None:
    async def play(run: Running) -> None:
        pass

    check(snap_compare, clock, size, play)


@pytest.mark.parametrize("size", [(40, 20), (80, 24)], ids=by_size)
def test_the_first_time(
    snap_compare: Snap, clock: Clock, size: tuple[int, int], tmp_path: Path
) -> None:
    async def play(run: Running) -> None:
        pass

    check(snap_compare, clock, size, play, state=tmp_path)


def test_loading_with_a_message_waiting(snap_compare: Snap, clock: Clock) -> None:
    async def play(run: Running) -> None:
        run.backend.loading(
            "Downloading SmolLM2-135M-Instruct (98 MB) from PyPI", 42_300_000, 98_000_000
        )
        await run.send("What is 4821 - 977?")

    check(snap_compare, clock, (80, 24), play, ready=False)


def test_picked_early(snap_compare: Snap, clock: Clock) -> None:
    async def play(run: Running) -> None:
        await answering(run, clock)
        await run.press("alt+2")
        run.backend.end_row(0, "cancelled")
        await run.send("And half of them?")

    check(snap_compare, clock, (80, 24), play)


def test_the_engine_gone(snap_compare: Snap, clock: Clock) -> None:
    async def play(run: Running) -> None:
        await answering(run, clock)
        run.backend.say(Died("The engine was killed (often for lack of memory)."))

    check(snap_compare, clock, (80, 24), play)


def test_commands_offered(snap_compare: Snap, clock: Clock) -> None:
    async def play(run: Running) -> None:
        await run.press("/", "s", "down")

    check(snap_compare, clock, (80, 24), play)


def test_a_bad_value(snap_compare: Snap, clock: Clock) -> None:
    check(snap_compare, clock, (80, 24), lambda run: run.send("/samples many"))


@pytest.mark.parametrize("size", [(40, 20), (80, 24), (120, 40)], ids=by_size)
def test_help(snap_compare: Snap, clock: Clock, size: tuple[int, int]) -> None:
    check(snap_compare, clock, size, lambda run: run.press("f1"))


@pytest.mark.parametrize("size", [(40, 20), (80, 24)], ids=by_size)
def test_the_overflow_question(snap_compare: Snap, clock: Clock, size: tuple[int, int]) -> None:
    async def play(run: Running) -> None:
        await answering(run, clock, steps=40, end=True)
        await run.press("alt+1")
        await run.send("And then?")
        run.backend.say(Overflowed(run.backend.ask.ask, 2300, 2048, (1900, 20)))
        await run.settle()

    check(snap_compare, clock, size, play)


SIXTEEN = Look(few_colors=True)
PLAIN_ASCII = Look(few_colors=True, ascii=True)


async def looked_at(run: Running, clock: Clock) -> None:
    """One answer has the keyboard, another is picked while the rest still grows."""
    await answering(run, clock, steps=10)
    await run.press("alt+2", "tab", "left")


@pytest.mark.parametrize("look", [SIXTEEN, PLAIN_ASCII], ids=["sixteen colours", "ascii"])
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_terminals_that_can_do_less(
    snap_compare: Snap, clock: Clock, size: tuple[int, int], look: Look
) -> None:
    check(snap_compare, clock, size, lambda run: looked_at(run, clock), 3, look=look)


@pytest.mark.parametrize("look", [PLAIN, PLAIN_ASCII], ids=["unicode", "ascii"])
def test_no_colours(
    snap_compare: Snap, clock: Clock, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    check(snap_compare, clock, (80, 24), lambda run: looked_at(run, clock), 3, look=look)


def test_no_colours_in_the_tokens(
    snap_compare: Snap, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(run: Running) -> None:
        await answering(run, clock, steps=40, end=True)
        await run.press("tab", "i", "right", "right")

    monkeypatch.setenv("NO_COLOR", "1")
    check(snap_compare, clock, (80, 24), play)


def test_no_colours_in_what_is_offered(
    snap_compare: Snap, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    check(snap_compare, clock, (80, 24), lambda run: run.press("/", "s", "down"))
