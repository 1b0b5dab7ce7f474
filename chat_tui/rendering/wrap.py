"""Breaking styled text into lines of cells.

`wrap(runs, width)` takes runs of (text, style) and gives lines of runs, none wider than `width`
cells. It breaks at spaces, between CJK characters (not before closing punctuation, not after
opening), and inside a word only where the word is wider than a line; never inside a grapheme. A
no-break space keeps its neighbours together while they fit on a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style

Run = tuple[str, Style]
Slice = tuple[int, int]

NO_BREAK = {ord(" "): "\xa0"}

_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
_OPENING = "（「『【《〈〔｛［"
_CLOSING = "、。，．！？：；）」』】》〉〕｝］ー～…‥々"
_CJK = (
    "\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
)


@cache
def _unit() -> re.Pattern[str]:
    """What stays together; compiled when the first long line is broken, after the first frame."""
    return re.compile(f" +|[{_OPENING}]*[{_CJK}][{_CLOSING}]*|[^ {_CJK}]+[{_CLOSING}]*")


@dataclass(slots=True)
class Line:
    """A line of cells.

    Attributes:
        joint: what stands between it and the next in the text: "" or " " where the line was broken
            for want of room.
        frame: the characters at its start that are not its text: an indent, a bar.
        lead: what stands for the frame where the line is copied.
    """

    runs: list[Run]
    joint: str = "\n"
    frame: int = 0
    lead: str = ""

    def framed(self, frame: Run, lead: str | None = None) -> Line:
        """The line behind a frame, which is copied as it is or as `lead`."""
        text, _ = frame
        lead = (text if lead is None else lead) + self.lead
        return Line([frame, *self.runs], self.joint, self.frame + len(text), lead)

    @property
    def width(self) -> int:
        return width_of(self.runs)

    @property
    def text(self) -> str:
        return _done("".join(text for text, _ in self.runs))

    def segments(self, base: Style) -> list[Segment]:
        """The line as it is drawn on a ground of this style."""
        return [Segment(_done(text), base + style) for text, style in self.runs]


def _done(text: str) -> str:
    """A no-break space has done its work and is drawn as a space."""
    return text.replace("\xa0", " ")


def wrap(runs: Sequence[Run], width: int) -> list[Line]:
    """Break runs (which may hold newlines) into lines of at most `width` cells."""
    text = "".join([part for part, _ in runs])
    return cut(runs, text, slices(text, width))


def slices(text: str, width: int) -> list[Slice]:
    """Where `wrap` breaks a text."""
    width = max(width, 2)
    if "\n" not in text:
        return breaks(text, width)
    found: list[Slice] = []
    offset = 0
    for line in text.split("\n"):
        found += [(offset + a, offset + b) for a, b in breaks(line, width)]
        offset += len(line) + 1
    return found


def breaks(line: str, width: int) -> list[Slice]:
    """Slices of one line without newlines, each at most `width` cells (or one grapheme) wide."""
    if cell_len(line) <= width:
        return [(0, len(line))]
    if line.isascii() and line[0] != " " and (plain := _ascii_breaks(line, width)):
        return plain
    slices: list[Slice] = []
    start = end = used = 0  # the slice being filled, without its trailing spaces; its cells with
    for unit in _unit().finditer(line):
        text = unit.group()
        size = cell_len(text)
        if text[0] == " ":
            used += size
            if unit.start() == 0:  # an indent is kept where it leaves room
                end = unit.end() if size < width else 0
            continue
        if used + size > width:
            if line[start:end].strip():
                slices.append((start, end))
            start, used = unit.start(), 0
        elif end == start:
            start, used = unit.start(), 0
        end = unit.end()
        used += size
        if size > width:
            # Too wide for a line: at its no-break spaces, else between its graphemes.
            if "\xa0" in text:
                pieces = breaks(text.replace("\xa0", " "), width)
            else:
                pieces = hard_breaks(text, width)
            slices.extend((unit.start() + a, unit.start() + b) for a, b in pieces[:-1])
            start, end = (unit.start() + at for at in pieces[-1])
            used = cell_len(line[start : unit.end()])
    slices.append((start, end))
    return slices


def _ascii_breaks(line: str, width: int) -> list[Slice]:
    """As `breaks`, in a third of its time, for a line of ASCII that is longer than `width` and does
    not begin with a space; nothing where a word does not fit on a line."""
    slices: list[Slice] = []
    start, stop = 0, len(line.rstrip(" "))
    while stop - start > width:
        space = line.rfind(" ", start, start + width + 1)
        if space <= start:
            return []
        slices.append((start, len(line[start:space].rstrip(" ")) + start))
        start = space + 1
        while line[start] == " ":
            start += 1
    return [*slices, (start, stop)]


def hard_breaks(text: str, width: int) -> list[Slice]:
    """Slices of `text` at most `width` cells wide, cut between graphemes."""
    if text.isascii():
        length = len(text)
        return [(at, min(at + width, length)) for at in range(0, max(length, 1), width)]
    found: list[Slice] = []
    start = used = 0
    for first, _, size in graphemes(text):
        if used + size > width and first > start:
            found.append((start, first))
            start, used = first, 0
        used += size
    return [*found, (start, len(text))]


def graphemes(text: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and cells of each grapheme. A flag is one: its two letters stay together."""
    letter: tuple[int, int, int] | None = None
    for grapheme in split_graphemes(text)[0]:
        if letter is not None:
            if text[grapheme[0]] in _FLAG_LETTERS:
                yield letter[0], grapheme[1], letter[2] + grapheme[2]
                letter = None
                continue
            yield letter
            letter = None
        if text[grapheme[0]] in _FLAG_LETTERS:
            letter = grapheme
        else:
            yield grapheme
    if letter is not None:
        yield letter


def cut(runs: Sequence[Run], text: str, slices: Sequence[Slice]) -> list[Line]:
    """The runs under each slice of their joined text; slices are in order and do not overlap."""
    if len(slices) == 1 and slices[0] == (0, len(text)):
        return [Line([run for run in runs if run[0]])]
    lines: list[Line] = []
    index = position = 0  # the first run that reaches into a slice, and where it begins
    for number, (start, end) in enumerate(slices, 1):
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
        between = text[end : slices[number][0]] if number < len(slices) else "\n"
        lines.append(Line(line, "\n" if "\n" in between else " " if between else ""))
    return lines


def width_of(runs: Iterable[Run]) -> int:
    return sum(cell_len(text) for text, _ in runs)
