"""One answer's text as it grows: raw characters in, lines of cells out.

    flow = Flow()
    flow.append("12*3 is ")            # as the model samples
    flow.set_call(0, ToolCall(...))    # the characters it covers are drawn as a chip
    flow.close()                       # nothing more will come
    flow.update()                      # cut what has come into pieces
    box = flow.pieces[0].box(palette)  # which is drawn in any width

A piece is drawn on its own: a block of Markdown, or what the model thinks before it answers. Those
before the last stay as they are, whatever text follows. The text is kept raw, and made harmless on
its way to the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from chat_tui.rendering.blocks import Block, blocks
from chat_tui.rendering.boxes import BLANK, Box, Drawn, Stack
from chat_tui.rendering.insets import Insets, Span, place
from chat_tui.rendering.palette import Palette
from chat_tui.rendering.thought import thought_lines
from chat_tui.rendering.wrap import Line, Run
from chat_tui.thought import Thought, thought_in
from engine.messages import ToolCall


class Piece:
    """A stretch of a text that is drawn on its own."""

    def __init__(self, draw: Callable[[Palette], Box]) -> None:
        self._draw = draw
        self._drawn: tuple[Palette, Box] | None = None

    def box(self, palette: Palette) -> Box:
        """What it looks like; made once for a palette."""
        if self._drawn is None or self._drawn[0] is not palette:
            self._drawn = palette, self._draw(palette)
        return self._drawn[1]


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
        self.pieces: list[Piece] = []
        self._settled = 0  # pieces that no more text can change
        self._start = 0  # of what stands behind them in `text`
        self._spaced = False  # blank lines stand before it
        self._anew = False

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
            self._anew = True

    def part(self, token: Span | None) -> bool:
        """Mark the token with these characters as the one where this text parts from others, and
        draw what stands before it faintly, which they share. None: draw all of it as ever. Returns
        whether that changes anything."""
        if token == self._parting:
            return False
        self._parting = token
        self._anew = True
        return True

    def close(self) -> None:
        self.closed = True

    def unfold(self, unfolded: bool) -> None:
        """Show what was thought, or fold it."""
        if unfolded != self._unfolded:
            self._unfolded, self._anew = unfolded, True

    @property
    def open_length(self) -> int:
        """Characters that are drawn again when text arrives: the measure of what drawing costs."""
        return len(self.text) - self._start

    def lines(self, width: int, palette: Palette) -> list[Line]:
        """The whole text at this width."""
        self.update()
        return [line for piece in self.pieces for line in piece.box(palette).lines(width)]

    def update(self) -> int | None:
        """Cut what has come into pieces. Returns the first that is not what it was before; None
        where all may look different."""
        anew, self._anew = self._anew, False
        if anew:
            self._start = self._settled = 0
            self._spaced = False
        first = self._settled
        del self.pieces[first:]
        if first or not self._begin_with_thought():
            self._cut()
        return None if anew else first

    def _begin_with_thought(self) -> bool:
        """The first piece is the thought that the text begins with, if any; whether it goes on."""
        thought = thought_in(self.text)
        if thought is None:
            return False
        if thought.words or thought.after is None:
            self.pieces.append(Piece(partial(self._thought, thought, self.closed)))
        if thought.after is None:
            return True
        self._start, self._settled, self._spaced = thought.after, len(self.pieces), True
        return False

    def _thought(self, thought: Thought, closed: bool, palette: Palette) -> Box:
        unfolded = self._unfolded
        return Drawn(
            partial(thought_lines, thought, palette=palette, unfolded=unfolded, closed=closed)
        )

    def _cut(self) -> None:
        """Pieces of what stands behind those that are settled."""
        insets = place(self.text, self.calls.values(), self.forced, self._start, self._parting)
        found = list(blocks(insets.text, final=self.closed, spaced=self._spaced))
        for number, block in enumerate(found, 1):
            growing = number == len(found) and not self.closed
            spaced = block.spaced and bool(self.pieces)
            draw = partial(self._block, block, insets, self._start, spaced, growing)
            self.pieces.append(Piece(draw))
        if found:
            self._settled = len(self.pieces) - 1
            self._spaced = found[-1].spaced
            self._start += insets.raw_length(found[-1].start)

    def _block(
        self,
        block: Block,
        insets: Insets,
        start: int,
        spaced: bool,
        growing: bool,
        palette: Palette,
    ) -> Box:
        """A block of the text from `start` on, of which are the `insets`."""
        from chat_tui.rendering.markdown import (
            markdown,
        )  # 70 ms that the first frame can do without

        box = markdown(insets.text[block.start : block.end], insets, palette, growing=growing)
        if self._parting is not None:
            first, last = (start + insets.raw_length(at) for at in (block.start, block.end))
            if first <= self._parting[0]:
                box = Drawn(partial(self._shaded, box, last, palette))
        return Stack((BLANK, box)) if spaced else box

    def _shaded(self, box: Box, end: int, palette: Palette, width: int) -> list[Line]:
        """The lines of a box, faint as far as they are shared; in the text it ends at `end`."""
        assert self._parting is not None
        lines = box.lines(width)
        shared = True
        shaded: list[Line] = []
        for line in lines:
            runs: list[Run] = []
            for text, style in line.runs:
                # Where the mark is not found, it is in markers that became styles.
                shared = shared and style is not palette.parting
                runs.append((text, style + palette.faint if shared else style))
            shaded.append(Line(runs, line.joint, line.frame, line.lead))
        return lines if shared and end > self._parting[0] else shaded
