"""Drawing on the line API: what a pane and the transcript have in common.

A `LinesView` shows a list of lines, follows its end until it is scrolled up and again once it is
back there, and lets text be selected and copied without the breaks that only the width made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from chat_tui.keys import SCROLLING
from chat_tui.rendering.wrap import Line
from chat_tui.widgets.quiet_scroll import QuietScroll

if TYPE_CHECKING:
    from typing_extensions import Self

LONGEST_LINE = 100


class LinesView(QuietScroll, inherit_bindings=False):
    """Lines of cells that grow at their end."""

    BINDINGS: ClassVar[list[BindingType]] = [*SCROLLING]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: Sequence[Line] = ()
        self.following = True
        self._base: Style | None = None
        self._thumb_shown = 0
        self._bar_stands = False
        self._framed: dict[int, Strip] = {}
        """Rows as they were drawn, frame and all, by what `_number` says they show."""
        self._framed_width = 0

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._base = None
        self._framed.clear()

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        if repaint and not regions:
            self._framed.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @property
    def columns(self) -> int:
        """Cells that a line may have: longer ones are hard to read."""
        return min(self.scrollable_content_region.width, LONGEST_LINE)

    def show_lines(self, lines: Sequence[Line], changed_from: int = 0, above: int = 0) -> bool:
        """Show `lines`, of which those from `changed_from` on are new or different.

        `above` is how many of them were added before the first: what is in view stays where it is.
        Returns whether it scrolled, and thus draws itself from top to bottom.
        """
        self._forget_framed(0 if above else changed_from)
        self.lines = lines
        size = Size(self.columns, len(lines))
        if size != self.virtual_size:
            following = self.following
            if self.styles.is_auto_height:
                self.virtual_size = size
            else:
                # A line more changes the scroll bar, not the layout of the screen.
                self.set_reactive(Widget.virtual_size, size)
            thumb = self._thumb(len(lines)) if following else 0
            self._bar_stands = bool(thumb) and thumb == self._thumb_shown
            self._thumb_shown = thumb
            if not self._bar_stands:
                self._scroll_update(size)
            self.following = following
        before = self.scroll_offset.y
        after = self.max_scroll_y if self.following else before + above
        if after != before:
            self.scroll_to_line(after)
        self._bar_stands = False
        if after != before:
            return True
        top = max(changed_from - before, 0)
        if top < self.size.height:
            self.refresh(Region(0, top, self.size.width, self.size.height - top))
        return False

    def _thumb(self, count: int) -> int:
        """The picture of the scroll bar at the end of `count` lines, for it costs as much to draw
        as the text beside it: the length of its thumb, in halves of a cell."""
        height = self.size.height
        return ceil(2 * height * height / count) if count > height else 0

    def scroll_to_line(self, y: int) -> None:
        """Put a line at the top, now."""
        self.scroll_to(y=y, animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        if self._bar_stands:
            self.refresh(self.size.region)
        else:
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

    def _forget_framed(self, first: int) -> None:
        for number in [number for number in self._framed if number >= first]:
            del self._framed[number]

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual draws them, but a line that was drawn is kept when it scrolls: a strip that is
        the same object as before is not cut and written out anew either. A frame of eight panes
        with 1,000 tokens each makes 39,000 function calls with this, and the resting scroll bars,
        for 61,000 without."""
        if crop.x or crop.width != self.outer_size.width:
            return super().render_lines(crop)
        if crop.width != self._framed_width:
            self._framed.clear()
            self._framed_width = crop.width
        kept = self._framed
        numbers = self._numbers(crop)
        missing = [place for place, number in enumerate(numbers) if number not in kept]
        for first, last in _stretches(missing):
            part = Region(0, crop.y + first, crop.width, last + 1 - first)
            kept.update(zip(numbers[first : last + 1], super().render_lines(part), strict=True))
        return [kept[number] for number in numbers]

    def _numbers(self, crop: Region) -> list[int]:
        """What the rows of the widget show: lines by their numbers; -1 where there is no line; less
        than that for the frame above and below."""
        top = self.gutter.top
        rows = range(top, top + self.size.height)
        first, count = self.scroll_offset.y - top, len(self.lines)
        return [
            (first + y if first + y < count else -1) if y in rows else -2 - y
            for y in crop.line_range
        ]

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
        # A line may be shorter than what was selected: it is blank, or it changed since.
        first, last = (cell_len(strip.text[:index]) for index in span)
        start, end = first, strip.cell_length if span[1] == -1 else last
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


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbours in ascending `places`."""
    for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        stretch = [place for _, place in run]
        yield stretch[0], stretch[-1]
