"""Lines with a cursor that goes over what stands on them: rows of a tree, tokens of a text.

A subclass says how many places there are for the cursor (`count`) and on which lines one stands
(`lines_of`, `place_at`), and draws a line without the cursor (`draw_line`) and with it
(`draw_cursor`). A line is drawn once and kept; what is not in view costs nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from chat_tui.widgets.quiet_scroll import QuietScroll

_CONTEXT = 2  # lines that stay in sight above and below the cursor


class CursorView(QuietScroll, inherit_bindings=False):
    """`cursor` is the place that keys act on."""

    DEFAULT_CSS = """
    CursorView { padding: 0 1; }
    """

    @dataclass
    class Moved(Message):
        """The cursor is on another place, or there is more to tell about the one it is on."""

    cursor: reactive[int] = reactive(0)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._strips: dict[int, Strip] = {}

    # What a subclass says.

    @property
    @abstractmethod
    def count(self) -> int:
        """Places that the cursor can be on."""

    @property
    @abstractmethod
    def line_count(self) -> int:
        """Lines that there are."""

    @abstractmethod
    def lines_of(self, place: int) -> tuple[int, int]:
        """The first and the last line that a place stands on."""

    @abstractmethod
    def place_at(self, line: int, x: int) -> int | None:
        """The place at a cell, if there is one."""

    @abstractmethod
    def draw_line(self, y: int) -> Strip:
        """A line as it is without the cursor."""

    @abstractmethod
    def draw_cursor(self, strip: Strip, y: int) -> Strip:
        """A line that the cursor is on; `strip` is the same without it."""

    @abstractmethod
    def action_choose(self) -> None:
        """Enter, or a double click."""

    # Drawing.

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.redraw())

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def redraw(self, line: int = 0) -> None:
        """What stands from `line` on is new, or looks different."""
        self._strips = {y: strip for y, strip in self._strips.items() if y < line}
        self.virtual_size = Size(self.scrollable_content_region.width, self.line_count)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        if y >= self.line_count:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._strips:
            self._strips[y] = self.draw_line(y)
        strip = self._strips[y]
        if self.count:
            first, last = self.lines_of(self.cursor)
            if first <= y <= last:
                strip = self.draw_cursor(strip, y)
        return strip.adjust_cell_length(self.size.width, self.rich_style)

    # Moving.

    def put_cursor(self, place: int) -> None:
        """Where the cursor is, now that what is shown is something else."""
        self.set_reactive(CursorView.cursor, self.validate_cursor(place))
        self.keep_in_sight()
        self.post_message(self.Moved())

    def validate_cursor(self, place: int) -> int:
        return max(0, min(place, self.count - 1))

    def watch_cursor(self, before: int, after: int) -> None:
        for place in (before, after):
            if place < self.count:
                first, last = self.lines_of(place)
                top = first - self.scroll_offset.y
                self.refresh(Region(0, top, self.size.width, last - first + 1))
        self.keep_in_sight()
        if self.count:
            self.post_message(self.Moved())

    def keep_in_sight(self) -> None:
        """Scroll so that the cursor is in view, with some lines around it."""
        if not self.count:
            return
        first, last = self.lines_of(self.cursor)
        height = self.scrollable_content_region.height
        margin = min(_CONTEXT, max((height - 1) // 2, 0))
        top = self.scroll_offset.y
        y = max(min(top, first - margin), last + margin - height + 1, 0)
        if y != top:
            self.scroll_to(y=y, animate=False, force=True)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        place = self.place_at(offset.y + self.scroll_offset.y, offset.x)
        if place is not None:
            self.cursor = place
            if event.chain > 1:
                self.action_choose()
