"""A text as its tokens, each on the ground of how likely it was, and a cursor that goes over them.

    view.show(tokens)
    view.extend(more)                   # while an answer grows
    view.cursor                         # the token that the panel tells about

On the line API: a line is laid out and drawn once, and kept; a cursor's move draws two lines. What
the user does is told by message: `Moved`, `Chosen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chat_tui.rendering import Palette
from chat_tui.rendering.token_lines import Kind, Span, TokenLines
from chat_tui.scores import Scored, is_known, level, surprising

WIDEST = 100  # cells of a line: longer ones are hard to read
_CONTEXT = 2  # lines that stay in sight above and below the cursor


class TokenView(ScrollView, can_focus=True, inherit_bindings=False):
    """The tokens of one text."""

    DEFAULT_CSS = """
    TokenView {
        background: $background;
        padding: 0 1;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-gutter: stable;
        scrollbar-size: 0 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
        scrollbar-color: $foreground 20%;
        scrollbar-color-hover: $foreground 35%;
        scrollbar-color-active: $primary;
    }
    """

    @dataclass
    class Moved(Message):
        """The cursor is on another token, or there is more to tell about it."""

        index: int

    @dataclass
    class Chosen(Message):
        """The alternatives of the token under the cursor are wanted."""

        index: int

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "The token before"),
        Binding("right,l", "step(1)", "The token behind"),
        Binding("up,k", "line(-1)", "A line up"),
        Binding("down,j", "line(1)", "A line down"),
        Binding("home", "edge('home')", "The start of the line"),
        Binding("end", "edge('end')", "The end of the line"),
        Binding("ctrl+home,g", "edge('first')", "The first token"),
        Binding("ctrl+end,G", "edge('last')", "The last token; goes on with it while it grows"),
        Binding("pageup", "page(-1)", "A page up"),
        Binding("pagedown", "page(1)", "A page down"),
        Binding("n", "surprise(1)", "The next surprising token"),
        Binding("N,shift+n", "surprise(-1)", "The surprising token before"),
        Binding("enter,tab", "choose", "Its alternatives"),
    ]

    cursor: reactive[int] = reactive(0)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tokens: list[Scored] = []
        self._layout = TokenLines(WIDEST)
        self._pairs: list[tuple[int, bytes | None]] = []
        self._strips: dict[int, Strip] = {}
        self._column: int | None = None  # where the cursor wants to be when it changes lines

    def show(self, tokens: Sequence[Scored], cursor: int | None = None) -> None:
        """Show these; the cursor stays at its place in the text, or goes where it is told."""
        self.tokens = list(tokens)
        self._pairs = [(token.token, token.piece) for token in tokens]
        self._column = None
        if cursor is not None:
            self.scroll_to(y=0, animate=False, force=True)
        index = self.validate_cursor(self.cursor if cursor is None else cursor)
        self.set_reactive(TokenView.cursor, index)
        self._lay_out_anew()
        self._keep_in_sight()
        self.post_message(self.Moved(index))

    def extend(self, more: Sequence[Scored]) -> None:
        """So many tokens have come. A cursor on the last one goes on with them."""
        if not more:
            return
        follows = self.cursor and self.cursor == len(self.tokens) - 1
        self.tokens += more
        self._pairs += [(token.token, token.piece) for token in more]
        self._layout.extend(self._pairs)
        self._draw_from(self._layout.changed_from)
        if follows or len(self.tokens) == len(more):
            self.cursor = len(self.tokens) - 1 if follows else 0
            self.post_message(self.Moved(self.cursor))

    # Drawing

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw_from(0))

    def on_resize(self) -> None:
        if self._columns != self._layout.width:
            self._lay_out_anew()
            self._keep_in_sight()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    @property
    def _columns(self) -> int:
        return max(min(self.scrollable_content_region.width, WIDEST), 2)

    def _lay_out_anew(self) -> None:
        self._layout = TokenLines(self._columns)
        self._layout.extend(self._pairs)
        self._draw_from(0)

    def _draw_from(self, line: int) -> None:
        self._strips = {y: strip for y, strip in self._strips.items() if y < line}
        self.virtual_size = Size(self._columns, len(self._layout.lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        base = self.rich_style
        if y >= len(self._layout.lines):
            return Strip.blank(self.size.width, base)
        if y not in self._strips:
            palette = Palette.of(self.app)
            self._strips[y] = Strip(
                [
                    Segment(text, base + self._style(span, kind, palette))
                    for span in self._layout.lines[y]
                    for text, kind in span.parts
                ]
            )
        strip = self._strips[y]
        if len(self._layout) and self._is_on(y):
            strip = self._with_cursor(strip, y)
        return strip.adjust_cell_length(self.size.width, base)

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

    def _is_on(self, y: int) -> bool:
        first, last = self._layout.lines_of(self.cursor)
        return first <= y <= last

    def _with_cursor(self, strip: Strip, y: int) -> Strip:
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

    def validate_cursor(self, index: int) -> int:
        return max(0, min(index, len(self.tokens) - 1))

    def watch_cursor(self, before: int, after: int) -> None:
        if not len(self._layout):
            return
        for index in (before, after):
            if index < len(self._layout):
                first, last = self._layout.lines_of(index)
                top = first - self.scroll_offset.y
                self.refresh(Region(0, top, self.size.width, last - first + 1))
        self._keep_in_sight()
        self.post_message(self.Moved(after))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _keep_in_sight(self) -> None:
        if not len(self._layout):
            return
        first, last = self._layout.lines_of(self.cursor)
        height = self.scrollable_content_region.height
        margin = min(_CONTEXT, max((height - 1) // 2, 0))
        top = self.scroll_offset.y
        highest, lowest = last + margin - height + 1, first - margin
        y = max(min(top, lowest), highest)
        if y != top:
            self.scroll_to(y=max(y, 0), animate=False, force=True)

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
        offset = event.get_content_offset(self)
        if offset is not None:
            self._column = None
            there = self._layout.at(offset.y + self.scroll_offset.y, offset.x)
            if there is not None:
                self.cursor = there
