"""The keys that grow the tree: undo, more, continue, edit."""

from __future__ import annotations

from chat_tui.settings import Settings
from tests.chat_tui.running import begin, running


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
