"""Several models in one grid, as they are seen; and what is typed about panes."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.screens.tokens import TokenScreen
from chat_tui.settings import Settings, Source
from engine.messages import Died
from tests.chat_tui.fakes import FakeBackends
from tests.chat_tui.pictures import SIZES, Clock, Snap, by_size, pictures
from tests.chat_tui.running import Running, running

MODELS = (
    Source("smollm2"),
    Source("/checkpoints/nano/d20.gguf"),
    Source("", "http://gpu-box:8000"),
)
TWO = Settings(models=MODELS[:2], samples=1)
SAID = (
    "There are **96** apples:\n\n- 84 in the boxes\n- 12 on the table",
    "Seven times twelve is 84, and 12 more are 96.",
    "Apples! I like apples, and boxes of them, and tables with apples on them",
    "The boxes hold 84",
)


async def answering(run: Running, clock: Clock) -> None:
    """Two models answer twice each; the server's engine goes in the middle."""
    await run.send("Twelve boxes of seven apples, and 12 on the table: how many?")
    first, second, third = run.backends
    for backend, texts in ((third, SAID[:2]), (first, SAID[:2]), (second, SAID[2:])):
        backend.start()
        await run.settle()
        words = [text.split(" ") for text in texts]
        for place in range(8):
            clock.now += 0.04
            rows = enumerate(words)
            ended = {row for row, row_words in rows if place == len(row_words)}
            for row in ended:
                backend.end_row(row)
            backend.step(
                *(
                    (" " if place else "") + row_words[place] if place < len(row_words) else ""
                    for row_words in words
                )
            )
            await run.settle()
    third.say(Died("gpu-box:8000 ended the stream in the middle of the answer."))
    await run.settle()


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_how_it_looks(snap_compare: Snap, clock: Clock, size: tuple[int, int]) -> None:
    fakes = FakeBackends()
    settings = Settings(models=MODELS, samples=2, temperatures=(0.2, 1.2), seed=7)
    app = ChatApp(settings, fakes.backend, make=fakes.make, clock=clock.monotonic)

    async def before(pilot: Pilot[None]) -> None:
        run = Running(app, fakes.backend, pilot, fakes.backends)
        await run.load()
        await answering(run, clock)
        await run.settle()

    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_the_picked_answer_is_gone_on_with_by_both_models() -> None:
    async with running(TWO) as run:
        await run.send("Hi")
        for backend, text in zip(run.backends, ("one", "two"), strict=True):
            backend.answer(text)
        await run.settle()
        await run.press("alt+2")
        assert run.kept == ["two"]
        assert "d20" in str(run.app.transcript.entries[-1])
        await run.send("And?")
        assert [backend.ask.history[0].text for backend in run.backends] == ["two", "two"]


async def test_the_tokens_of_an_answer_are_told_to_be_its_models() -> None:
    async with running(TWO) as run:
        await run.send("Hi")
        for backend, text in zip(run.backends, ("one", "two"), strict=True):
            backend.answer(text)
        await run.settle()
        await run.press("tab", "right", "i")
        screen = run.app.screen
        assert isinstance(screen, TokenScreen)
        assert screen.subject.title == "Answer 2 of 2 · d20"


async def test_the_status_line_is_about_the_model_in_focus() -> None:
    async with running(TWO, size=(160, 30)) as run:
        assert "smollm2 + d20" in str(run.app.status.render())
        await run.send("Hi")
        second = run.backends[1]
        second.start()
        second.step("two")
        await run.settle()
        assert "starting" in str(run.app.status.render())
        await run.press("tab", "right")
        assert "starting" not in str(run.app.status.render())
        second.say(Died("The engine was killed."))
        await run.settle()
        assert "d20 stopped" in str(run.app.status.render())


async def test_a_pane_is_changed_by_its_number() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("/pane")
        assert run.told == "pane: all have smollm2 · own system text · T 0.7 · top-k 50"
        await run.send("/pane 2 temp 1.1")
        assert run.told.splitlines() == [
            "pane: 1 T 0.7",
            "2 T 1.1",
            "all smollm2 · own system text · top-k 50",
        ]
        assert "T 0.7,1.1" in run.title
        await run.send("Hi")
        assert run.backend.ask.params.temperatures == (0.7, 1.1)


async def test_what_cannot_be_changed_comes_back_to_be_mended() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("/pane 3 temp 1.1")
        assert run.told == "There are 2 panes, no 3: /samples makes more."
        assert run.text == "/pane 3 temp 1.1"


async def test_another_model_for_one_pane_is_loaded_beside_the_first() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("/pane 2 model other")
        await run.load()
        assert [[load.name for load in backend.loads] for backend in run.backends] == [
            ["smollm2", "smollm2"],
            ["other"],
        ]
        await run.send("/model smollm2 third")
        await run.load()
        assert [lane.source.name for lane in run.app.chat.lanes] == ["smollm2", "third"]
        assert run.backends[1].loads[-1].name == "third", "in the process of the one that went"
