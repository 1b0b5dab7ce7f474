"""One answer's text as it grows: raw characters in, lines of cells out.

    flow = Flow()
    flow.append("12*3 is ")            # as the model samples
    flow.set_call(0, ToolCall(...))    # the characters it covers are drawn as a chip
    flow.close()                       # nothing more will come
    lines = flow.lines(width, palette)

Blocks that are complete are drawn once; only the open block is drawn again when text arrives. The
text is kept raw, and made harmless on its way to the screen. What the model thinks before it
answers is folded into a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chat_tui.rendering.blocks import Block, blocks
from chat_tui.rendering.insets import Insets, Span, place
from chat_tui.rendering.palette import Palette
from chat_tui.rendering.thought import thought_lines
from chat_tui.rendering.wrap import Line, Run
from chat_tui.thought import thought_in
from engine.messages import ToolCall


class Flow:
    """A text that grows, with its tool calls and forced stretches."""

    def __init__(
        self,
        text: str = "",
        calls: Sequence[ToolCall] = (),
        forced: Iterable[Span] = (),
        *,
        closed: bool = False,
        unfolded: bool = False,
    ) -> None:
        self.text = text
        self.calls: dict[int, ToolCall] = dict(enumerate(calls))
        self.forced: list[Span] = list(forced)
        self.closed = closed
        self._unfolded = unfolded
        self._parting: Span | None = None
        self._lines: list[Line] = []
        self._drawn_for: tuple[int, Palette] | None = None
        self._start = 0  # of the open block in `text`
        self._settled = 0  # lines above it
        self._spaced = False  # blank lines stand before it
        self.changed_from = 0  # the first line that the last drawing made anew

    def append(self, text: str, forced: bool = False) -> None:
        start, end = len(self.text), len(self.text) + len(text)
        self.text += text
        if forced and text:
            if self.forced and self.forced[-1][1] == start:
                start, _ = self.forced.pop()
            self.forced.append((start, end))

    def set_call(self, index: int, call: ToolCall) -> None:
        self.calls[index] = call
        if call.start < self._start:
            self._drawn_for = None

    def part(self, token: Span | None) -> bool:
        """Mark the token with these characters as the one where this text parts from others, and
        draw what stands before it faintly, which they share. None: draw all of it as ever. Returns
        whether that changes anything."""
        if token == self._parting:
            return False
        self._parting = token
        self._drawn_for = None
        return True

    def close(self) -> None:
        self.closed = True

    def unfold(self, unfolded: bool) -> None:
        """Show what was thought, or fold it."""
        if unfolded != self._unfolded:
            self._unfolded, self._drawn_for = unfolded, None

    @property
    def width(self) -> int | None:
        """Cells that it was last drawn for."""
        return self._drawn_for[0] if self._drawn_for is not None else None

    @property
    def open_length(self) -> int:
        """Characters that are drawn again when text arrives: the measure of what drawing costs."""
        return len(self.text) - self._start

    def lines(self, width: int, palette: Palette) -> list[Line]:
        """The whole text at this width. The list is the flow's own, changed by the next call."""
        if self._drawn_for != (width, palette):
            self._drawn_for = width, palette
            self._lines.clear()
            self._start, self._settled, self._spaced = 0, 0, False
        before = self._lines[self._settled :]
        self.changed_from = self._settled
        if self._settled or not self._draw_thought(width, palette):
            self._draw_open(width, palette)
        for old, new in zip(before, self._lines[self.changed_from :], strict=False):
            if old != new:
                break
            self._lines[self.changed_from] = old  # its strip has cached what it looks like
            self.changed_from += 1
        return self._lines

    def _draw_thought(self, width: int, palette: Palette) -> bool:
        """Draw what the text begins with, if that is a thought; whether it still goes on."""
        thought = thought_in(self.text)
        if thought is None:
            return False
        self._lines[:] = thought_lines(
            thought, width, palette, unfolded=self._unfolded, closed=self.closed
        )
        if thought.after is None:
            return True
        self._start, self._settled, self._spaced = thought.after, len(self._lines), True
        return False

    def _draw_open(self, width: int, palette: Palette) -> None:
        """Draw what stands behind the blocks that are complete."""
        insets = place(self.text, self.calls.values(), self.forced, self._start, self._parting)
        del self._lines[self._settled :]
        found = list(blocks(insets.text, final=self.closed, spaced=self._spaced))
        for block in found[:-1]:
            self._draw(block, insets, width, palette, growing=False)
        self._settled = len(self._lines)
        if found:
            self._draw(found[-1], insets, width, palette, growing=not self.closed)
            self._spaced = found[-1].spaced
            self._start += insets.raw_length(found[-1].start)

    def _draw(
        self, block: Block, insets: Insets, width: int, palette: Palette, *, growing: bool
    ) -> None:
        if block.spaced and self._lines:
            self._lines.append(Line([]))
        from chat_tui.rendering.markdown import (
            markdown,
        )  # 70 ms that the first frame can do without

        source = insets.text[block.start : block.end]
        lines = markdown(source, insets, width, palette, growing=growing)
        if self._parting is not None:
            start = self._start + insets.raw_length(block.start)
            end = self._start + insets.raw_length(block.end)
            lines = self._shaded(lines, start, end, palette)
        self._lines += lines

    def _shaded(self, lines: list[Line], start: int, end: int, palette: Palette) -> list[Line]:
        """The lines of `text[start:end]`, faint as far as they are shared."""
        assert self._parting is not None
        parting = self._parting[0]
        if start > parting:
            return lines
        shared = True
        shaded: list[Line] = []
        for line in lines:
            runs: list[Run] = []
            for text, style in line.runs:
                # Where the mark is not found, it is in markers that became styles.
                shared = shared and style is not palette.parting
                runs.append((text, style + palette.faint if shared else style))
            shaded.append(Line(runs, line.joint, line.frame, line.lead))
        return lines if shared and end > parting else shaded
