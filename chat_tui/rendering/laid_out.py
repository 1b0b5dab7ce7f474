"""A text at one width: how many lines it has is known at once, the lines are made when looked at.

    shown = LaidOut(width)
    changed = shown.replace(0, boxes)      # the first line that is not what it was
    shown[-1].text

Eight answers of 4,000 tokens are 6,000 lines, of which 200 are in sight: at another width these are
made anew, and of the others only their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from chat_tui.rendering.boxes import Box
from chat_tui.rendering.wrap import Line


class Place(NamedTuple):
    """A line, in a way that means something at another width: of which box, and how far down."""

    box: int
    line: int
    lines: int


class LaidOut(Sequence[Line]):
    """The lines of boxes one under the other."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._boxes: list[Box] = []
        self._ends: list[int] = []  # lines down to the end of each box
        self._made: dict[int, list[Line]] = {}

    def replace(self, first: int, boxes: Iterable[Box]) -> int:
        """The boxes from `first` on are these now. Returns the first line that looks different, as
        far as they were looked at."""
        before: list[Line] = []
        for number in range(first, len(self._boxes)):
            if number not in self._made:
                break
            before += self._made[number]
        for number in [number for number in self._made if number >= first]:
            del self._made[number]
        del self._boxes[first:], self._ends[first:]
        same = end = len(self)
        for box in boxes:
            end += box.height(self.width)
            self._boxes.append(box)
            self._ends.append(end)
        for old in before[: end - same]:
            if self[same] != old:
                break
            same += 1
        return same

    def place(self, y: int) -> Place:
        """Where line `y` is."""
        number = bisect_right(self._ends, y)
        if number == len(self._boxes):
            return Place(number, 0, 1)
        start = self._start(number)
        return Place(number, y - start, self._ends[number] - start)

    def find(self, place: Place) -> int:
        """The line at a place of the same text at another width."""
        if place.box >= len(self._boxes):
            return len(self)
        start = self._start(place.box)
        return start + place.line * (self._ends[place.box] - start) // place.lines

    def _start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _lines_of(self, number: int) -> list[Line]:
        if number not in self._made:
            self._made[number] = self._boxes[number].lines(self.width)
        return self._made[number]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, y: int) -> Line: ...
    @overload
    def __getitem__(self, y: slice) -> list[Line]: ...
    def __getitem__(self, y: int | slice) -> Line | list[Line]:
        if isinstance(y, slice):
            return [self[at] for at in range(*y.indices(len(self)))]
        y = range(len(self))[y]
        number = bisect_right(self._ends, y)
        return self._lines_of(number)[y - self._start(number)]

    def __iter__(self) -> Iterator[Line]:
        for number in range(len(self._boxes)):
            yield from self._lines_of(number)
