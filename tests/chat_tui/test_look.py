"""Themes, few colours or none, ASCII, and nothing that moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.widgets import Input

from chat_tui.app import ChatApp
from chat_tui.ascii import TABLE, in_ascii, speaks_utf8
from chat_tui.config import ConfigError
from chat_tui.keys import Keys
from chat_tui.look import Look, check_theme
from chat_tui.settings import Settings
from chat_tui.theme import DARK, TERMINAL
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.running import Running, running

ASCII = Look(ascii=True)


def segments(run: Running) -> list[Segment]:
    """All that is on the screen, as it goes to the terminal."""
    update = run.app.screen._compositor.render_full_update()
    return [segment for row in update.strips for strip in row for segment in strip]


async def busy(run: Running) -> None:
    """Answers with marks, calls, tables and code; the second is picked."""
    await run.send("Two plus two?")
    run.backend.answer("**4** → `x`\n\n| a | b |\n|---|---|\n| 1 | 2 |", "> 4…\n\n- “one”")
    await run.settle()
    await run.press("tab", "right")


class TestAscii:
    def test_each_sign_keeps_its_width(self) -> None:
        for sign, plain in TABLE.items():
            assert cell_len(str(plain)) == cell_len(chr(sign)), chr(sign)
            assert str(plain).isascii()

    def test_letters_of_any_script_stay(self) -> None:
        assert in_ascii("Grüße, 世界 …") == "Grüße, 世界 ~"

    async def test_nothing_else_is_drawn_anywhere(self) -> None:
        async with running(look=ASCII, size=(80, 24)) as run:
            await busy(run)
            assert "".join(segment.text for segment in segments(run)).isascii()
            for keys in (["i"], ["escape", "ctrl+t"], ["escape", "f1"], ["escape", "ctrl+p"]):
                await run.press(*keys)
                await run.pilot.pause(0.1)
                assert "".join(segment.text for segment in segments(run)).isascii(), keys

    async def test_arrow_keys_are_told_in_words(self) -> None:
        async with running(look=ASCII) as run:
            await busy(run)
            await run.press("ctrl+t")
            assert "Up Down move" in "".join(segment.text for segment in segments(run))

    async def test_what_is_copied_is_as_it_was_written(self) -> None:
        async with running(look=ASCII) as run:
            await busy(run)
            assert "4…" in run.app.grid.pane(1).text

    @pytest.mark.parametrize(
        ("environ", "utf8"),
        [
            ({}, True),
            ({"LANG": "de_DE.UTF-8"}, True),
            ({"LANG": "en_US.utf8", "LC_ALL": ""}, True),
            ({"LANG": "C"}, False),
            ({"LANG": "de_DE.ISO-8859-1"}, False),
            ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, False),
            ({"LANG": "C", "LC_CTYPE": "UTF-8"}, True),
        ],
    )
    def test_the_locale_says_whether_it_is_needed(
        self, environ: dict[str, str], utf8: bool
    ) -> None:
        assert speaks_utf8(environ) is utf8


class TestColours:
    @pytest.fixture
    def _colourless(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")

    @pytest.mark.usefixtures("_colourless")
    async def test_no_color_leaves_the_terminals_own(self) -> None:
        async with running(look=Look(theme="nord")) as run:
            await busy(run)
            styles = [segment.style for segment in segments(run) if segment.style is not None]
            colours = {colour for style in styles for colour in (style.color, style.bgcolor)}
            assert {colour.name for colour in colours if colour is not None} <= {"default"}

    @pytest.mark.usefixtures("_colourless")
    async def test_focus_and_pick_are_told_without_colours(self) -> None:
        async with running() as run:
            await busy(run)
            shown = segments(run)
            assert any("┏" in segment.text for segment in shown)
            number = next(segment for segment in shown if segment.text == " 2 ")
            assert number.style is not None
            assert number.style.reverse

    async def test_an_empty_no_color_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "")
        async with running() as run:
            assert run.app.theme == DARK.name

    async def test_sixteen_colours_are_the_terminals_own(self) -> None:
        async with running(look=Look(few_colors=True)) as run:
            await busy(run)
            styles = [segment.style for segment in segments(run) if segment.style is not None]
            colours = {colour for style in styles for colour in (style.color, style.bgcolor)}
            assert all(colour is None or colour.triplet is None for colour in colours)


class TestTheme:
    async def test_the_one_that_was_chosen_is_kept(self, tmp_path: Path) -> None:
        async with running(state=tmp_path) as run:
            run.app.theme = "nord"
            await run.settle()
        async with running(state=tmp_path) as run:
            assert run.app.theme == "nord"
        async with running(state=tmp_path, look=Look(few_colors=True)) as run:
            assert run.app.theme == TERMINAL.name

    async def test_the_command_line_wins_over_it_and_says_so(self, tmp_path: Path) -> None:
        async with running(state=tmp_path, look=Look(theme="dracula")) as run:
            assert run.app.theme == "dracula"
            run.app.theme = "nord"
            await run.settle()
            (told,) = run.app._notifications
            assert told.message == "--theme says dracula, and will again at the next start."

    async def test_nothing_is_kept_of_a_private_chat(self, tmp_path: Path) -> None:
        async with running() as run:
            run.app.theme = "nord"
            await run.settle()
        async with running(state=tmp_path) as run:
            assert run.app.theme == DARK.name

    async def test_one_that_is_gone_is_not_missed(self, tmp_path: Path) -> None:
        (tmp_path / "memory.json").write_text('{"theme": "gone"}')
        async with running(state=tmp_path) as run:
            assert run.app.theme == DARK.name

    def test_one_that_there_is_not_is_named_with_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match="--theme: there is no theme nrod; did you mean nord"):
            check_theme(Look(theme="nrod"))


class TestHint:
    async def test_three_lines_the_first_time_and_never_again(self, tmp_path: Path) -> None:
        for first in (True, False):
            async with running(state=tmp_path) as run:
                shown = str(run.app.welcome.render())
                assert ("Type a question" in shown) is first
                assert ("Enter sends" in shown) is not first

    async def test_a_private_chat_neither_shows_nor_writes_it(self) -> None:
        async with running() as run:
            assert "Enter sends" in str(run.app.welcome.render())

    async def test_it_tells_the_keys_as_they_are(self, tmp_path: Path) -> None:
        async with running(state=tmp_path, keys=Keys({"chat.help": "f9"})) as run:
            assert "F9 tells all keys" in str(run.app.welcome.render())


class TestMotion:
    async def test_nothing_is_animated_where_nothing_is_to_move(self) -> None:
        app = ChatApp(Settings(), FakeBackend(), look=Look(still=True))
        assert app.animation_level == "none"

    async def test_no_cursor_blinks(self) -> None:
        async with running() as run:
            await run.press("ctrl+p")
            await run.pilot.pause(0.1)
            assert not run.app.screen.query_one(Input).cursor_blink
            assert not run.app.prompt.cursor_blink
