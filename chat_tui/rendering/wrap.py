"""Breaking styled text into lines of cells.

`wrap(runs, width)` takes runs of (text, style) and gives lines of runs, none wider than `width`
cells. It breaks at spaces, between CJK characters (not before closing punctuation), and inside a
word only where the word is wider than a line; never inside a grapheme. A no-break space keeps its
neighbours together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

Run = tuple[str, Style]

_OPENING = "（「『【《〈〔｛［"
_CLOSING = "、。，．！？：；）」』】》〉〕｝］ー～…‥々"
_CJK = (
    "\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
)
_UNIT = re.compile(f" +|[{_OPENING}]*[{_CJK}][{_CLOSING}]*|[^ {_CJK}]+")


def breaks(line: str, width: int) -> list[tuple[int, int]]:
    """Slices of one line without newlines, each at most `width` cells (or one grapheme) wide."""
    if cell_len(line) <= width:
        return [(0, len(line))]
    slices: list[tuple[int, int]] = []
    start = end = 0  # of the slice being filled; `end` leaves out trailing spaces
    used = 0  # cells in line[start:unit.start()]
    for unit in _UNIT.finditer(line):
        text = unit.group()
        size = cell_len(text)
        if text[0] == " ":
            # Spaces at a break vanish, an indent does not.
            if used + size <= width or (end == start and not slices):
                used += size
            else:
                used = width
            continue
        if used + size > width and used:
            if end > start:
                slices.append((start, end))
            start, used = unit.start(), 0
        if size > width:
            for first, last in _cut(text, width):
                slices.append((unit.start() + first, unit.start() + last))
            start, end = slices.pop()
            used = cell_len(line[start:end])
        else:
            end = unit.end()
            used += size
    slices.append((start, max(start, end)))
    return slices


def _cut(word: str, width: int) -> Iterator[tuple[int, int]]:
    """Cut a word that is wider than a line between its graphemes."""
    start = used = 0
    for first, _, size in split_graphemes(word)[0]:
        if used + size > width and first > start:
            yield start, first
            start, used = first, 0
        used += size
    yield start, len(word)


def wrap(runs: Sequence[Run], width: int) -> list[list[Run]]:
    """Break runs (which may hold newlines) into lines of at most `width` cells."""
    text = "".join(part for part, _ in runs)
    width = max(width, 2)
    slices: list[tuple[int, int]] = []
    offset = 0
    for line in text.split("\n"):
        slices.extend((offset + start, offset + end) for start, end in breaks(line, width))
        offset += len(line) + 1
    return list(_slice(runs, slices))


def _slice(runs: Sequence[Run], slices: Iterable[tuple[int, int]]) -> Iterator[list[Run]]:
    index = position = 0  # of the run that the next slice starts in or after
    for start, end in slices:
        while index < len(runs) and position + len(runs[index][0]) <= start:
            position += len(runs[index][0])
            index += 1
        line: list[Run] = []
        at, where = index, position
        while where < end:
            part, style = runs[at]
            piece = part[max(0, start - where) : end - where]
            if piece:
                line.append((piece, style))
            where += len(part)
            at += 1
        yield line


def to_strip(runs: Iterable[Run]) -> Strip:
    """One line of runs as a strip; a no-break space is drawn as a space."""
    return Strip([Segment(text.replace("\xa0", " "), style) for text, style in runs])
