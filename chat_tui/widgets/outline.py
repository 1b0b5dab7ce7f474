"""The conversation's tree as lines that can be moved through: one for each turn and each answer.

    view.show(rows)                     # chat_tui/branches.py makes them
    view.row                            # the one under the cursor

What is not in view costs nothing, not even its figures, so a tree of thousands of answers opens at
once. What the user does is told by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from chat_tui.answer import Answer
from chat_tui.branches import Row
from chat_tui.keys import OUTLINE
from chat_tui.rendering import Palette, sanitise
from chat_tui.rendering.wrap import Run
from chat_tui.scores import Surprise, scored
from chat_tui.widgets.cursor_view import CursorView

_EXCERPT = 400  # characters of a text that are looked at for its line
_LEAST_TEXT = 40  # cells that figures must leave; they are in columns, at any depth


class OutlineView(CursorView, inherit_bindings=False):
    """Rows, one of them under the cursor."""

    @dataclass
    class Chosen(Message):
        """The user wants to be there."""

        row: Row

    @dataclass
    class Folded(Message):
        """What is under a row is to be hidden, or shown."""

        row: Row
        folded: bool

    BINDINGS: ClassVar[list[BindingType]] = [*OUTLINE]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self._perplexities: dict[int, tuple[tuple[int, int], float | None]] = {}

    @property
    def row(self) -> Row | None:
        return self.rows[self.cursor] if self.rows else None

    def show(self, rows: Sequence[Row], key: tuple[int, int] | None = None) -> None:
        """Show these; the cursor goes to the row with this key, or stays on the one it is on."""
        if key is None and self.row is not None:
            key = self.row.key
        places = {row.key: place for place, row in enumerate(rows)}
        self.rows = rows
        # A row that was folded away gives the cursor to its turn.
        turn = (key[0], 0) if key is not None else (0, 0)
        there = places.get(key or turn, places.get(turn, 0))
        self.redraw()
        self.put_cursor(there)

    def grow(self) -> None:
        """Draw the rows of answers that have not ended again."""
        for place in list(self._strips):
            answer = self.rows[place].answer
            if answer is not None and answer.reason is None:
                del self._strips[place]
        self.refresh()

    # Drawing

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def line_count(self) -> int:
        return len(self.rows)

    def lines_of(self, place: int) -> tuple[int, int]:
        return place, place

    def place_at(self, line: int, x: int) -> int | None:
        return line if line < len(self.rows) else None

    def on_resize(self) -> None:
        self.redraw()
        self.keep_in_sight()

    def draw_line(self, y: int) -> Strip:
        return self._strip(y, None)

    def draw_cursor(self, strip: Strip, y: int) -> Strip:
        palette = Palette.of(self.app)
        strip = self._strip(y, palette.text)
        return Strip(Segment.apply_style(strip, post_style=palette.focus))

    def _strip(self, y: int, only: Style | None) -> Strip:
        """One row; all of its text in one style where that is given."""
        base, width = self.rich_style, self.scrollable_content_region.width
        runs = self._runs(self.rows[y], width, Palette.of(self.app))
        strip = Strip([Segment(text, base + style + only) for text, style in runs])
        return strip.adjust_cell_length(width, base)

    def _runs(self, row: Row, width: int, palette: Palette) -> list[Run]:
        text = palette.text if row.on_path else palette.muted
        lead: list[Run] = [("│ " * row.depth, palette.bar)]
        if row.answer is None:
            lead.append(("▌ ", palette.user_bar if row.on_path else palette.bar))
            said, style = row.turn.user, palette.strong if row.on_path else palette.muted
            count = row.branches
            figures = f"{count} answer{'s' * (count != 1)} ▸" if row.folded else ""
        else:
            answer = row.answer
            picked = row.turn.picked == answer.id
            lead += [
                ("▸" if picked else " ", palette.success),
                (f"{row.turn.told(answer.id):>2} ", text),
                self._state(answer, palette),
            ]
            said, style = answer.text, text
            figures = self._figures(answer, width - _LEAST_TEXT)
            if row.folded:
                figures = f"{row.branches} more ▸ {figures}"
        room = width - sum(cell_len(part) for part, _ in lead) - cell_len(figures) - 2
        return [*lead, (excerpt(said, max(room, 0)), style), ("  " + figures, palette.faint)]

    def _state(self, answer: Answer, palette: Palette) -> Run:
        return {
            None: ("● ", palette.running),
            "stop": ("✓ ", palette.success),
            "cancelled": ("■ ", palette.muted),
            "content_filter": ("✗ ", palette.warning),
        }.get(answer.reason, ("… ", palette.warning))

    def _figures(self, answer: Answer, room: int) -> str:
        """In columns, as many as there is room for."""
        perplexity = self._perplexity(answer)
        columns = (
            f"{len(answer.tokens):>6,} tok",
            f"ppl {_short(perplexity):>6}" if perplexity is not None else " " * 10,
            f"T {answer.temperature:<4g}",
            f"seed {answer.seed:<10}",
        )
        shown = ""
        for column in columns:
            if len(shown) + len(column) + 2 > room:
                break
            shown += "  " * bool(shown) + column
        return shown

    def _perplexity(self, answer: Answer) -> float | None:
        state = len(answer.tokens), answer.rescored
        known, perplexity = self._perplexities.get(answer.id, (None, None))
        if known != state:
            perplexity = Surprise.of(scored(answer)).perplexity
            self._perplexities[answer.id] = state, perplexity
        return perplexity

    # Moving

    def action_move(self, step: int) -> None:
        self.cursor += step

    def action_page(self, step: int) -> None:
        self.cursor += step * max(self.size.height - 1, 1)

    def action_edge(self, place: int) -> None:
        self.cursor = place if place >= 0 else len(self.rows) - 1

    def action_outwards(self) -> None:
        row = self.row
        if row is None:
            return
        if row.branches and not row.folded:
            self.post_message(self.Folded(row, True))
            return
        wanted = (row.turn.id, 0) if row.answer is not None else (-1, row.turn.parent or 0)
        for place in range(self.cursor - 1, -1, -1):
            turn, answer = self.rows[place].key
            if (turn, answer) == wanted or (wanted[0] < 0 and answer == wanted[1]):
                self.cursor = place
                return

    def action_inwards(self) -> None:
        row = self.row
        if row is not None and row.folded:
            self.post_message(self.Folded(row, False))
        elif row is not None and row.branches:
            self.cursor += 1

    def action_fold(self) -> None:
        if self.row is not None and self.row.branches:
            self.post_message(self.Folded(self.row, not self.row.folded))

    def action_choose(self) -> None:
        if self.row is not None:
            self.post_message(self.Chosen(self.row))


def _short(perplexity: float) -> str:
    return f"{perplexity:.2f}" if perplexity < 1000 else f"{perplexity:.0e}".replace("e+0", "e")


def excerpt(text: str, cells: int) -> str:
    """The beginning of a text in one line of exactly `cells` cells."""
    flat = " ".join(sanitise(text[:_EXCERPT]).split())
    if cell_len(flat) > cells or len(text) > _EXCERPT:
        flat = set_cell_size(flat, max(cells - 1, 0)).rstrip() + "…" * (cells > 0)
    return set_cell_size(flat, cells)
