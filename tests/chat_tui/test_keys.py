"""The table of keys, and that help, hints and palette show what the user made of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from textual.widgets import OptionList

from chat_tui.app import ChatApp
from chat_tui.keys import BINDINGS, PLACES, Keys, name_of
from chat_tui.rate_app import RateApp, RateGrid
from chat_tui.screens.help import HelpScreen
from chat_tui.screens.sessions import SessionsScreen
from chat_tui.screens.tokens import TokenScreen
from chat_tui.screens.tree import TreeScreen
from chat_tui.widgets.grid import CompareGrid
from chat_tui.widgets.outline import OutlineView
from chat_tui.widgets.pane import Pane
from chat_tui.widgets.prompt import Prompt
from chat_tui.widgets.token_panel import TokenPanel
from chat_tui.widgets.tokens import TokenView
from chat_tui.widgets.transcript import Transcript
from tests.chat_tui.running import Running, running

NODES = (
    ChatApp,
    Prompt,
    CompareGrid,
    Pane,
    Transcript,
    TokenView,
    TokenScreen,
    TokenPanel,
    OutlineView,
    TreeScreen,
    SessionsScreen,
    RateApp,
    RateGrid,
)
CHANGED = Keys(
    {"chat.tree": "f4", "chat.pick-1": "f5", "prompt.send": "ctrl+s", "answers.zoom": "x"}
)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.__name__)
def test_every_key_of_a_widget_is_in_the_table(node: type[Prompt]) -> None:
    names = {base.__name__ for base in node.__mro__}
    told = {binding for place in PLACES if place.node in names for binding in place.bindings}
    assert set(node.BINDINGS) <= told


def test_a_key_means_one_thing_in_an_area() -> None:
    keys = Counter(
        (place.area, key)
        for place in PLACES
        for binding in place.bindings
        for key in binding.key.split(",")
    )
    assert [key for key, count in keys.items() if count > 1] == []


def test_actions_have_names_of_their_own() -> None:
    distinct = {binding for place in PLACES for binding in place.bindings}
    assert len(distinct) == len(BINDINGS)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ctrl+j", "Ctrl+J"),
        ("escape", "Esc"),
        ("up", "↑"),
        ("minus", "-"),
        ("E", "E"),
        ("f1", "F1"),
    ],
)
def test_keys_are_called_as_the_keyboard_calls_them(key: str, name: str) -> None:
    assert name_of(key) == name


@pytest.mark.parametrize(
    ("changed", "span"),
    [
        ({}, "Alt+1–3"),
        ({"chat.pick-1": "f1", "chat.pick-3": "f3"}, "F1–3"),
        ({"chat.pick-3": "x"}, "Alt+1–x"),
    ],
)
def test_the_keys_of_numbered_actions_are_told_in_short(changed: dict[str, str], span: str) -> None:
    assert Keys(changed).span("chat.pick", 3) == span


async def palette(run: Running) -> list[str]:
    """The lines of the palette, as it opens."""
    await run.press("ctrl+p")
    await run.search()
    options = run.app.screen.query_one(OptionList).options
    return [str(option.prompt).replace("\n", " | ") for option in options]


async def test_a_changed_key_works_and_the_one_in_the_table_no_longer_does() -> None:
    async with running(keys=CHANGED) as run:
        await run.type("Two plus two?")
        await run.press("enter")
        assert not run.backend.asks
        await run.press("ctrl+s")
        run.backend.answer("4", "5")
        await run.settle()
        await run.press("alt+1")
        assert not run.kept
        await run.press("f4")
        assert isinstance(run.app.screen, TreeScreen)
        await run.press("f4", "f5")
        assert run.kept == ["4"]


async def test_a_line_is_moved_in_where_older_prompts_are_on_another_key() -> None:
    async with running(keys=Keys({"prompt.older": "ctrl+up"})) as run:
        await run.type("one\ntwo")
        await run.press("up")
        assert run.app.prompt.cursor_location[0] == 0
        assert run.text == "one\ntwo"


async def test_hints_help_and_palette_show_changed_keys() -> None:
    async with running(keys=CHANGED) as run:
        assert run.hint.startswith("Ctrl+S sends")
        await run.press("f1")
        assert isinstance(run.app.screen, HelpScreen)
        rows = str(run.app.screen.content()).split("\n")
        assert any(row.split() == ["F4", "The", "conversation", "as", "a", "tree"] for row in rows)
        assert any(row.startswith("x ") and "Zoom" in row for row in rows)
        await run.press("escape")
        assert "The conversation as a tree  F4" in await palette(run)


async def test_the_palette_has_every_action_of_the_chat_with_its_key() -> None:
    async with running() as run:
        await run.send("Two plus two?")
        run.backend.answer("4", "5")
        await run.settle()
        lines = await palette(run)
        expected = {
            binding.description
            for place in PLACES
            if place.area in ("chat", "answers")
            for binding in place.bindings
            if binding.show
            and not binding.id.endswith(tuple("3456789"))
            and "palette" not in binding.id
        }
        commands = {
            "answers.undo",
            "answers.more",
            "answers.edit",
            "answers.continue",
            "chat.help",
            "chat.quit",
        }
        expected -= {BINDINGS[action].description for action in commands}
        assert {line.split("  ")[0] for line in lines} >= expected
        assert "Pick answer 2; the others stop  Alt+2" in lines
        assert "/undo  u in the answers | take the last pick back, pick another" in lines


async def test_the_palette_over_the_tokens_has_what_can_be_done_there() -> None:
    async with running() as run:
        await run.send("Two plus two?")
        run.backend.answer("4", "5")
        await run.settle()
        run.app.action_tokens()
        await run.settle()
        lines = await palette(run)
        assert "Fork with text of your own  t" in lines
        assert not any(line.startswith("/") for line in lines)
        await run.search("surprising")
        await run.press("enter")
        assert isinstance(run.app.screen, TokenScreen)


async def test_the_key_of_the_sessions_closes_them_again(tmp_path: Path) -> None:
    async with running(keep=tmp_path / "sessions.db") as run:
        await run.press("ctrl+o")
        assert isinstance(run.app.screen, SessionsScreen)
        await run.press("ctrl+o")
        assert run.app.screen is run.app.main
