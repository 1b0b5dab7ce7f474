"""What is one thing to the cursor and to the eye, though it is several characters: a grapheme, and
the label of a folded text.

`wrap_offsets` stands in for Textual's own (`install()`), which measures characters one by one: a
heart that is an emoji by its variation selector is two cells wide and was counted as one, and a
family of emoji was cut through the middle (seen with Textual 8.2).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from textual._wrap import compute_wrap_offsets
from textual.document import _wrapped_document

from chat_tui.rendering.wrap import graphemes, hard_breaks

_SINGLE = re.compile(
    "[\t\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027"
    "\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e]*"
)
"""Characters that are graphemes by themselves."""
_REACH = 64
"""Characters to each side that are looked at for the grapheme around a place."""


def grapheme_around(line: str, column: int) -> tuple[int, int] | None:
    """The grapheme that a place is inside of; None where it stands between two."""
    start = max(column - _REACH, 0)
    near = line[start : column + _REACH]
    if _SINGLE.fullmatch(near):
        return None
    for a, b, _ in graphemes(near):
        if start + a < column < start + b:
            return start + a, start + b
    return None


def wrap_offsets(
    text: str,
    width: int,
    tab_size: int,
    fold: bool = True,
    precomputed_tab_sections: list[tuple[str, int]] | None = None,
) -> list[int]:
    """Where a line is broken to fit `width` cells; never inside a grapheme."""
    offsets = compute_wrap_offsets(text, width, tab_size, fold, precomputed_tab_sections)
    if _SINGLE.fullmatch(text):
        return offsets
    starts = [a for a, _, _ in graphemes(text)]
    whole = sorted({starts[bisect_right(starts, offset) - 1] for offset in offsets} - {0})
    return [
        start + b
        for start, end in pairwise([0, *whole, len(text)])
        for _, b in hard_breaks(text[start:end], width)
        if start + b < len(text)
    ]


def install() -> None:
    """Let every TextArea wrap so."""
    setattr(_wrapped_document, "compute_wrap_offsets", wrap_offsets)  # noqa: B010
