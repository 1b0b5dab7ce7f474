"""A pane draws what it was fed, when it is painted, and follows its end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import get_args

from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Offset, Region
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from chat_tui.widgets.pane import Pane
from engine.messages import FinishReason, ToolCall

SIZE = (40, 12)


class Host(App[None]):
    """One pane and nothing else."""

    CSS = "Pane { width: 100%; height: 100%; }"

    def __init__(self, label: str = "T 0.7", *, numbered: bool = True) -> None:
        super().__init__()
        self.pane = Pane(1, label, numbered=numbered)

    def compose(self) -> ComposeResult:
        yield self.pane


def shown(pane: Pane) -> list[str]:
    """What is on the screen inside the pane's border."""
    height = pane.scrollable_content_region.height
    return [pane.render_line(y).text.rstrip() for y in range(height)]


def heading(pane: Pane) -> str:
    return Content.from_markup(pane.border_title or "").plain


def figures(pane: Pane) -> str:
    return Content.from_markup(pane.border_subtitle or "").plain


async def test_nothing_is_drawn_until_it_is_painted() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        for token in ("The", " sky", " is", " **blue**", "."):
            pane.feed(token)
        assert shown(pane)[0] == ""
        pane.paint()
        await pilot.pause()
        assert shown(pane)[0] == "The sky is blue."
        assert pane.text == "The sky is **blue**."
        assert pane.tokens == 5


def rows(pane: Pane, draw: Callable[[Pane, Region], list[Strip]]) -> list[list[tuple[str, str]]]:
    """All of a pane, frame and styles included, as `draw` draws it."""
    strips = draw(pane, pane.outer_size.region)
    return [[(text, str(style)) for text, style, _ in strip.simplify()] for strip in strips]


async def test_what_is_kept_of_earlier_paints_is_what_would_be_painted_now() -> None:
    app = Host()
    words = ("The ", "sky **is** ", "blue.\n\n", "- and so\n", "`x = 1` ", "日本 ", "is it. ")
    story = cycle(words)
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane

        async def stream(count: int = 15) -> None:
            for token in islice(story, count):
                pane.feed(token)
                pane.paint()
                await pilot.pause()

        def theme() -> None:
            app.theme = "textual-light"

        def select() -> None:
            app.screen.selections = {pane: Selection(Offset(0, 3), Offset(9, 5))}

        for change in (
            lambda: None,
            lambda: pane.scroll_to_line(2),
            lambda: pane.scroll_to_line(pane.max_scroll_y),
            lambda: pane.set_picked(True),
            lambda: pane.part(None),
            lambda: pane.set_note("waiting"),
            theme,
            select,
            app.screen.clear_selection,
            lambda: pilot.resize_terminal(30, 9),
            lambda: pilot.resize_terminal(60, 20),
            lambda: pane.finish("stop", "and so on"),
        ):
            done = change()
            if done is not None:
                await done
            if not pane.finished:
                await stream()
            pane.paint()
            await pilot.pause()
            kept = rows(pane, Pane.render_lines)
            pane._styles_cache.clear()
            assert kept == rows(pane, ScrollView.render_lines)


async def test_the_last_characters_come_with_the_finish() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        app.pane.feed("caf")
        app.pane.finish("stop", "é")
        app.pane.paint()
        assert shown(app.pane)[0] == "café"


async def test_the_heading_tells_number_label_state_and_figures() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        pane.paint()
        assert heading(pane) == "2 ○ T 0.7"
        pane.feed("x")
        pane.paint()
        assert heading(pane) == "2 ● T 0.7"
        endings: dict[FinishReason | None, str] = {
            "stop": "2 ✓ T 0.7",
            "length": "2 … T 0.7 cut: token limit",
            "context": "2 … T 0.7 cut: context full",
            "cancelled": "2 ■ T 0.7 stopped",
            "content_filter": "2 ✗ T 0.7 cut: content filter",
            None: "2 ✗ T 0.7 cut off",
        }
        assert endings.keys() == {*get_args(FinishReason), None}
        for reason, told in endings.items():
            pane.finish(reason)
            pane.paint()
            assert heading(pane) == told
        assert figures(pane) == "1 tok"
        pane.set_picked(True)
        pane.paint()
        assert heading(pane).endswith("picked")


async def test_a_single_answer_has_no_number() -> None:
    app = Host("", numbered=False)
    async with app.run_test(size=SIZE):
        app.pane.feed("x")
        app.pane.paint()
        assert heading(app.pane).strip() == "● 1 tok"


async def test_markup_in_a_label_is_text() -> None:
    app = Host("[red]\x1b[2J")
    async with app.run_test(size=SIZE):
        app.pane.paint()
        assert heading(app.pane) == "2 ○ [red]␛[2J"


async def test_it_follows_its_end_until_scrolled_up_and_again_at_the_end() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.focus()
        for n in range(30):
            pane.feed(f"line {n}\n")
        pane.paint()
        await pilot.pause()
        assert shown(pane)[-1] == "line 29"
        await pilot.press("pageup")
        top = shown(pane)[0]
        pane.feed("line 30\nline 31\n")
        pane.paint()
        await pilot.pause()
        assert shown(pane)[0] == top
        await pilot.press("end")
        pane.feed("line 32\n")
        pane.paint()
        await pilot.pause()
        assert shown(pane)[-1] == "line 32"


async def test_one_line_up_lets_go_of_the_end() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        for n in range(30):
            pane.feed(f"line {n}\n")
        pane.paint()
        await pilot.pause()
        pane.focus()
        await pilot.press("shift+up")
        assert not pane.following


async def test_a_narrower_pane_wraps_anew_and_still_follows() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("word " * 60 + "end")
        pane.paint()
        await pilot.resize_terminal(24, 8)
        await pilot.pause()
        assert shown(pane)[-1].endswith("end")
        assert all(line.width <= pane.columns for line in pane.lines)


async def test_another_width_makes_the_lines_that_are_in_view() -> None:
    made = []
    for paragraphs in (20, 400):
        app = Host()
        async with app.run_test(size=SIZE) as pilot:
            pane = app.pane
            pane.feed("\n\n".join(f"This is the **{n}th** of them." for n in range(paragraphs)))
            pane.finish("stop")
            pane.paint()
            await pilot.resize_terminal(24, 8)
            assert shown(pane)[-1] == "them."
            made.append(len(pane._laid_out._made))
    assert made[0] == made[1] <= 3


async def test_another_width_keeps_what_is_read_in_view() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("\n\n".join(f"{n} " + "and so on " * 12 for n in range(50)))
        pane.paint()
        first = next(y for y, line in enumerate(pane.lines) if line.text.startswith("20 "))
        pane.scroll_to_line(first)
        for size in ((24, 8), (80, 20), SIZE):
            await pilot.resize_terminal(*size)
            assert any(line.startswith("20 ") for line in shown(pane)[:2]), size
            pane.feed("\n\nmore")
            pane.paint()
            assert not pane.following
        assert pane.scroll_offset.y in (first - 1, first)


async def test_a_row_that_looks_the_same_is_not_drawn_again() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("a line that is full enough to wrap somewhere, and")
        pane.paint()
        await pilot.pause()
        before = pane.render_lines(pane.outer_size.region)
        pane.feed(" then some")
        pane.paint()
        await pilot.pause()
        after = pane.render_lines(pane.outer_size.region)
        assert [old is new for old, new in zip(before, after, strict=True)][:4] == [
            *(True, True, False, True)
        ]


async def test_a_call_is_drawn_as_a_chip() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        pane.feed("It is <<12*3=")
        pane.set_call(0, ToolCall(6, 13, "12*3", "36", False))
        pane.paint()
        assert shown(pane)[0] == "It is  12*3 …"
        pane.feed("36>>", forced=True)
        pane.set_call(0, ToolCall(6, 17, "12*3", "36", True))
        pane.paint()
        assert shown(pane)[0] == "It is  12*3 → 36"


async def test_a_note_stands_below_the_text_and_can_go() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        pane.set_note("waiting for the model")
        pane.paint()
        assert shown(pane)[0] == "waiting for the model"
        pane.feed("Yes")
        pane.paint()
        assert shown(pane)[:3] == ["Yes", "", "waiting for the model"]
        pane.set_note("")
        pane.paint()
        assert shown(pane)[:3] == ["Yes", "", ""]


async def test_a_very_long_paragraph_is_drawn_less_often_but_wholly() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        pane.feed("word " * 1000)
        pane.paint()
        pane.feed("last")
        for _ in range(5):
            pane.paint()
        assert shown(pane)[-1].endswith("last")


async def test_copied_text_has_no_breaks_that_only_the_width_made() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        text = "- a list item that is certainly too long for this pane\n- another"
        pane.feed(text)
        pane.finish("stop")
        pane.paint()
        assert len(pane.lines) == 3
        assert pane.get_selection(Selection(None, None)) == (text.replace("-", "•"), "\n")
        assert pane.get_selection(Selection(Offset(2, 0), Offset(8, 0))) == ("a list", "\n")


async def test_copied_code_runs() -> None:
    app = Host()
    async with app.run_test(size=SIZE):
        pane = app.pane
        code = "for n in range(3):\n    print(n)"
        pane.feed(f"- so:\n  ```\n  {code}\n  ```\n> quoted\n\n```\n{code}\n```")
        pane.finish("stop")
        pane.paint()
        copied, _ = pane.get_selection(Selection(None, None)) or ("", "")
        assert copied.endswith(f"quoted\n\n{code}")


async def test_text_can_be_selected_with_the_mouse() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("select some words here")
        pane.paint()
        await pilot.pause()
        await pilot.mouse_down(pane, offset=(9, 1))
        await pilot.hover(pane, offset=(13, 1))
        await pilot.mouse_up(pane, offset=(13, 1))
        await pilot.pause()
        assert app.screen.get_selected_text() == "some"


async def test_a_selection_goes_over_blank_lines_and_over_ends_of_lines() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("One paragraph.\n\nAnother\n\nand 日本")
        pane.paint()
        await pilot.pause()
        await pilot.mouse_down(pane, offset=(6, 1))
        await pilot.hover(pane, offset=(6, 5))
        await pilot.mouse_up(pane, offset=(6, 5))
        assert app.screen.get_selected_text() == "paragraph.\n\nAnother\n\nand 日"
        app.screen.selections = {pane: Selection(Offset(30, 1), Offset(40, 2))}
        await pilot.pause()
        assert shown(pane)[2] == "Another"


async def test_another_theme_is_another_palette() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        pane = app.pane
        pane.feed("Some `code`")
        pane.paint()
        before = pane.lines[0].runs
        app.theme = "textual-light"
        await pilot.pause()
        await pilot.pause()
        assert pane.lines[0].runs != before
        assert shown(pane)[0] == "Some code"
