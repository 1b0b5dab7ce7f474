"""What the screen does where an answer or a model fails, or a prompt has no room."""

from __future__ import annotations

import pytest

from chat_tui.screens.overflow import OverflowScreen
from chat_tui.settings import Settings
from engine.messages import Died, Failed, Overflowed
from tests.chat_tui.running import begin, running


async def test_the_overflow_question_drops_the_oldest_turns() -> None:
    async with running() as run:
        for text in ("first", "second"):
            await run.send(text)
            run.backend.answer("one", "two")
            await run.settle()
            await run.press("alt+1")
        await run.send("third")
        run.backend.say(Overflowed(run.backend.ask.ask, 2300, 2048, (900, 900, 20)))
        await run.settle()
        await run.pilot.pause()
        assert isinstance(run.app.screen, OverflowScreen)
        await run.press("enter")
        await run.settle()
        assert [exchange.user for exchange in run.backend.ask.history] == ["second"]
        assert run.backend.ask.text == "third"


@pytest.mark.parametrize("keys", [["escape"], ["down", "enter"], ["tab", "enter"]])
async def test_the_overflow_question_gives_the_message_back(keys: list[str]) -> None:
    async with running() as run:
        await run.send("first")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+1")
        await run.send("second")
        run.backend.say(Overflowed(run.backend.ask.ask, 2300, 2048, (900, 20)))
        await run.settle()
        await run.pilot.pause()
        await run.press(*keys)
        await run.settle()
        assert run.text == "second"
        assert len(run.backend.asks) == 2


async def test_the_engine_dying_keeps_everything_and_the_next_message_restarts_it() -> None:
    async with running() as run:
        await begin(run)
        await run.type("a draft")
        run.backend.say(Died("The engine was killed."))
        await run.settle()
        assert [pane.text for pane in run.app.grid.panes] == ["word0", "word1"]
        assert run.text == "a draft"
        assert any("killed" in entry.text for entry in run.app.transcript.entries)
        await run.press("enter")
        assert len(run.backend.loads) == 2
        run.backend.ready()
        await run.settle()
        assert run.backend.ask.text == "a draft"
        assert run.backend.ask.history[0].text == "word0"


async def test_a_failed_ask_brings_the_text_back_in_front_of_the_draft() -> None:
    async with running() as run:
        await run.send("Hi")
        await run.type("a draft")
        run.backend.say(Failed(run.backend.ask.ask, "Out of memory."))
        await run.settle()
        assert run.text == "Hi\n\na draft"


@pytest.mark.parametrize("samples", [1, 2])
async def test_an_answer_that_was_cut_off_is_asked_for_again_with_one_key(samples: int) -> None:
    async with running(Settings(samples=samples)) as run:
        await run.send("Hi")
        run.backend.start()
        run.backend.step(*["Half"] * samples)
        run.backend.say(Failed(run.backend.ask.ask, "The server ended the stream."))
        await run.settle()
        assert "F5 asks again" in run.hint
        await run.press("f5")
        assert [ask.text for ask in run.backend.asks] == ["Hi", "Hi"]
        run.backend.start()
        run.backend.step(*["Whole"] * samples)
        run.backend.finish()
        await run.settle()
        answers = [pane.text for pane in run.app.grid.panes]
        assert answers == [*["Half"] * samples, *["Whole"] * samples]
        assert "F5" not in run.hint


async def test_a_model_that_does_not_load_leaves_the_old_one_running() -> None:
    async with running() as run:
        await run.send("/model other")
        run.backend.say(Failed(None, "other: broken."))
        run.backend.ready()  # the engine says what it still has
        await run.settle()
        loads = len(run.backend.loads)
        await run.send("Hello")
        assert len(run.backend.loads) == loads
        assert run.backend.ask.text == "Hello"
