"""The keys of the whole screen, with a backend that answers what the test says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.screens.help import HelpScreen
from chat_tui.screens.overflow import OverflowScreen
from chat_tui.settings import Settings
from engine.messages import Died, Failed, Overflowed
from tests.chat_tui.running import Running, running


async def begin(run: Running, text: str = "Hi") -> None:
    """A turn whose rows have one word each."""
    await run.send(text)
    run.backend.start()
    run.backend.step(*(f"word{row}" for row in range(run.backend.ask.samples)))
    await run.settle()


async def test_the_answers_grow_side_by_side() -> None:
    async with running() as run:
        await begin(run)
        run.backend.step(" more", " else")
        await run.settle()
        assert [pane.text for pane in run.app.grid.panes] == ["word0 more", "word1 else"]
        assert run.app.grid.display


async def test_no_token_is_lost_at_the_end() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.start()
        for place in range(500):
            run.backend.step(f"{place} ", "x")
        run.backend.end_row(0, "length", "tail")
        run.backend.finish()
        await run.settle()
        assert run.app.grid.pane(0).text == "".join(f"{n} " for n in range(500)) + "tail"


async def test_alt_digit_picks_a_finished_answer_from_the_prompt() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+2")
        assert run.kept == ["two"]
        assert not run.app.grid.display
        assert run.app.prompt.has_focus


async def test_alt_digit_picks_early_and_stops_the_others() -> None:
    async with running(Settings(samples=3)) as run:
        await begin(run)
        await run.press("alt+3")
        assert run.backend.cancels == [0, 1]
        run.backend.end_row(0, "cancelled")
        run.backend.end_row(1, "cancelled")
        run.backend.step("", "", " and on")
        await run.settle()
        assert run.kept == []
        run.backend.finish()
        await run.settle()
        assert run.kept == ["word2 and on"]


async def test_a_digit_that_is_no_answer_says_so() -> None:
    async with running() as run:
        await begin(run)
        await run.press("alt+7")
        assert run.told == "There are 2 answers, no 7."
        assert run.backend.cancels == []


async def test_tab_goes_to_the_answers_where_plain_keys_pick() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("tab")
        assert run.app.grid.has_focus_within
        await run.press("2")
        assert run.kept == ["two"]


async def test_tab_goes_round_prompt_answers_transcript() -> None:
    async with running() as run:
        await begin(run)
        await run.press("tab")
        assert run.app.grid.has_focus_within
        await run.press("tab")
        assert run.app.transcript.has_focus
        await run.press("tab")
        assert run.app.prompt.has_focus
        await run.press("shift+tab", "shift+tab")
        assert run.app.grid.has_focus_within


async def test_enter_in_the_answers_picks_the_focused_one() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("tab", "right", "enter")
        assert run.kept == ["two"]


async def test_the_prompt_says_which_answer_enter_continues() -> None:
    async with running() as run:
        await begin(run)
        assert run.hint.startswith("Enter continues with answer 1")
        await run.press("tab", "l")
        assert run.hint.startswith("Enter continues with answer 2")
        run.backend.finish()
        await run.settle()
        await run.press("tab", "tab")
        await run.send("More")
        assert run.backend.ask.history[0].text == "word1"


async def test_zoom_shows_one_answer_and_back() -> None:
    async with running() as run:
        await begin(run)
        await run.press("tab", "z")
        assert run.app.grid.zoomed
        await run.press("z")
        assert not run.app.grid.zoomed


async def test_sending_while_answers_grow_continues_the_focused_one_and_queues() -> None:
    async with running() as run:
        await begin(run)
        await run.send("More")
        assert run.backend.cancels == [1]
        assert run.app.waiting.display
        assert "More" in str(run.app.waiting.render())
        run.backend.end_row(1, "cancelled")
        run.backend.finish()
        await run.settle()
        assert run.backend.ask.text == "More"
        assert run.backend.ask.history[0].text == "word0"
        assert not run.app.waiting.display


async def test_up_takes_a_waiting_message_back() -> None:
    async with running() as run:
        await begin(run)
        await run.send("More")
        await run.press("up")
        assert run.text == "More"
        run.backend.finish()
        await run.settle()
        assert len(run.backend.asks) == 1


async def test_escape_stops_and_keeps_what_is_there() -> None:
    async with running(Settings(samples=1)) as run:
        await begin(run)
        await run.type("a draft")
        await run.press("escape")
        assert run.backend.cancels == [None]
        run.backend.finish("cancelled")
        await run.settle()
        assert run.kept == ["word0"]
        assert run.text == "a draft"


async def test_escape_before_the_first_token_brings_the_message_back() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.start()
        await run.settle()
        await run.press("escape")
        run.backend.finish("cancelled")
        await run.settle()
        assert run.text == "Hi"
        assert not run.app.grid.display


async def test_ctrl_c_stops_a_running_answer_and_does_not_leave() -> None:
    async with running(Settings(samples=1)) as run:
        await begin(run)
        await run.press("ctrl+c")
        assert run.backend.cancels == [None]
        run.backend.finish("cancelled")
        await run.settle()
        await run.press("ctrl+c")
        assert run.told == "Ctrl+Q quits."
        assert run.app.is_running
        assert run.kept == ["word0"]


async def test_ctrl_c_copies_what_is_selected() -> None:
    async with running() as run:
        await run.type("some words")
        await run.press("f7", "ctrl+c")
        assert run.app.clipboard == "some words"
        assert run.text == "some words"


async def test_ctrl_q_leaves() -> None:
    async with running() as run:
        await run.press("ctrl+q")
        assert not run.app.is_running


async def test_f1_shows_the_keys_from_the_bindings_and_escape_closes_it() -> None:
    async with running() as run:
        await run.press("f1")
        screen = run.app.screen
        assert isinstance(screen, HelpScreen)
        shown = str(screen.content())
        for expected in ("Alt+1–9", "Ctrl+J", "/samples N", "Esc"):
            assert expected in shown
        await run.press("escape")
        assert run.app.screen is run.app.main


async def test_answers_go_on_behind_the_help() -> None:
    async with running() as run:
        await begin(run)
        await run.press("f1")
        run.backend.step(" more", " else")
        run.backend.finish()
        await run.settle()
        assert run.app.grid.pane(0).text == "word0 more"
        await run.press("escape", "alt+1")
        assert run.kept == ["word0 more"]


async def test_the_palette_offers_the_commands() -> None:
    async with running() as run:
        await run.press("ctrl+p")
        await run.search("samples")
        await run.press("enter")
        assert run.text == "/samples "
        assert run.app.prompt.has_focus


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


async def test_what_is_typed_while_the_model_loads_is_answered_when_it_is_ready() -> None:
    async with running(ready=False) as run:
        run.backend.loading("Downloading x from y (98 MB)", 10_000_000, 98_000_000)
        await run.send("Hi")
        assert run.app.progress.display
        assert "10 MB of 98 MB" in str(run.app.progress.render())
        assert "sent when the model is ready" in str(run.app.waiting.render())
        assert run.backend.asks == []
        run.backend.ready()
        await run.settle()
        assert run.backend.ask.text == "Hi"
        assert not run.app.progress.display


async def test_new_empties_the_screen() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+1")
        await run.send("/new")
        assert run.app.transcript.entries == []
        assert run.app.main.has_class("-empty")
        await run.send("Again")
        assert run.backend.ask.history == ()


async def test_settings_reach_the_next_ask() -> None:
    async with running() as run:
        for line in ("/samples 3", "/temp 0.2,1", "/topk all", "/seed 7", "/tools off"):
            await run.send(line)
        await run.send("/system Be brief.")
        await run.send("Hi")
        ask = run.backend.ask
        assert (ask.samples, ask.system, ask.tools) == (3, "Be brief.", False)
        assert ask.params.temperatures == (0.2, 1.0, 0.2)
        assert (ask.params.top_ks, ask.params.seed) == ((None, None, None), 7)


async def test_the_cache_is_reused_on_command_and_the_status_line_says_how_much() -> None:
    async with running(size=(140, 30)) as run:
        await run.send("/cache on")
        assert "only what is new" in run.told
        await run.send("Hello")
        assert run.backend.ask.reuse_cache
        run.backend.start()
        run.backend.step("a", "b")
        run.backend.finish(reused=37)
        await run.settle()
        assert "reusing 37" in str(run.app.status.render())


async def test_another_model_is_loaded_by_name() -> None:
    async with running() as run:
        await run.send("/model other")
        assert [load.name for load in run.backend.loads] == ["smollm2", "other"]


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


async def test_save_writes_the_tokens_and_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+2")
        await run.send(f"/save {path}")
        assert json.loads(path.read_text())["tokens"] == run.app.chat.conversation.tokens
        await run.send(f"/save {path}")
        assert "exists already" in run.told
        assert run.text == f"/save {path}"
        run.app.prompt.replace_text("")
        await run.send(f"/save {tmp_path}/missing/file")
        assert "cannot be written" in run.told


async def test_quit_leaves() -> None:
    async with running() as run:
        await run.send("/quit")
        assert not run.app.is_running


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (220, 60)])
async def test_every_size_shows_prompt_and_status(size: tuple[int, int]) -> None:
    async with running(Settings(samples=8), size=size) as run:
        await begin(run)
        for widget in (run.app.prompt, run.app.status):
            region = widget.region
            assert region.height >= 1
            assert region.bottom <= size[1]
            assert region.right <= size[0]
        assert run.app.grid.region.height >= 3


async def test_u_takes_the_last_pick_back_and_another_can_be_picked() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("alt+2", "shift+tab", "u")
        assert run.kept == []
        assert [pane.text for pane in run.app.grid.panes] == ["one", "two"]
        assert run.app.grid.focused_index == 1
        assert run.app.grid.has_focus_within
        await run.press("1")
        assert run.kept == ["one"]
        assert [type(entry).__name__ for entry in run.app.transcript.entries] == ["User", "Answer"]


async def test_r_grows_more_answers_beside_the_old_ones() -> None:
    async with running(Settings(samples=1)) as run:
        await run.send("Hi")
        run.backend.answer("one")
        await run.settle()
        await run.press("shift+tab", "r")
        assert [pane.text for pane in run.app.grid.panes] == ["one"]
        run.backend.answer("two three")
        await run.settle()
        assert [pane.text for pane in run.app.grid.panes] == ["one", "two three"]
        assert all(pane.numbered and pane.is_mounted for pane in run.app.grid.panes)
        await run.press("alt+2")
        assert run.kept == ["two three"]


async def test_c_continues_a_stopped_answer() -> None:
    async with running() as run:
        await begin(run)
        await run.press("escape")
        run.backend.finish("cancelled")
        await run.settle()
        await run.press("tab", "right", "c")
        run.backend.answer(" goes on")
        await run.settle()
        assert run.app.grid.pane(2).text == "word1 goes on"


async def test_e_edits_the_message_and_escape_leaves_the_draft_as_it_was() -> None:
    async with running(Settings(samples=1)) as run:
        await run.send("Hi")
        run.backend.answer("one")
        await run.settle()
        await run.type("a draft")
        await run.press("shift+tab", "e")
        assert run.text == "Hi"
        assert "editing message 1" in str(run.app.prompt.border_title)
        await run.press("escape")
        assert run.text == "a draft"
        await run.press("shift+tab", "e")
        await run.type(" there")
        await run.press("enter")
        assert run.text == "a draft"
        run.backend.answer("two")
        await run.settle()
        assert run.kept == ["two"]
        assert [entry.text for entry in run.app.transcript.entries] == ["Hi there", "two"]


async def test_a_message_of_this_conversation_can_be_edited_by_its_number() -> None:
    async with running(Settings(samples=1)) as run:
        for text in ("first", "second"):
            await run.send(text)
            run.backend.answer("answer")
            await run.settle()
        await run.send("/edit 3")
        assert run.told == "There are 2 messages, no 3."
        await run.send("/edit 1")
        await run.type("!")
        await run.press("enter")
        assert run.backend.ask.text == "first!"
        assert run.backend.ask.history == ()
