"""The box that is typed into: what is one thing to the cursor, and what fits its width."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult

from chat_tui.rendering.wrap import graphemes
from chat_tui.widgets.text_box import TextBox
from tests.chat_tui.hard_texts import HARD_TEXTS


class Boxed(App[None]):
    def compose(self) -> ComposeResult:
        yield TextBox()

    @property
    def box(self) -> TextBox:
        return self.query_one(TextBox)


def shown(box: TextBox) -> list[str]:
    strips = [box.render_line(y) for y in range(box.wrapped_document.height)]
    return ["".join(segment.text for segment in strip) for strip in strips]


@pytest.mark.parametrize("width", [12, 13, 37])
async def test_no_line_is_wider_than_the_box_or_shows_control(width: int) -> None:
    app = Boxed()
    async with app.run_test(size=(width, 60)):
        box = app.box
        for name, text in HARD_TEXTS.items():
            box.load_text(text)
            room = box.scrollable_content_region.width
            for line in shown(box):
                assert cell_len(line) <= room, name
                assert not set(line) & set(
                    "\x1b\x07\x9b\x7f\u202e\u202c\u2066\u2069\u200b\ufeff"
                ), name


async def test_a_grapheme_is_never_broken_over_two_lines() -> None:
    app = Boxed()
    async with app.run_test(size=(13, 60)):
        box = app.box
        for name, text in HARD_TEXTS.items():
            box.load_text(text)
            starts = {a for a, _, _ in graphemes(text)}
            assert set(box.wrapped_document.get_offsets(0)) <= starts, name


async def test_the_cursor_and_the_deleting_keys_take_a_grapheme_whole() -> None:
    app = Boxed()
    async with app.run_test() as pilot:
        box = app.box
        box.load_text("a👨‍👩‍👧🇩🇪e\u0301b")
        await pilot.press("end", "left", "backspace")
        assert box.text == "a👨‍👩‍👧🇩🇪b"
        await pilot.press("left", "left", "delete")
        assert box.text == "a🇩🇪b"
        assert box.cursor_location == (0, 1)


async def test_a_paste_of_many_lines_can_be_undone() -> None:
    app = Boxed()
    async with app.run_test(size=(40, 8)) as pilot:
        app.box.load_text("kept")
        await pilot.press("end")
        app.box.insert("\n".join(map(str, range(40))))
        await pilot.press("ctrl+z")
        assert app.box.text == "kept"


async def test_any_keys_in_any_order_leave_a_text_that_is_all_there() -> None:
    keys = ["left", "right", "up", "down", "home", "end", "backspace", "delete", "ctrl+w", "ctrl+z"]
    keys += ["ctrl+y", "ctrl+k", "ctrl+u", "enter", "shift+left", "shift+up", "x", "ctrl+left"]
    long = "\n".join(map(str, range(50)))
    rng = random.Random(3)
    app = Boxed()
    async with app.run_test(size=(24, 8)) as pilot:
        box = app.box
        for _ in range(12):
            box.take_paste(rng.choice([long, *HARD_TEXTS.values()]))
            for key in rng.choices(keys, k=8):
                app.post_message(events.Key(key, key if len(key) == 1 else None))
            await pilot.pause()
            for line in range(box.document.line_count):
                labels = box.document.get_line(line).count("[pasted")
                assert len(list(box.folds.spans(box.document.get_line(line)))) == labels
            whole = box.whole
            box.replace_text(whole)
            assert box.whole == whole
