"""Tables in as many cells as there are: columns shrink and wrap, and where even that is too narrow
each row becomes a short list of `head: value`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.style import Style

from chat_tui.rendering.palette import Palette
from chat_tui.rendering.wrap import Line, Run, width_of, wrap

_GUTTER = 2
_NARROWEST = 6

Cell = list[Run]


def table(
    head: Sequence[Cell],
    rows: Sequence[Sequence[Cell]],
    aligned: Sequence[str],
    palette: Palette,
    width: int,
) -> list[Line]:
    """The lines of a table. `aligned` is "left", "right" or "center" for each column."""
    wanted = [
        max(1, *(width_of(row[i]) for row in (head, *rows) if i < len(row)))
        for i in range(len(head))
    ]
    room = width - _GUTTER * (len(head) - 1)
    if room < sum(min(w, _NARROWEST) for w in wanted):
        return _records(head, rows, width, palette)
    widths = fit(wanted, room)
    lines = _row(head, widths, aligned)
    lines.append(Line([("─" * (sum(widths) + _GUTTER * (len(head) - 1)), palette.rule)]))
    for row in rows:
        lines.extend(_row(row, widths, aligned))
    return lines


def fit(wanted: Sequence[int], room: int) -> list[int]:
    """Widths that fill at most `room`: the widest columns give way first."""
    cap = max(wanted)
    while sum(min(w, cap) for w in wanted) > room and cap > 1:
        cap -= 1
    widths = [min(w, cap) for w in wanted]
    spare = room - sum(widths)
    for i, w in enumerate(wanted):
        if widths[i] < w and spare > 0:
            widths[i] += 1
            spare -= 1
    return widths


def _row(cells: Sequence[Cell], widths: Sequence[int], aligned: Sequence[str]) -> list[Line]:
    columns = [wrap(cell, w) for cell, w in zip(cells, widths, strict=False)]
    lines: list[Line] = []
    for pieces in zip_longest(*columns):
        line: list[Run] = []
        for i, (piece, w, align) in enumerate(zip(pieces, widths, aligned, strict=False)):
            runs = piece.runs if piece else []
            pad = w - width_of(runs)
            before = {"right": pad, "center": pad // 2}.get(align, 0)
            before += _GUTTER if i else 0
            line += [*_blank(before), *runs, *_blank(pad + (_GUTTER if i else 0) - before)]
        lines.append(Line(line))
    return lines


def _blank(cells: int) -> list[Run]:
    return [(" " * cells, Style.null())] if cells > 0 else []


def _records(
    head: Sequence[Cell], rows: Sequence[Sequence[Cell]], width: int, palette: Palette
) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        lines.append(Line([("─" * min(width, 8), palette.rule)]))
        for title, cell in zip(head, row, strict=False):
            lines.extend(wrap([*title, (": ", palette.muted), *cell], width))
    return lines or [line for title in head for line in wrap(title, width)]
