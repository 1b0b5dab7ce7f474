"""A text as its tokens, each on the ground of how likely it was, and a cursor that goes over them.

    view.show(tokens)
    view.extend(more)                   # while an answer grows
    view.cursor                         # the token that the panel tells about

A line is laid out and drawn once, and kept; a cursor's move draws two lines. What the user does is
told by message: `Moved`, `Chosen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from chat_tui.keys import TOKEN_VIEW
from chat_tui.rendering import Palette
from chat_tui.rendering.token_lines import Kind, Span, TokenLines
from chat_tui.scores import Scored, is_known, level, surprising
from chat_tui.widgets.cursor_view import CursorView

WIDEST = 100  # cells of a line: longer ones are hard to read


class TokenView(CursorView, inherit_bindings=False):
    """The tokens of one text."""

    @dataclass
    class Chosen(Message):
        """The alternatives of the token under the cursor are wanted."""

        index: int

    BINDINGS: ClassVar[list[BindingType]] = [*TOKEN_VIEW]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tokens: list[Scored] = []
        self._layout = TokenLines(WIDEST)
        self._pairs: list[tuple[int, bytes | None]] = []
        self._column: int | None = None  # where the cursor wants to be when it changes lines

    def show(self, tokens: Sequence[Scored], cursor: int | None = None) -> None:
        """Show these; the cursor stays at its place in the text, or goes where it is told."""
        self.tokens = list(tokens)
        self._pairs = [(token.token, token.piece) for token in tokens]
        self._column = None
        if cursor is not None:
            self.scroll_to(y=0, animate=False, force=True)
        self._lay_out_anew()
        self.put_cursor(self.cursor if cursor is None else cursor)

    def extend(self, more: Sequence[Scored]) -> None:
        """So many tokens have come. A cursor on the last one goes on with them."""
        if not more:
            return
        follows = self.cursor and self.cursor == len(self.tokens) - 1
        self.tokens += more
        self._pairs += [(token.token, token.piece) for token in more]
        self._layout.extend(self._pairs)
        self.redraw(self._layout.changed_from)
        if follows or len(self.tokens) == len(more):
            self.cursor = len(self.tokens) - 1 if follows else 0
            self.post_message(self.Moved())

    # Drawing

    @property
    def count(self) -> int:
        return len(self._layout)

    @property
    def line_count(self) -> int:
        return len(self._layout.lines)

    def lines_of(self, place: int) -> tuple[int, int]:
        return self._layout.lines_of(place)

    def place_at(self, line: int, x: int) -> int | None:
        return self._layout.at(line, x)

    def on_resize(self) -> None:
        if self._columns != self._layout.width:
            self._lay_out_anew()
        else:
            self.redraw()
        self.keep_in_sight()

    @property
    def _columns(self) -> int:
        return max(min(self.scrollable_content_region.width, WIDEST), 2)

    def _lay_out_anew(self) -> None:
        self._layout = TokenLines(self._columns)
        self._layout.extend(self._pairs)
        self.redraw()

    def draw_line(self, y: int) -> Strip:
        base, palette = self.rich_style, Palette.of(self.app)
        return Strip(
            [
                Segment(text, base + self._style(span, kind, palette))
                for span in self._layout.lines[y]
                for text, kind in span.parts
            ]
        )

    def _style(self, span: Span, kind: Kind, palette: Palette) -> Style:
        token = self.tokens[span.token]
        style = palette.text
        if token.score is not None and is_known(token.score.logprob):
            style = palette.heat[level(token.score.logprob)][span.token % 2]
        elif span.token % 2:
            style += palette.other
        if kind == "name":
            style += palette.special
        elif kind in ("mark", "byte"):
            style += palette.sign
        return style + palette.given if token.forced else style

    def draw_cursor(self, strip: Strip, y: int) -> Strip:
        palette = Palette.of(self.app)
        style = palette.marked if self.has_focus else palette.blurred
        for line, span in self._layout.spans_of(self.cursor):
            if line == y:
                end = span.x + span.width
                text = strip.crop(span.x, end).text
                marked = Strip([Segment(text, self.rich_style + style)])
                strip = Strip.join([strip.crop(0, span.x), marked, strip.crop(end)])
        return strip

    # Moving

    def action_step(self, step: int) -> None:
        self._column = None
        self.cursor += step

    def action_line(self, step: int) -> None:
        self._go_lines(step)

    def action_page(self, step: int) -> None:
        self._go_lines(step * max(self.size.height - 1, 1))

    def _go_lines(self, step: int) -> None:
        if not len(self._layout):
            return
        first, last = self._layout.lines_of(self.cursor)
        if self._column is None:
            self._column = self._layout.spans_of(self.cursor)[0][1].x
        line = (last if step > 0 else first) + step
        line = max(0, min(line, len(self._layout.lines) - 1))
        way = 1 if step > 0 else -1
        there = self._layout.at(line, self._column)
        while there is None and 0 <= line < len(self._layout.lines):  # nothing stands there
            line -= way
            there = self._layout.at(line, self._column)
        if there is not None:
            self.cursor = there

    def action_edge(self, where: str) -> None:
        self._column = None
        if where == "first":
            self.cursor = 0
        elif where == "last":
            self.cursor = len(self.tokens) - 1
        elif len(self._layout):
            first, last = self._layout.lines_of(self.cursor)
            spans = self._layout.lines[first if where == "home" else last]
            self.cursor = spans[0 if where == "home" else -1].token

    def action_surprise(self, way: int) -> None:
        """To the next of the most surprising tokens; from the last one to the first."""
        self._column = None
        places = surprising(self.tokens)
        if places:
            beyond = [place for place in places if (place - self.cursor) * way > 0]
            self.cursor = (beyond or places)[0 if way > 0 else -1]

    def action_choose(self) -> None:
        if self.tokens:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: Click) -> None:
        self._column = None
