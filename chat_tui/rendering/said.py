"""What the user said, as lines: as it was typed, with long parts folded.

lines = said(text, width, palette)                 # a file is a line, a long text its beginning
lines = said(text, width, palette, whole=True)     # all of it
"""

from __future__ import annotations

from chat_tui.frames import frames
from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import sanitise
from chat_tui.rendering.wrap import Line, wrap

_LINES, _CHARACTERS = 24, 4_000
"""What is shown of a long text while it is folded."""
_MOST = 200_000
"""Characters of a text that are drawn at all: more would hold up the screen."""


def said(text: str, width: int, palette: Palette, *, whole: bool = False) -> list[Line]:
    """The lines of a message, none wider than `width` cells."""
    lines: list[Line] = []
    at = 0
    for frame in () if whole else frames(text):
        if before := text[at : frame.start].strip("\n"):
            lines += _plain(before, width, palette, whole)
        size = "1 line" if frame.lines == 1 else f"{frame.lines:,} lines"
        lines += _folded(f"{frame.name} · {size}", width, palette)
        at = frame.end
    rest = text[at:].lstrip("\n") if at else text
    if rest or not at:
        lines += _plain(rest, width, palette, whole)
    return [line.framed(("▌ ", palette.user_bar), lead="") for line in lines]


def _plain(text: str, width: int, palette: Palette, whole: bool) -> list[Line]:
    shown = _beginning(text, whole)
    lines = wrap([(sanitise(shown), palette.user)], width - 2)
    if left := len(text) - len(shown):
        count = text.count("\n", len(shown))
        more = f"{count:,} more lines" if count > 1 else f"{left:,} more characters"
        lines += _folded(more, width, palette)
    return lines


def _beginning(text: str, whole: bool) -> str:
    """As much of a text as is shown; half of a long one is as good as nearly all of it."""
    if whole:
        return text[:_MOST]
    if len(text) <= 2 * _CHARACTERS and text.count("\n") <= 2 * _LINES:
        return text
    at = -1
    for _ in range(_LINES):
        at = text.find("\n", at + 1)
        if not 0 <= at <= _CHARACTERS:
            return text[:_CHARACTERS]
    return text[:at]


def _folded(what: str, width: int, palette: Palette) -> list[Line]:
    return wrap([("▸ ", palette.bullet), (sanitise(what), palette.muted)], width - 2)
