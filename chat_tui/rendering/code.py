"""Code blocks: highlighted in the palette's own colours, wrapped, on a tinted ground.

A code block that is complete is lexed whole. One that still grows is lexed line by line, each line
once, so that the hundredth line costs as much as the first; what spans lines (a docstring) gets its
right colours when the block closes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.text import Text

from chat_tui.rendering.boxes import Rows
from chat_tui.rendering.insets import Insets
from chat_tui.rendering.palette import Palette, TokenType
from chat_tui.rendering.sanitise import TAB_SIZE
from chat_tui.rendering.wrap import Run

_LONGEST = 20_000  # characters that are worth lexing


def code_block(
    code: str, language: str, insets: Insets, palette: Palette, *, growing: bool
) -> Rows:
    """A code block under the name of its language."""
    code = code.rstrip("\n").expandtabs(TAB_SIZE)
    label = [[(language, palette.code_label)]] if language else []
    rows = (*label, *_highlight(code, language, palette, growing))
    expanded = [
        [run for text, style in row for run in insets.expand(text, style, palette)] for row in rows
    ]
    return Rows(expanded, palette.code_block)


def _highlight(code: str, language: str, palette: Palette, growing: bool) -> Iterator[list[Run]]:
    if not language or len(code) > _LONGEST:
        yield from ([(line, palette.code_block)] for line in code.split("\n"))
    elif growing:
        for line in code.split("\n"):
            yield from _lexed(line, language, palette)
    else:
        yield from _lexed(code, language, palette)


@lru_cache(maxsize=2048)
def _lexed(code: str, language: str, palette: Palette) -> tuple[list[Run], ...]:
    text = Syntax(code, language.split()[0], theme=_PaletteTheme(palette)).highlight(code)
    text.right_crop(len(text.plain) - len(code))
    if text.plain != code:  # a lexer that changes the text has no say in how it looks
        text = Text(code)
    return tuple(_runs(line, palette.code_block) for line in text.split("\n", allow_blank=True))


def _runs(line: Text, base: Style) -> list[Run]:
    """Runs of a line whose spans do not overlap."""
    runs: list[Run] = []
    at = 0
    for start, end, style in sorted(line.spans):
        if at < start:
            runs.append((line.plain[at:start], base))
        if at < end and isinstance(style, Style):
            runs.append((line.plain[max(at, start) : end], base + style))
            at = end
    if at < len(line.plain) or not runs:
        runs.append((line.plain[at:], base))
    return runs


class _PaletteTheme(SyntaxTheme):
    """The palette's syntax colours as Rich asks for them."""

    def __init__(self, palette: Palette) -> None:
        self._palette = palette
        self._found: dict[TokenType, Style] = {}

    def get_style_for_token(self, token_type: TokenType) -> Style:
        names = tuple(token_type)
        style = self._found.get(names)
        if style is None:
            syntax = self._palette.syntax
            prefixes = (names[:n] for n in range(len(names), 0, -1))
            style = next((syntax[p] for p in prefixes if p in syntax), Style.null())
            self._found[names] = style
        return style

    def get_background_style(self) -> Style:
        return self._palette.code_block
