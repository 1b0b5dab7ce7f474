"""Drawing on the line API: what a pane and the transcript have in common.

A `LinesView` shows a list of lines, follows its end until it is scrolled up and again once it is
back there, and lets text be selected and copied without the breaks that only the width made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.color import Color
from textual.geometry import Offset, Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from chat_tui.keys import SCROLLING
from chat_tui.rendering.wrap import Line
from chat_tui.widgets.quiet_scroll import QuietScroll

if TYPE_CHECKING:
    from typing_extensions import Self

LONGEST_LINE = 100


class Beside(NamedTuple):
    """What is the same in all rows that show a line.

    Attributes:
        left, right: what stands on both sides: a border, padding.
        filler: how what is left of the row looks.
        ground: its colour under all of that.
    """

    left: list[Segment]
    right: list[Segment]
    filler: Style
    ground: Color


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
        self._beside: Beside | None = None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget()

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        if repaint and not regions:
            self._forget()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @property
    def columns(self) -> int:
        """Cells that a line may have: longer ones are hard to read."""
        return min(self.scrollable_content_region.width, LONGEST_LINE)

    def show_lines(
        self, lines: Sequence[Line], changed_from: int = 0, above: int = 0, top: int | None = None
    ) -> bool:
        """Show `lines`, of which those from `changed_from` on are new or different.

        `above` is how many of them were added before the first: what is in view stays where it is.
        `top` is the line to be at the top now, if not the one that was there, or the end.
        Returns whether it scrolled, and thus draws itself from top to bottom.
        """
        self._forget_framed(changed_from, above)
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
        if top is None:
            top = self.max_scroll_y if self.following else before + above
        if above and top == before + above:
            self._lower(above)
        elif top != before:
            self.scroll_to_line(top)
            self._bar_stands = False
            return True
        self._bar_stands = False
        first = max(changed_from - top, 0)
        if first < self.size.height:
            self.refresh(Region(0, first, self.size.width, self.size.height - first))
        return False

    def _lower(self, above: int) -> None:
        """So many lines were added above the first: the others stand further down, no more."""
        y = self.scroll_offset.y + above
        self.set_reactive(Widget.scroll_y, y)
        self.set_reactive(Widget.scroll_target_y, y)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = y
        if (selection := self.text_selection) is not None:
            self.screen.selections |= {self: lowered(selection, above)}

    def fit(self) -> None:
        """Draw what another size changes."""

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Fit before the first frame of the new size is painted. Textual (8.2) tells of a new size
        after it: that frame would show lines of the old width, and another would follow. And at
        every layout it paints all scroll bars, though nothing is different."""
        before = self.outer_size
        if (size, container_size) == (before, self.container_size):
            return False
        changed = super()._size_updated(size, virtual_size, container_size, layout)
        if self.outer_size != before:
            self._thumb_shown = 0
            self.fit()
        return changed

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

    def _forget_framed(self, first: int, above: int) -> None:
        """Rows that show lines from `first` on are others; lines were added above the first."""
        self._framed = {
            number + above if number >= 0 else number: row
            for number, row in self._framed.items()
            if number < 0 or number + above < first
        }

    def _forget(self) -> None:
        """Everything may look different now."""
        self._base = self._beside = None
        self._framed.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual draws them, but a line that was drawn is kept when it scrolls: a strip that is
        the same object as before is not cut and written out anew either. And a frame is the same on
        both sides of all lines: Textual draws it once, which takes it as long as ten lines here."""
        width = self.outer_size.width
        if crop.x or crop.width != width:
            return super().render_lines(crop)
        if width != self._framed_width:
            self._forget()
            self._framed_width = width
        kept = self._framed
        numbers = self._numbers(crop)
        for y, number in zip(crop.line_range, numbers, strict=True):
            if number not in kept:
                if number < 0 or self._beside is None:
                    [kept[number]] = super().render_lines(Region(0, y, width, 1))
                    if number >= -1:
                        self._beside = self._beside_lines(kept[number])
                else:
                    kept[number] = self._framed_line(number, self._beside)
        return [kept[number] for number in numbers]

    def _beside_lines(self, row: Strip) -> Beside:
        """The same for all, from one of them as Textual drew it."""
        left, width = self.gutter.left, self.size.width
        base, ground = self.background_colors
        filler = Style(bgcolor=(base + ground).rich_color)
        return Beside(list(row.crop(0, left)), list(row.crop(left + width)), filler, ground)

    def _framed_line(self, number: int, beside: Beside) -> Strip:
        segments = self._segments(number)
        room = self.size.width - self.lines[number].width
        if room > 0:
            segments.append(Segment(" " * room, beside.filler))
        elif room < 0:  # it was drawn for another width
            segments = list(Strip(segments).crop(0, self.size.width))
        for filter in self.get_line_filters():
            segments = filter.apply(segments, beside.ground)
        return Strip([*beside.left, *segments, *beside.right], self._framed_width)

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
        if y >= len(self.lines):
            return Strip.blank(self.size.width, self._ground)
        return Strip(self._segments(y)).apply_offsets(0, y)

    @property
    def _ground(self) -> Style:
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def _segments(self, y: int) -> list[Segment]:
        """A line without its frame."""
        segments = self.lines[y].segments(self._ground)
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        return segments if span is None else list(self._highlight(Strip(segments), *span))

    def _highlight(self, strip: Strip, first: int, last: int) -> Strip:
        # A line may be shorter than what was selected: it is blank, or it changed since.
        start = cell_len(strip.text[:first])
        end = strip.cell_length if last == -1 else cell_len(strip.text[:last])
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


def lowered(selection: Selection, lines: int) -> Selection:
    """The selection of the same text when it stands so many lines further down."""
    start, end = (None if at is None else Offset(at.x, at.y + lines) for at in selection)
    return Selection(start, end)
