"""Tokens to lines of cells: every token visible, every token once.

    layout = TokenLines(width)
    layout.extend(tokens)               # again and again while an answer grows
    layout.lines[3]                     # spans: which token stands where
    layout.at(3, x=17)                  # the token under a cell

A token shows what it is made of: `·` a space, `↵` a newline (and the line ends there), `→` a tab,
`<0xE2>` a byte of a character that other tokens complete, `⟨200D⟩` what has no width of its own.
Lines break between tokens, at the beginning of a word where there is one; a token is only cut where
it is wider than a line, between two graphemes. Nothing here knows of scores or colours.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from rich.cells import cell_len, split_graphemes

from chat_tui.rendering.sanitise import sanitise
from chat_tui.rendering.wrap import hard_breaks

Kind = Literal["text", "mark", "byte", "name"]
Part = tuple[str, Kind]

TAB_CELLS = 4
LONGEST_WORD = 24  # cells of tokens without a space between them that are kept on one line

_NAME = re.compile(r"<\|[^|<>]+\|>|</?s>|<(?:bos|eos|pad|unk|mask|(?:start|end)_of_turn)>")
_FLAG = "[\U0001f1e6-\U0001f1ff]"
_BYTE = "[\udc80-\udcff]"  # what `surrogateescape` makes of a byte that does not decode
_UNIT = re.compile(
    rf"(?P<newline>\r?\n)|(?P<tab>\t)|(?P<spaces> +)|(?P<byte>{_BYTE})|(?P<flag>{_FLAG}{{2}})"
    rf"|(?P<number>{_FLAG})|(?P<text>(?:(?!\r\n|{_FLAG}|{_BYTE})[^\n\t ])+)"
)


class Piece(NamedTuple):
    """What a token is to be drawn as: lines of parts, a break between two lines.

    Attributes:
        opens, closes: a line may break before and behind it without cutting a word.
    """

    lines: tuple[tuple[Part, ...], ...]
    width: int
    opens: bool
    closes: bool


class Span(NamedTuple):
    """A token, or the part of one that stands on a line."""

    token: int
    x: int
    width: int
    parts: tuple[Part, ...]


@lru_cache(maxsize=8192)
def piece_of(token: int, piece: bytes | None) -> Piece:
    """How a token is drawn; by its id where its bytes are not known."""
    if piece is None:
        return _single(f"[{token}]" if token >= 0 else "[?]", "name")
    if not piece:
        return _single(f"⟨{token}⟩", "name")
    text = piece.decode("utf-8", "surrogateescape")
    if _NAME.fullmatch(text):
        return _single(text, "name")
    lines: list[list[Part]] = [[]]
    for unit in _UNIT.finditer(text):
        match unit.lastgroup:
            case "newline":
                lines[-1].append(("␍↵" if unit.group() == "\r\n" else "↵", "mark"))
                lines.append([])
            case "tab":
                lines[-1].append(("→".ljust(TAB_CELLS), "mark"))
            case "spaces":
                lines[-1].append(("·" * len(unit.group()), "mark"))
            case "byte":
                lines[-1].append((f"<0x{ord(unit.group()) - 0xDC00:02X}>", "byte"))
            case "flag":
                lines[-1].append((unit.group(), "text"))
            case "number":  # half a flag, which would join the other half
                lines[-1].append(_number(unit.group()))
            case _:
                lines[-1] += _visible(unit.group())
    drawn = tuple(map(tuple, lines))
    return Piece(
        drawn,
        max(_width(line) for line in drawn),
        opens=text[0].isspace() or _is_wide(text[0]),
        closes=text[-1].isspace() or _is_wide(text[-1]),
    )


def name_of(token: int, piece: bytes | None) -> str:
    """A token in one line of text: as it is drawn, without its line breaks."""
    return "".join(text.rstrip() for line in piece_of(token, piece).lines for text, _ in line)


def _single(text: str, kind: Kind) -> Piece:
    shown = sanitise(text)
    return Piece((((shown, kind),),), cell_len(shown), opens=True, closes=True)


def _visible(text: str) -> Iterator[Part]:
    """A text without spaces, so that each of its characters can be seen and none joins another
    token's."""
    plain = ""
    for start, end, width in split_graphemes(text)[0]:
        grapheme = text[start:end]
        if not width or "\U0001f3fb" <= grapheme[0] <= "\U0001f3ff":
            parts = _alone(grapheme)
        elif grapheme.isspace():
            parts = [("⍽", "mark") if grapheme == "\xa0" else _number(grapheme)]
        else:
            plain += grapheme
            continue
        if plain:
            yield sanitise(plain), "text"
            plain = ""
        yield from parts
    if plain:
        yield sanitise(plain), "text"


def _alone(grapheme: str) -> list[Part]:
    """What has no cell of its own: an accent on a circle, everything else by its number."""
    on_circle = "◌" + grapheme
    if _is_mark(grapheme[0]) and cell_len(on_circle) == 1:
        return [(on_circle, "text")]
    if len(grapheme) == 1 and (shown := sanitise(grapheme)) and cell_len(shown):
        return [(shown, "mark")]
    return [_number(char) for char in grapheme]


def _number(char: str) -> Part:
    return f"⟨{ord(char):04X}⟩", "mark"


def _is_mark(char: str) -> bool:
    """An accent or the like; variation selectors cannot be seen on anything."""
    return unicodedata.category(char)[0] == "M" and not "\ufe00" <= char <= "\ufe0f"


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def _width(line: Sequence[Part]) -> int:
    return sum(cell_len(text) for text, _ in line)


class TokenLines:
    """Tokens laid out in lines of at most `width` cells.

    Attributes:
        lines: the spans of each line, from left to right.
        changed_from: the first line that the last `extend` made anew.
    """

    def __init__(self, width: int) -> None:
        self.width = max(width, 2)
        self.lines: list[list[Span]] = []
        self.changed_from = 0
        self._begins: list[int | None] = []  # the token that a line begins with; None: inside one
        self._where: list[tuple[int, int]] = []  # the first and the last line of each token

    def __len__(self) -> int:
        return len(self._where)

    def extend(self, tokens: Sequence[tuple[int, bytes | None]]) -> None:
        """Lay out what was not there the last time; of what was, the last line may change."""
        if len(tokens) == len(self._where):
            self.changed_from = len(self.lines)
            return
        # A word may have grown out of the last line; those above it stay.
        line = len(self.lines) - 1
        while line > 0 and self._begins[line] is None:
            line -= 1
        begin = self._begins[line] if self.lines else None
        self.changed_from = max(line, 0)
        del self.lines[self.changed_from :], self._begins[self.changed_from :]
        del self._where[begin or 0 :]
        self._new_line(begin or 0)
        pieces = [piece_of(*token) for token in tokens[begin or 0 :]]
        for chunk in self._chunks(pieces):
            self._place(chunk)

    def lines_of(self, token: int) -> tuple[int, int]:
        """The first and the last line that a token stands on."""
        return self._where[token]

    def spans_of(self, token: int) -> list[tuple[int, Span]]:
        """Where a token stands: lines and spans."""
        first, last = self._where[token]
        return [
            (line, span)
            for line in range(first, last + 1)
            for span in self.lines[line]
            if span.token == token
        ]

    def at(self, line: int, x: int) -> int | None:
        """The token at a cell, or the nearest one on that line; None where the line is empty."""
        if not 0 <= line < len(self.lines) or not self.lines[line]:
            return None
        spans = self.lines[line]
        return spans[max(bisect_right([span.x for span in spans], x) - 1, 0)].token

    def _chunks(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """Tokens that are kept on one line: those of a word, unless it is very long.

        What has become a chunk never changes by what follows it, but for the last one.
        """
        longest = min(LONGEST_WORD, self.width)
        chunk: list[Piece] = []
        width = 0
        for piece in pieces:
            joins = chunk and not (chunk[-1].closes or piece.opens)
            if chunk and (not joins or width + piece.width > longest):
                yield chunk
                chunk, width = [], 0
            chunk.append(piece)
            width += piece.width
        if chunk:
            yield chunk

    def _place(self, chunk: Sequence[Piece]) -> None:
        head = sum(_width(piece.lines[0]) for piece in chunk)
        if self._used and self._used + head > self.width:
            self._new_line(len(self._where))
        for piece in chunk:
            token, first = len(self._where), len(self.lines) - 1
            for number, parts in enumerate(piece.lines):
                if number:
                    self._new_line(None if parts else token + 1)
                self._put(token, parts)
            last = len(self.lines) - 1
            self._where.append((first, last if piece.lines[-1] else last - 1))

    def _put(self, token: int, parts: Sequence[Part]) -> None:
        """Put a part of a token at the end of the last line, cut where it is wider than a line."""
        if self._used + _width(parts) <= self.width:
            if parts:
                self.lines[-1].append(Span(token, self._used, _width(parts), tuple(parts)))
            return
        for text, kind in parts:
            for start, end in hard_breaks(text, self.width):
                piece = text[start:end]
                if self._used and self._used + cell_len(piece) > self.width:
                    self._new_line(None)
                self.lines[-1].append(Span(token, self._used, cell_len(piece), ((piece, kind),)))

    @property
    def _used(self) -> int:
        return self.lines[-1][-1].x + self.lines[-1][-1].width if self.lines[-1] else 0

    def _new_line(self, begins: int | None) -> None:
        self.lines.append([])
        self._begins.append(begins)
