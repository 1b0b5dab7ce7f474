"""What a block of Markdown is made of, before there is a width.

    box = Stack((Words(runs), BLANK, Framed(bullet, indent, Words(more))))
    box.height(40)      # how many lines it takes
    box.lines(40)       # and those lines, none wider than 40 cells

Parsing and styling are done once and do not depend on the width. Where the lines break does, and
that is cheap to say: a text has its height at another width long before it has its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.style import Style

from chat_tui.rendering.wrap import Line, Run, Slice, cut, hard_breaks, slices, width_of

_NARROW = 10  # cells: no room for a frame


class Box(Protocol):
    """Draws itself in any width."""

    def height(self, width: int) -> int:
        """How many lines `lines` gives."""

    def lines(self, width: int) -> list[Line]:
        """Its lines, none wider than `width` cells."""


@dataclass(slots=True)
class Words:
    """Text that is wrapped."""

    runs: Sequence[Run]
    _text: str = field(init=False)
    _broken: tuple[int, Sequence[Slice]] = field(default=(0, ()), init=False)

    def __post_init__(self) -> None:
        self._text = "".join([text for text, _ in self.runs])

    def height(self, width: int) -> int:
        return len(self._slices(width))

    def lines(self, width: int) -> list[Line]:
        return cut(self.runs, self._text, self._slices(width))

    def _slices(self, width: int) -> Sequence[Slice]:
        if self._broken[0] != width:
            self._broken = width, slices(self._text, width)
        return self._broken[1]


BLANK = Words(())


@dataclass(slots=True)
class Stack:
    """Boxes one under the other."""

    boxes: Sequence[Box]

    def height(self, width: int) -> int:
        return sum([box.height(width) for box in self.boxes])

    def lines(self, width: int) -> list[Line]:
        return [line for box in self.boxes for line in box.lines(width)]


@dataclass(slots=True)
class Framed:
    """A box behind a frame: `first` on its first line, `rest` on the others, both equally wide.
    `lead` is what stands for the frame where a line is copied, if not the frame itself."""

    first: Run
    rest: Run
    box: Box
    lead: str | None = None

    def _inner(self, width: int) -> int:
        """The room beside the frame; 0 where there is none and it stands above."""
        inner = width - len(self.first[0])
        return inner if inner >= _NARROW else 0

    def height(self, width: int) -> int:
        inner = self._inner(width)
        return max(self.box.height(inner), 1) if inner else 1 + self.box.height(width)

    def lines(self, width: int) -> list[Line]:
        inner = self._inner(width)
        if not inner:
            return [Line([self.first]), *self.box.lines(width)]
        lines = self.box.lines(inner) or [Line([])]
        frames = [self.first] + [self.rest] * (len(lines) - 1)
        return [line.framed(frame, self.lead) for frame, line in zip(frames, lines, strict=True)]


@dataclass(slots=True)
class Ruled:
    """A line across."""

    style: Style

    def height(self, width: int) -> int:
        return 1

    def lines(self, width: int) -> list[Line]:
        return [Line([("─" * width, self.style)])]


@dataclass(slots=True)
class Rows:
    """Lines that are broken wherever they are full, on a ground of exactly the width: code."""

    rows: Sequence[Sequence[Run]]
    ground: Style
    _texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._texts = ["".join([text for text, _ in row]) for row in self.rows]

    def height(self, width: int) -> int:
        room = max(width - 2, 2)
        return sum([len(hard_breaks(text, room)) for text in self._texts])

    def lines(self, width: int) -> list[Line]:
        edge: Run = (" ", self.ground)
        drawn: list[Line] = []
        for row, text in zip(self.rows, self._texts, strict=True):
            for line in cut(row, text, hard_breaks(text, max(width - 2, 2))):
                fill = " " * max(width - 1 - width_of(line.runs), 0)
                drawn.append(Line([edge, *line.runs, (fill, self.ground)], line.joint, 1))
        return drawn


@dataclass(slots=True)
class Drawn:
    """What is drawn as a whole at any width, by `draw`: a table, for one."""

    draw: Callable[[int], list[Line]]
    _kept: tuple[int, list[Line]] = field(default=(0, []), init=False)

    def height(self, width: int) -> int:
        return len(self.lines(width))

    def lines(self, width: int) -> list[Line]:
        if self._kept[0] != width:
            self._kept = width, self.draw(width)
        return self._kept[1]
