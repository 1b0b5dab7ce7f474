"""Where lines are broken."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from chat_tui.rendering.wrap import _ascii_breaks, breaks, wrap
from tests.chat_tui.drawn import PALETTE


class TestWrapping:
    def lines(self, text: str, width: int) -> list[str]:
        return [line.text for line in wrap([(text, PALETTE.text)], width)]

    def test_breaks_at_spaces(self) -> None:
        assert self.lines("the quick brown fox", 10) == ["the quick", "brown fox"]

    def test_breaks_cjk_between_characters_but_not_before_punctuation(self) -> None:
        assert self.lines("これは、長い。", 6) == ["これ", "は、長", "い。"]

    def test_breaks_a_long_word_and_loses_nothing(self) -> None:
        url = "https://example.com/a/very/long/path"
        assert self.lines(f"see {url} now", 12) == [
            "see",
            "https://exam",
            "ple.com/a/ve",
            "ry/long/path",
            "now",
        ]

    def test_ascii_is_broken_where_any_text_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = random.Random(7)
        lines = [
            "".join(rng.choice(("a", "bb", "-word,", "it's", " ", " ", "  ")) for _ in range(count))
            for count in range(1, 60)
            for _ in range(8)
        ]
        fast = [breaks(line, width) for line in lines for width in (2, 5, 9, 24)]
        assert any(_ascii_breaks(line, 9) for line in lines if line[0] != " ")
        monkeypatch.setattr("chat_tui.rendering.wrap._ascii_breaks", lambda line, width: [])
        assert fast == [breaks(line, width) for line in lines for width in (2, 5, 9, 24)]

    def test_never_breaks_a_grapheme(self) -> None:
        assert self.lines("👨‍👩‍👧" * 3, 4) == ["👨‍👩‍👧" * 2, "👨‍👩‍👧"]

    def test_keeps_an_indent(self) -> None:
        assert self.lines("    indented text here", 16) == ["    indented", "text here"]

    def test_knows_what_it_broke(self) -> None:
        lines = wrap([("one two\nthreefour 漢字", PALETTE.text)], 5)
        assert [(line.text, line.joint) for line in lines] == [
            ("one", " "),
            ("two", "\n"),
            ("three", ""),
            ("four", " "),
            ("漢字", "\n"),
        ]

    def test_any_text_at_any_width(self) -> None:
        pieces = ["a", "word", " ", "  ", "漢", "。", "「", "👨‍👩‍👧", "❤️", "e\u0301", "\xa0", "\n"]
        rng = random.Random(1)
        for _ in range(2000):
            text = "".join(rng.choices(pieces, k=rng.randint(0, 40)))
            width = rng.randint(2, 20)
            lines = self.lines(text, width)
            assert all(cell_len(line) <= width for line in lines), (text, width)
            assert "".join("".join(lines).split()) == "".join(text.split()), (text, width)
