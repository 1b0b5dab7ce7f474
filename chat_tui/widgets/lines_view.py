"""Drawing on the line API: what a pane and the transcript have in common.

A `LinesView` shows a list of lines, follows its end until it is scrolled up and again once it is
back there, and lets text be selected and copied without the breaks that only the width made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from chat_tui.rendering.wrap import Line
from chat_tui.widgets.quiet_scroll import QuietScroll

LONGEST_LINE = 100


class LinesView(QuietScroll, inherit_bindings=False):
    """Lines of cells that grow at their end."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_up", "Scroll up a page", show=False),
        Binding("pagedown", "page_down", "Scroll down a page", show=False),
        Binding("home", "scroll_home", "Scroll to the start", show=False),
        Binding("end", "scroll_end", "Scroll to the end and follow it", show=False),
        Binding("shift+up", "scroll_up", "Scroll up a line", show=False),
        Binding("shift+down", "scroll_down", "Scroll down a line", show=False),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: Sequence[Line] = ()
        self.following = True
        self._base: Style | None = None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._base = None

    @property
    def columns(self) -> int:
        """Cells that a line may have: longer ones are hard to read."""
        return min(self.scrollable_content_region.width, LONGEST_LINE)

    def show_lines(self, lines: Sequence[Line], changed_from: int = 0, above: int = 0) -> bool:
        """Show `lines`, of which those from `changed_from` on are new or different.

        `above` is how many of them were added before the first: what is in view stays where it is.
        Returns whether it scrolled, and thus draws itself from top to bottom.
        """
        self.lines = lines
        size = Size(self.columns, len(lines))
        if size != self.virtual_size:
            following = self.following
            if self.styles.is_auto_height:
                self.virtual_size = size
            else:
                # A line more changes the scroll bar, not the layout of the screen.
                self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
            self.following = following
        before = self.scroll_offset.y
        after = self.max_scroll_y if self.following else before + above
        if after != before:
            self.scroll_to_line(after)
            return True
        top = max(changed_from - before, 0)
        if top < self.size.height:
            self.refresh(Region(0, top, self.size.width, self.size.height - top))
        return False

    def scroll_to_line(self, y: int) -> None:
        """Put a line at the top, now."""
        self.scroll_to(y=y, animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.following = round(new_value) >= self.max_scroll_y

    def action_scroll_up(self) -> None:
        self.scroll_relative(y=-1, animate=False)

    def action_scroll_down(self) -> None:
        self.scroll_relative(y=1, animate=False)

    def action_page_up(self) -> None:
        self.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self.scroll_page_down(animate=False)

    def action_scroll_home(self) -> None:
        self.scroll_to_line(0)

    def action_scroll_end(self) -> None:
        self.scroll_to_line(self.max_scroll_y)
        self.following = True

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        if self._base is None:
            self._base = self.rich_style
        base = self._base
        if y >= len(self.lines):
            return Strip.blank(self.size.width, base)
        # Both are cached by the strip, which lives as long as its line is not drawn anew.
        strip = self.lines[y].strip.apply_style(base)
        if (selection := self.text_selection) is not None:
            strip = self._highlight(strip, y, selection)
        return strip.apply_offsets(0, y)

    def _highlight(self, strip: Strip, y: int, selection: Selection) -> Strip:
        span = selection.get_span(y)
        if span is None:
            return strip
        start, end = (strip.index_to_cell_position(index) for index in span)
        if span[1] == -1:
            end = strip.cell_length
        start, end = min(start, strip.cell_length), min(end, strip.cell_length)
        ground = Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)
        marked = Strip(Segment.apply_style(strip.crop(start, end), post_style=ground))
        return Strip.join([strip.crop(0, start), marked, strip.crop(end)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was written: what only the width broke is one line."""
        parts: list[str] = []
        joint = "\n"
        for y, line in enumerate(self.lines):
            span = selection.get_span(y)
            if span is None:
                continue
            start, end = span
            text = line.text[max(start, line.frame) : None if end == -1 else end].rstrip()
            if start < line.frame and joint == "\n":
                text = line.lead + text
            parts += [joint, text] if parts else [text]
            joint = line.joint
        return ("".join(parts), "\n") if parts else None

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
