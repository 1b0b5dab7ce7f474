"""One or two lines that show the state of all answers where only one has room.

Number, state, tokens, how surprised the model was on the way (a sparkline), and as much of what is
being written as fits; the shown one is marked. A
click on an entry chooses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from chat_tui.labels import fitted
from chat_tui.rendering import Palette, sanitise
from chat_tui.widgets.pane import Pane

_TAIL = 80  # characters of an answer's end that can be in an entry
_SPARK = 8  # cells of surprise over the answer so far
Run = tuple[str, Style]


class StateStrip(Widget):
    """The states of all panes."""

    DEFAULT_CSS = """
    StateStrip { background: $background; }
    """

    @dataclass
    class Chosen(Message):
        """An entry was clicked."""

        index: int

    def __init__(self) -> None:
        super().__init__()
        self._panes: Sequence[Pane] = ()
        self._current = 0
        self._lines: list[list[Run]] = []

    def show(self, panes: Sequence[Pane], current: int) -> None:
        """Show these panes' states as they are now. Draws only what differs."""
        self._panes, self._current = panes, current
        lines = self._draw() if self.size and panes else []
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def on_resize(self) -> None:
        self.show(self._panes, self._current)

    def on_click(self, event: Click) -> None:
        index = event.y * self._per_line + event.x // self._entry_width
        if index < len(self._panes):
            event.stop()
            self.post_message(self.Chosen(index))

    @property
    def _per_line(self) -> int:
        return -(-len(self._panes) // max(self.size.height, 1))

    @property
    def _entry_width(self) -> int:
        return max(self.size.width // max(self._per_line, 1), 1)

    def _draw(self) -> list[list[Run]]:
        palette = Palette.of(self.app)
        entries = [self._entry(pane, palette) for pane in self._panes]
        return [
            [run for entry in entries[at : at + self._per_line] for run in entry]
            for at in range(0, len(entries), self._per_line)
        ]

    def _entry(self, pane: Pane, palette: Palette) -> list[Run]:
        """What fits of number, state, tokens, label and tail; one cell stays free on the right."""
        current = pane.index == self._current
        quiet, faint = (palette.text,) * 2 if current else (palette.muted, palette.faint)
        room = self._entry_width - 2
        glyph, style = pane.glyph(palette)
        number = str(pane.index + 1)
        wide = room >= len(number) + 10
        runs = [
            (f" {number} " if wide else f" {number}", palette.marked if current else palette.text),
            (f" {glyph}" if current and wide else glyph, style),
        ]
        room -= sum(cell_len(text) for text, _ in runs) - 1
        tokens = f"{pane.tokens:>4}" if wide else f" {pane.tokens}"
        label = (
            f" {fitted(sanitise(pane.label), room - cell_len(tokens) - 1)}" if pane.label else ""
        )
        for text in (tokens, label):
            if text and cell_len(text) <= room:
                runs.append((text, quiet))
                room -= cell_len(text)
        if pane.figures and room > _SPARK and (spark := pane.surprise.sparkline(_SPARK)):
            runs.append((f" {spark:<{_SPARK}}", quiet))
            room -= _SPARK + 1
        if room > 8:
            runs.append((f" {tail(pane.text, room - 1)}", faint))
        text_cells = sum(cell_len(text) for text, _ in runs)
        runs.append((" " * (self._entry_width - 1 - text_cells), Style.null()))
        ground = palette.focus if current else Style.null()
        return [runs[0], *((text, style + ground) for text, style in runs[1:]), (" ", Style())]

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        if y >= len(self._lines):
            return Strip.blank(self.size.width, base)
        strip = Strip(Segment(text, base + style) for text, style in self._lines[y])
        return strip.adjust_cell_length(self.size.width, base)


def tail(text: str, cells: int) -> str:
    """The last words of a text in at most `cells` cells, an ellipsis before them if it is cut."""
    flat = " ".join(sanitise(text[-_TAIL:]).split())
    if cell_len(flat) <= cells and len(text) <= _TAIL:
        return flat
    while flat and cell_len(flat) > cells - 1:
        flat = flat[1:]
    return f"…{flat.lstrip()}"
