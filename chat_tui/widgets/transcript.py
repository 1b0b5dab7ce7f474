"""The finished turns: what the user said, the answers that were picked, and one-line notices.

    transcript.add_user("12*3?")
    transcript.add_answer("36", calls=(), forced=(), label="2 of 4")
    transcript.add_notice("the engine died: out of memory", "error")
    transcript.replace([User("12*3?"), Answer("36")])    # another session, or path of the tree

One widget on the line API, not one per message. It follows its end until it is scrolled up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chat_tui.rendering import Flow, Palette
from engine.messages import ToolCall

NoticeKind = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class User:
    """What the user said."""

    text: str


@dataclass(frozen=True)
class Answer:
    """A picked answer. `forced` are the (start, end) characters that were forced."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    forced: tuple[tuple[int, int], ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Notice:
    """One line about what happened."""

    text: str
    kind: NoticeKind = "info"


Entry = User | Answer | Notice


class Transcript(ScrollView, can_focus=True):
    """The conversation above the prompt."""

    DEFAULT_CSS = """
    Transcript { background: $background; overflow-x: hidden; scrollbar-size: 1 1; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.entries: list[Entry] = []
        self._strips: list[Strip] = []

    def add_user(self, text: str) -> None:
        self._add(User(text))

    def add_answer(
        self,
        text: str,
        calls: Sequence[ToolCall] = (),
        forced: Sequence[tuple[int, int]] = (),
        label: str = "",
    ) -> None:
        self._add(Answer(text, tuple(calls), tuple(forced), label))

    def add_notice(self, text: str, kind: NoticeKind = "info") -> None:
        self._add(Notice(text, kind))

    def replace(self, entries: Iterable[Entry]) -> None:
        """Show another conversation, at its end."""
        self.entries = list(entries)
        self._layout()

    def clear(self) -> None:
        self.replace(())

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._layout()

    def _layout(self) -> None:
        follow = self.is_vertical_scroll_end
        palette = Palette.of(self.app)
        self._strips = [
            strip
            for entry in self.entries
            for strip in Flow(entry.text, closed=True).strips(self.size.width, palette)
        ]
        self.virtual_size = Size(self.size.width, len(self._strips))
        if follow:
            self.scroll_end(animate=False, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        self._layout()

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        return self._strips[y].extend_cell_length(self.size.width).apply_style(self.rich_style)
