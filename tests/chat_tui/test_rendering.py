"""Model text becomes lines of cells: right in width, the same however it arrived."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from rich.cells import cell_len
from textual.app import App

from chat_tui.rendering import Flow, Palette
from chat_tui.rendering.blocks import blocks
from chat_tui.rendering.table import fit
from chat_tui.rendering.wrap import Line
from engine.messages import ToolCall
from tests.chat_tui.drawn import PALETTE, drawn

MARKDOWN = """# Title
A **bold** word, an *italic* one, `code` and [a link](https://example.com/x).

1. first
2. second that is long enough to be broken over two lines of text
   - nested

- loose

- list

> a quotation
> of two lines

```python
def f(x: int) -> int:
    return x**2  # why not
```

---
| Name | Value |
|:-----|------:|
| a    |     1 |

The end: 3*4*5, 2**8 and \\(x\\).
"""


def styles_of(lines: Iterable[Line], part: str) -> list[object]:
    """The styles of the runs that hold `part`."""
    return [style for line in lines for text, style in line.runs if part in text]


class TestMarkdown:
    def test_draws_what_it_says(self) -> None:
        assert drawn(MARKDOWN) == [
            "Title",
            "A bold word, an italic one, code and a",
            "link (https://example.com/x).",
            "",
            "1. first",
            "2. second that is long enough to be",
            "   broken over two lines of text",
            "   ◦ nested",
            "",
            "• loose",
            "",
            "• list",
            "",
            "▎ a quotation",
            "▎ of two lines",
            "",
            " python".ljust(40),
            " def f(x: int) -> int:".ljust(40),
            "     return x**2  # why not".ljust(40),
            "",
            "─" * 40,
            "Name  Value",
            "───────────",
            "a         1",
            "",
            "The end: 3*4*5, 2**8 and \\(x\\).",
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "<b>bold</b>",
            "<!-- remark -->",
            "&#27;[2J &amp;",
            "[x]: http://example.com",
            "[red]x[/] [/]",
            "3*4*5*6",
            "2**3**4",
            "snake_case_name",
            "f(a)*(b)*c",
        ],
    )
    def test_leaves_alone_what_only_looks_like_markup(self, text: str) -> None:
        assert drawn(text) == [text]

    def test_a_dash_below_a_line_does_not_make_it_a_heading(self) -> None:
        flow = Flow("Here are:\n-")
        before = [line.text for line in flow.lines(40, PALETTE)]
        flow.append(" one")
        assert before[0] == "Here are:"
        assert [line.text for line in flow.lines(40, PALETTE)] == ["Here are:", "• one"]

    def test_a_newline_is_a_newline(self) -> None:
        assert drawn("roses\nviolets") == ["roses", "violets"]

    @pytest.mark.parametrize(
        "text",
        [
            "```",
            "```py\nx = 1",
            "**",
            "[",
            "![](",
            "|",
            "|a|\n|-",
            "> " * 200,
            "*" * 999,
            "- " * 99,
        ],
    )
    def test_draws_what_is_broken_or_unfinished(self, text: str) -> None:
        lines = drawn(text)
        assert all(cell_len(line) <= 40 for line in lines)

    def test_falls_back_to_plain_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> None:
            raise RecursionError

        monkeypatch.setattr("chat_tui.rendering.markdown._parser", broken)
        assert drawn("**still** here\x1b") == ["**still** here␛"]

    def test_code_is_highlighted_and_wrapped(self) -> None:
        flow = Flow("```python\nreturn '" + "x" * 60 + "'\n```", closed=True)
        lines = flow.lines(30, PALETTE)
        assert all(line.width == 30 for line in lines)
        assert "".join(line.text.strip() for line in lines).count("x") == 60
        assert styles_of(lines, "return") != styles_of(lines, "xxx")[:1]

    def test_a_growing_code_block_is_highlighted_too(self) -> None:
        lines = Flow("```python\nreturn 1\n").lines(30, PALETTE)
        assert styles_of(lines, "return") != styles_of(lines, "1")

    def test_a_table_too_wide_becomes_a_list(self) -> None:
        head = "|".join("abcdefgh")
        text = f"|{head}|\n|{'--|' * 8}\n|{'long cell|' * 8}"
        lines = drawn(text, 24)
        assert "a: long cell" in lines
        assert all(cell_len(line) <= 24 for line in lines)

    def test_a_row_with_too_many_cells_loses_none(self) -> None:
        assert drawn("|a|\n|-|\n|1|2|") == ["|a|", "|-|", "|1|2|"]

    def test_the_widest_columns_give_way(self) -> None:
        assert fit([4, 30, 30], 40) == [4, 18, 18]
        assert fit([4, 10], 40) == [4, 10]


class TestBlocks:
    def texts(self, text: str, *, final: bool = True) -> list[str]:
        return [text[block.start : block.end] for block in blocks(text, final=final)]

    def test_each_item_is_a_block(self) -> None:
        assert self.texts("a:\n- b\n  c\n\n  d\n- e\n\nf") == ["a:", "- b\n  c\n\n  d", "- e", "f"]

    def test_a_fence_holds_everything_together(self) -> None:
        assert self.texts("```\n\n# no\n\n- no\n```\nyes") == ["```\n\n# no\n\n- no\n```", "yes"]

    def test_an_unclosed_fence_goes_on(self) -> None:
        assert self.texts("a\n\n```py\nx\n\ny") == ["a", "```py\nx\n\ny"]

    def test_the_beginning_of_a_line_cuts_only_when_it_is_certain(self) -> None:
        assert self.texts("para\n\n", final=False) == ["para"]
        assert self.texts("para\n\nA new p", final=False) == ["para\n\nA new p"]
        assert self.texts("para\n\nA new paragraph", final=False) == ["para", "A new paragraph"]


class TestGrowing:
    def test_every_split_gives_the_same_lines(self) -> None:
        whole = Flow(MARKDOWN, closed=True).lines(40, PALETTE)
        for size in range(1, 12):
            flow = Flow()
            for at in range(0, len(MARKDOWN), size):
                flow.append(MARKDOWN[at : at + size])
                flow.lines(40, PALETTE)
            flow.close()
            assert flow.lines(40, PALETTE) == whole, size

    def test_any_text_in_any_pieces_is_harmless_and_not_lost(self) -> None:
        pieces = [
            *("word ", "✦", "\n", "\n\n", "- ", "* ", "1. ", "  ", "```", "```py\n", "~~~"),
            *("# ", "---", "> ", "|a|b|\n", "|--|--|\n", "\t", "`", "**x**", "_", "[a](b)", "!["),
            *("<b>", "&#27;", "\x1b[2J", "漢字", "👨‍👩‍👧", "\u200d", "\r\n", "\r", "\0", "[red]"),
            *("\\(", "\ud800", "https://example.com/" + "a" * 30, "\U000f0000", "\x85", "\u2028"),
        ]
        rng = random.Random(3)
        for _ in range(300):
            text = "".join(rng.choices(pieces, k=rng.randint(1, 20)))
            width = rng.choice([10, 20, 40, 80])
            flow, at = Flow(), 0
            while at < len(text):
                size = rng.randint(1, 5)
                flow.append(text[at : at + size])
                at += size
                assert all(line.width <= width for line in flow.lines(width, PALETTE)), text
            flow.close()
            lines = flow.lines(width, PALETTE)
            assert lines == Flow(text, closed=True).lines(width, PALETTE), text
            shown = "".join(line.text for line in lines)
            assert not [c for c in shown if ord(c) < 32 or 126 < ord(c) < 160 or ord(c) > 0xEFFFF]
            assert shown.count("✦") == text.count("✦"), text

    def test_the_last_token_is_drawn(self) -> None:
        flow = Flow()
        for token in ("The", " answer", " is", " 4", "2", "."):
            flow.append(token)
            assert flow.lines(40, PALETTE)[-1].text.endswith(token.strip())

    def test_an_escape_sequence_in_two_halves_is_harmless(self) -> None:
        flow = Flow("x\x1b")
        flow.lines(40, PALETTE)
        flow.append("[2J")
        assert [line.text for line in flow.lines(40, PALETTE)] == ["x␛[2J"]

    def test_blocks_that_are_complete_stay_as_they_are(self) -> None:
        flow = Flow("First paragraph.\n\nSecond paragraph")
        assert flow.update() == 0
        first, second = flow.pieces
        flow.append(" grows.")
        assert flow.update() == 1
        assert flow.pieces[0] is first
        assert flow.pieces[1] is not second

    def test_another_width_draws_everything_anew(self) -> None:
        flow = Flow(MARKDOWN, closed=True)
        flow.lines(60, PALETTE)
        assert [line.text for line in flow.lines(40, PALETTE)] == drawn(MARKDOWN)


class TestInsets:
    def call(
        self, text: str, result: str | None = None, *, done: bool = False, start: int = 0
    ) -> ToolCall:
        expression = text.strip("<>").partition("=")[0]
        return ToolCall(start, start + len(text), expression, result, done)

    def test_a_call_is_a_chip_in_each_of_its_states(self) -> None:
        flow = Flow("so ")
        seen = []
        for text, forced, result, done in (
            ("<<123*456", False, None, False),
            ("=", False, "56088", False),
            ("56", True, "56088", False),
            ("088", True, "56088", False),
            (">>", True, "56088", True),
        ):
            flow.append(text, forced)
            call = ToolCall(3, len(flow.text), "123*456", result, done)
            flow.set_call(0, call)
            seen.append(flow.lines(40, PALETTE)[0].text)
        assert seen == [
            "so  123*456 … ",
            "so  123*456 … ",
            "so  123*456 → 56 ",
            "so  123*456 → 56088 ",
            "so  123*456 → 56088 ",
        ]

    def test_a_call_without_a_result_says_so(self) -> None:
        assert drawn("<<1/0=>> ok", calls=[self.call("<<1/0=>>", done=True)]) == [" 1/0 ✗  ok"]

    def test_chips_live_inside_markdown(self) -> None:
        text = "- item **<<1+1=2>>** and `<<2+2=4>>`\n\n|a|\n|-|\n|<<3+3=6>>|"
        calls = [
            self.call(part, part[6], done=True, start=text.index(part))
            for part in ("<<1+1=2>>", "<<2+2=4>>", "<<3+3=6>>")
        ]
        assert drawn(text, calls=calls) == [
            "• item  1+1 → 2  and  2+2 → 4 ",
            "",
            "a        ",
            "─────────",
            " 3+3 → 6 ",
        ]

    def test_a_chip_is_not_broken_where_it_fits(self) -> None:
        text = "the product is <<123*456=56088>> exactly"
        call = ToolCall(15, 32, "123*456", "56088", True)
        assert drawn(text, 24, calls=[call]) == [
            "the product is",
            " 123*456 → 56088 ",
            "exactly",
        ]

    def test_a_call_that_changes_above_is_drawn_again(self) -> None:
        flow = Flow("<<1+1=2>>\n\nA second paragraph")
        flow.set_call(0, ToolCall(0, 9, "1+1", "2", False))
        flow.lines(40, PALETTE)
        flow.set_call(0, ToolCall(0, 9, "1+1", "2", True))
        assert flow.update() is None
        assert flow.lines(40, PALETTE)[0].text.strip() == "1+1 → 2"

    def test_forced_text_looks_different_and_is_no_markdown(self) -> None:
        flow = Flow("**chosen** ")
        flow.append("**for", forced=True)
        flow.append("ced**", forced=True)
        lines = flow.lines(40, PALETTE)
        assert lines[0].text == "chosen **forced**"
        assert styles_of(lines, "forced") != styles_of(lines, "chosen")

    def test_private_use_characters_of_a_model_are_no_insets(self) -> None:
        assert drawn("a \U000f0000 b") == ["a \ufffd b"]

    def test_an_expression_is_sanitised_too(self) -> None:
        call = ToolCall(0, 3, "1\x1b[2J\n2", None, True)
        assert drawn("abc", calls=[call]) == [" 1␛[2J 2 ✗ "]


@pytest.mark.parametrize("theme", sorted(App().available_themes))
async def test_every_theme_makes_forced_text_and_chips_stand_out(theme: str) -> None:
    app = App[None]()
    async with app.run_test() as pilot:
        app.theme = theme
        await pilot.pause()
        palette = Palette.of(app)
        looks = {palette.text, palette.forced, palette.chip, palette.muted, palette.marked}
        assert len(looks) == 5


def test_indents_of_code_without_a_fence_are_kept() -> None:
    text = "Here it is:\ndef f(x):\n    if x:\n        return x\n\nDone"
    assert drawn(text) == [
        "Here it is:",
        "def f(x):",
        "    if x:",
        "        return x",
        "",
        "Done",
    ]
    assert drawn("- item\n  more\n    deeper") == ["• item", "  more", "    deeper"]
