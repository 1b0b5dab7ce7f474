"""What the mouse does where there is one."""

from __future__ import annotations

from textual.events import MouseScrollUp
from textual.geometry import Offset
from textual.widget import Widget

from chat_tui.screens.help import HelpScreen
from chat_tui.screens.tokens import TokenScreen
from chat_tui.screens.tree import TreeScreen
from tests.chat_tui.running import Running, running
from tests.chat_tui.test_snapshots import ANSWERS

LONG = "\n\n".join(f"line {number}" for number in range(60))


async def answered(run: Running, *answers: str) -> None:
    await run.send("Two plus two?")
    run.backend.answer(*(answers or ("4", "5")))
    await run.settle()


def place_of(widget: Widget, text: str) -> Offset:
    """Where a text stands on the screen, in the lines of a widget."""
    lines = widget.screen._compositor.render_strips()
    y = next(y for y in range(widget.region.y, widget.region.bottom) if text in lines[y].text)
    return Offset(lines[y].text.index(text, widget.region.x), y)


async def click(run: Running, widget: Widget, text: str, times: int = 1) -> None:
    await run.pilot.click(offset=place_of(widget, text), times=times)
    await run.settle()


async def test_a_click_on_an_answer_makes_it_the_current_one_and_picks_nothing() -> None:
    async with running() as run:
        await answered(run)
        await click(run, run.app.grid.pane(1), "5")
        assert run.app.chat.focused == 1
        assert run.app.grid.pane(1).has_focus
        assert not run.kept


async def test_an_answer_under_the_mouse_offers_to_be_picked() -> None:
    async with running() as run:
        await answered(run)
        pane = run.app.grid.pane(1)
        assert "pick" not in pane.border_title
        await run.pilot.hover(pane)
        assert "pick" in pane.border_title
        assert "pick" not in run.app.grid.pane(0).border_title
        await click(run, pane, " pick ")
        assert run.kept == ["5"]
        assert run.app.prompt.has_focus


async def test_what_offers_it_stays_under_a_press() -> None:
    async with running() as run:
        await answered(run)
        pane = run.app.grid.pane(1)
        await run.pilot.hover(pane)
        at = place_of(pane, " pick ")
        await run.pilot.mouse_down(offset=at)
        await run.settle()
        assert run.app.chat.focused == 1
        assert place_of(pane, " pick ") == at


async def test_it_is_offered_where_only_clicks_are_told() -> None:
    async with running() as run:
        await answered(run)
        await click(run, run.app.grid.pane(0), "4")
        await click(run, run.app.grid.pane(1), "5")
        assert "pick" not in run.app.grid.pane(0).border_title
        await click(run, run.app.grid.pane(1), " pick ")
        assert run.kept == ["5"]


async def test_the_wheel_scrolls_what_is_under_the_mouse_and_moves_no_focus() -> None:
    async with running() as run:
        await answered(run, LONG, "5")
        pane = run.app.grid.pane(0)
        end = pane.scroll_offset.y
        await run.pilot._post_mouse_events([MouseScrollUp], pane)
        await run.pilot.pause()
        assert pane.scroll_offset.y < end
        assert run.app.prompt.has_focus


async def test_a_completion_is_taken_by_a_click() -> None:
    async with running() as run:
        await run.press("/", "s")
        await click(run, run.app.prompt.completions, "/seed")
        assert run.text == "/seed "
        assert run.app.prompt.has_focus


async def test_tokens_and_their_alternatives_are_clicked() -> None:
    async with running(size=(120, 40)) as run:
        await answered(run, ANSWERS[2], "5")
        run.app.action_tokens()
        await run.settle()
        screen = run.app.screen
        assert isinstance(screen, TokenScreen)
        await click(run, screen.view, "boxes")
        assert b"boxes" in (screen.view.tokens[screen.view.cursor].piece or b"")
        await click(run, screen.keys, "own text")
        assert screen.has_class("-typing")
        await run.press("escape")
        await click(run, screen.keys, "closes")
        assert run.app.screen is run.app.main


async def test_rows_of_the_tree_are_clicked_and_twice_goes_there() -> None:
    async with running() as run:
        await answered(run)
        await run.press("alt+1", "ctrl+t")
        screen = run.app.screen
        assert isinstance(screen, TreeScreen)
        await click(run, screen.view, " 2 ")
        assert screen.view.row is not None
        assert screen.view.row.answer is not None
        assert screen.view.row.answer.text == "5"
        await click(run, screen.view, " 2 ", times=2)
        assert run.app.screen is run.app.main
        assert run.kept == ["5"]


async def test_a_click_beside_the_help_closes_it() -> None:
    async with running(size=(120, 40)) as run:
        await run.press("f1")
        assert isinstance(run.app.screen, HelpScreen)
        await run.pilot.click(offset=(60, 20))
        assert isinstance(run.app.screen, HelpScreen)
        await run.pilot.click(offset=(2, 20))
        assert run.app.screen is run.app.main
