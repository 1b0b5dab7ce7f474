"""Where N panes go in a given room: side by side, in rows, stacked, or one at a time.

    plan(8, width=80, height=15)    # -> one pane, and a strip of two lines for all eight
    plan(3, width=120, height=30)   # -> three tiles side by side

A pure function of the numbers, and the Textual layout that follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement

if TYPE_CHECKING:
    from textual.widget import Widget

MIN_COLUMNS = 36  # of a pane beside others: narrower is no text to read
MIN_LINES = 6  # of a pane in one of several rows, its border included
MIN_STACKED = 5  # of a pane that has the full width
STRIP_ENTRY = 18  # columns from which an entry of the strip says something


@dataclass(frozen=True)
class Plan:
    """`tiles[i]` is the room of pane i. Where there is a strip, all are the same: one is shown."""

    tiles: tuple[Region, ...]
    strip: Region | None = None


def plan(count: int, width: int, height: int, *, zoomed: bool = False, group: int = 1) -> Plan:
    """The room of `count` panes in width x height cells. So many after one another belong together
    as `group` says: rows end where groups do, if there is room for that."""
    per_row = 0 if zoomed and count > 1 else _per_row(count, width, height, group)
    if per_row:
        return Plan(_tiled(count, per_row, width, height))
    lines = min(_strip_lines(count, width), max(height - 1, 0))
    room = Region(0, lines, width, height - lines)
    return Plan((room,) * count, Region(0, 0, width, lines))


def _per_row(count: int, width: int, height: int, group: int) -> int:
    """Panes in a row, 0 if there is no room for all."""
    if count <= 1:
        return count
    most = min(count, width // MIN_COLUMNS)
    for per_row in range(most, 1, -1) if group > 1 else ():
        rows = -(-count // per_row)
        if not (per_row % group and group % per_row) and height // rows >= MIN_LINES:
            return per_row
    if most > 1:
        rows = -(-count // most)
        if rows == 1 or height // rows >= MIN_LINES:
            return -(-count // rows)  # 5 panes on 4 columns are 3 + 2
    return 1 if height // count >= MIN_STACKED else 0


def _tiled(count: int, per_row: int, width: int, height: int) -> tuple[Region, ...]:
    rows = -(-count // per_row)
    tiles: list[Region] = []
    for row in range(rows):
        top, bottom = height * row // rows, height * (row + 1) // rows
        columns = min(per_row, count - row * per_row)
        edges = [width * column // columns for column in range(columns + 1)]
        tiles += [Region(left, top, right - left, bottom - top) for left, right in pairwise(edges)]
    return tuple(tiles)


def _strip_lines(count: int, width: int) -> int:
    return 1 if width // count >= STRIP_ENTRY else 2


def neighbour(tiles: tuple[Region, ...], index: int, direction: str) -> int | None:
    """The tile next to `index` towards "left", "right", "up" or "down"."""
    here = tiles[index]
    middle = Region(here.x + here.width // 2, here.y + here.height // 2, 1, 1)
    found: list[tuple[int, int, int]] = []
    for other, tile in enumerate(tiles):
        gap, beside = {
            "left": (here.x - tile.right, _apart(middle.y, tile.y, tile.bottom)),
            "right": (tile.x - here.right, _apart(middle.y, tile.y, tile.bottom)),
            "up": (here.y - tile.bottom, _apart(middle.x, tile.x, tile.right)),
            "down": (tile.y - here.bottom, _apart(middle.x, tile.x, tile.right)),
        }[direction]
        sideways = direction in ("left", "right")
        if gap >= 0 and not (sideways and beside):
            found.append((gap, beside, other))
    return min(found)[2] if found else None


def _apart(at: int, start: int, end: int) -> int:
    """Cells between a position and a stretch; 0 inside it."""
    return max(start - at, at - end + 1, 0)


class Tiles(Layout):
    """Places a grid's strip and panes as its plan says; what has no place is not shown."""

    name = "tiles"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        from chat_tui.widgets.grid import CompareGrid

        assert isinstance(parent, CompareGrid)
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, widget)
            for widget, region in parent.places(size)
            if widget in children
        ]
