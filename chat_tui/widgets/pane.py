"""One answer, drawn on the line API while it grows.

    pane.feed(" token", forced=False)   # once per token; only marks the pane dirty
    pane.set_call(0, call)              # a tool call started or moved on
    pane.finish("stop")
    pane.paint()                        # draws what has changed since the last time

Nothing is drawn by `feed`: the grid calls `paint` some ten times a second, so the cost of the
screen depends on the panes that are visible, not on the tokens. The pane follows its end until it
is scrolled up.
"""

from __future__ import annotations

import time
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chat_tui.rendering import Flow, Palette
from engine.messages import FinishReason, ToolCall


class Pane(ScrollView, can_focus=True):
    """One of the answers that grow side by side."""

    DEFAULT_CSS = """
    Pane {
        border: round $foreground 25%;
        background: $background;
        padding: 0 1;
        scrollbar-size: 1 1;
        overflow-x: hidden;
        &:focus { border: round $primary; }
        &.-picked { border: round $success; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_up", "Scroll up a page", show=False),
        Binding("pagedown", "page_down", "Scroll down a page", show=False),
        Binding("home", "scroll_home", "Go to the start", show=False),
        Binding("end", "scroll_end", "Follow the end", show=False),
    ]

    def __init__(self, index: int = 0, label: str = "", *, numbered: bool = True) -> None:
        super().__init__()
        self.index = index
        self.label = label
        self.numbered = numbered
        self.flow = Flow()
        self.tokens = 0
        self.reason: FinishReason | None = None
        self.done = False
        self.note = ""
        self._strips: list[Strip] = []
        self._dirty = True
        self._first: float | None = None
        self._last = 0.0

    @property
    def text(self) -> str:
        """The answer as the model wrote it, unsanitised."""
        return self.flow.text

    def feed(self, text: str, forced: bool = False) -> None:
        """Take one token's text (which may be empty, or several characters)."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        self._last = now
        self.tokens += 1
        self.flow.append(text, forced)
        self._dirty = True

    def set_call(self, index: int, call: ToolCall) -> None:
        self.flow.set_call(index, call)
        self._dirty = True

    def finish(self, reason: FinishReason | None, text: str = "") -> None:
        """The row ended: why (None: the engine died), and the characters held back until now."""
        self.flow.append(text)
        self.flow.close()
        self.reason = reason
        self.done = True
        self._dirty = True

    def set_note(self, note: str) -> None:
        """One quiet line under the text ("waiting for the model"); "" takes it away."""
        self.note = note
        self._dirty = True

    def set_picked(self, picked: bool) -> None:
        self.set_class(picked, "-picked")

    def paint(self) -> None:
        """Draw what came since the last time."""
        if not self._dirty or not self.is_mounted:
            return
        self._dirty = False
        follow = self.is_vertical_scroll_end
        self._strips = self.flow.strips(self.size.width, Palette.of(self.app))
        self.virtual_size = Size(self.size.width, len(self._strips))
        if follow:
            self.scroll_end(animate=False, immediate=True)
        self.border_title = Content(f"{self.index + 1}")
        self.refresh()

    def on_resize(self) -> None:
        self._dirty = True
        self.paint()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        return self._strips[y].extend_cell_length(self.size.width).apply_style(self.rich_style)
