"""The keys of the whole screen, with a backend that answers what the test says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.screens.help import HelpScreen
from chat_tui.settings import Settings
from tests.chat_tui.running import begin, running


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
