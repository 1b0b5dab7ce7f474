"""Tokens laid out in cells: every token visible, every token once, whatever is in it."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from chat_tui.rendering.token_lines import TokenLines, name_of, piece_of


def tokens_of(*pieces: str | bytes | None) -> list[tuple[int, bytes | None]]:
    return [
        (number, piece.encode() if isinstance(piece, str) else piece)
        for number, piece in enumerate(pieces)
    ]


def laid_out(width: int, *pieces: str | bytes | None) -> list[str]:
    lines = TokenLines(width)
    lines.extend(tokens_of(*pieces))
    return text_of(lines)


def text_of(lines: TokenLines) -> list[str]:
    return [
        "".join(text for span in line for text, _ in span.parts).rstrip() for line in lines.lines
    ]


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" apples", "·apples"),
        ("\n", "↵"),
        ("\r\n", "␍↵"),
        ("a\n\nb", "a↵↵b"),
        ("\t", "→"),
        ("   ", "···"),
        ("\u200d", "⟨200D⟩"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("\ufe0f", "⟨FE0F⟩"),
        ("🏽", "⟨1F3FD⟩"),
        ("👍🏽", "👍🏽"),
        ("🇩", "⟨1F1E9⟩"),
        ("🇩🇪", "🇩🇪"),
        ("\xa0", "⍽"),
        ("\u3000", "⟨3000⟩"),
        ("\x1b[31m", "␛[31m"),
        ("\x00", "␀"),
        ("\u202e", "⟨202E⟩"),
        ("한", "한"),
        ("<|im_end|>", "<|im_end|>"),
        (b"\xe2\x9c", "<0xE2><0x9C>"),
        (b"ok\xf0", "ok<0xF0>"),
        (b"\x93 ", "<0x93>·"),
        (b"", "⟨7⟩"),
        (None, "[7]"),
    ],
)
def test_what_a_token_is_made_of_can_be_seen(piece: str | bytes | None, shown: str) -> None:
    assert name_of(7, piece.encode() if isinstance(piece, str) else piece) == shown


def test_lines_break_at_words_and_at_newlines() -> None:
    assert laid_out(12, "The", " straw", "berr", "y", " is", " red", ".\n", "Yes") == [
        "The",
        "·strawberry",
        "·is·red.↵",
        "Yes",
    ]


def test_a_newline_at_the_end_opens_a_line_that_nothing_stands_on() -> None:
    lines = TokenLines(10)
    lines.extend(tokens_of("a", "\n"))
    assert text_of(lines) == ["a↵", ""]
    assert lines.lines_of(1) == (0, 0)


def test_a_token_wider_than_a_line_is_cut_between_graphemes() -> None:
    assert laid_out(5, "a", "日本語日本語", "b") == ["a", "日本", "語日", "本語b"]


def test_wide_characters_count_as_two_cells() -> None:
    lines = TokenLines(10)
    lines.extend(tokens_of("日本", "語", "で", "す", "ね"))
    assert text_of(lines) == ["日本語です", "ね"]
    assert [(span.x, span.width) for span in lines.lines[0]] == [(0, 4), (4, 2), (6, 2), (8, 2)]


def test_the_token_under_a_cell() -> None:
    lines = TokenLines(20)
    lines.extend(tokens_of("日本", " is", "\n", "\n", "x"))
    assert [lines.at(0, x) for x in (0, 3, 4, 6, 7, 19)] == [0, 0, 1, 1, 2, 2]
    assert lines.at(1, 5) == 3
    assert lines.at(2, 0) == 4
    assert lines.at(9, 0) is None


PIECES = [
    "a",
    "strawberry",
    " and",
    " ",
    "\n",
    "\n\n",
    " \n x",
    "\t",
    "日本語",
    "。",
    "👩\u200d👧",
    "\u200d",
    "\u0301",
    "e\u0301",
    "🇩",
    "🇩🇪",
    "x" * 50,
    "日" * 40,
    "<|im_start|>",
    "\x1b]0;title\x07",
    b"\xe2",
    b"\x9c\x93",
    b"\xff\n",
    None,
    b"",
]


@pytest.mark.parametrize("seed", range(40))
def test_every_token_once_in_order_and_no_line_too_wide(seed: int) -> None:
    """And growing token by token ends as if all had been there from the start."""
    chance = random.Random(seed)
    pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 120))]
    tokens = tokens_of(*pieces)
    width = chance.choice([2, 7, 20, 33, 80])
    whole = TokenLines(width)
    whole.extend(tokens)

    drawn: dict[int, str] = {}
    places: list[int] = []
    for line in whole.lines:
        x = 0
        for span in line:
            text = "".join(part for part, _ in span.parts)
            assert (span.x, span.width) == (x, cell_len(text))
            assert span.width > 0
            x += span.width
            drawn[span.token] = drawn.get(span.token, "") + text
            if not places or places[-1] != span.token:
                places.append(span.token)
        assert x <= width or len(line) == 1
    assert places == list(range(len(tokens)))
    for token, piece in tokens:
        assert drawn[token] == "".join(
            text for parts in piece_of(token, piece).lines for text, _ in parts
        )
        first, last = whole.lines_of(token)
        spans = whole.spans_of(token)
        assert (spans[0][0], spans[-1][0]) == (first, last)

    growing = TokenLines(width)
    count = 0
    while count < len(tokens):
        count = min(count + chance.randint(1, 5), len(tokens))
        before = [list(line) for line in growing.lines]
        growing.extend(tokens[:count])
        kept = growing.changed_from
        assert growing.lines[:kept] == before[:kept]
    assert growing.lines == whole.lines
    assert [growing.lines_of(token) for token in range(len(tokens))] == [
        whole.lines_of(token) for token in range(len(tokens))
    ]
