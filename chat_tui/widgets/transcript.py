"""The finished turns: what the user said, the answers that were picked, and one-line notices.

    transcript.add_user("12*3?")
    transcript.add_answer("36", calls=(), forced=(), label="2 of 4")
    transcript.add_notice("The engine died: out of memory.", "error")
    transcript.replace([User("12*3?"), Answer("36")])    # another session, or path of the tree

One widget on the line API, not one per message. A long conversation opens at once: what is in view
is drawn first, the rest between two key presses. Lines are added above and below what is drawn, and
never guessed, so nothing in view moves while that goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from textual.binding import BindingType
from textual.timer import Timer

from chat_tui.keys import BRANCHING, TRANSCRIPT
from chat_tui.rendering import Flow, Palette, sanitise
from chat_tui.rendering.said import said
from chat_tui.rendering.wrap import Line, wrap
from chat_tui.widgets.lines_view import LinesView
from engine.messages import ToolCall

NoticeKind = Literal["info", "warning", "error"]

_SLICE = 0.008  # seconds of drawing at a time, while there is more to draw
_PAUSE = 0.02  # seconds between two slices, for keys and for the engine


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


def draw(entry: Entry, width: int, palette: Palette, *, whole: bool = False) -> list[Line]:
    """The lines of one entry. `whole`: nothing of it is folded."""
    match entry:
        case User(text):
            return said(text, width, palette, whole=whole)
        case Answer(label=label):
            above = wrap([(sanitise(label), palette.faint)], width) if label else []
            return above + _flow(entry, whole).lines(width, palette)
        case Notice(text, kind):
            glyph, style = {
                "info": ("·", palette.muted),
                "warning": ("!", palette.warning),
                "error": ("✗", palette.error),
            }[kind]
            lines = wrap([(sanitise(text), style)], width - 2)
            heads = (f"{glyph} ", *["  "] * (len(lines) - 1))
            return [line.framed((head, style)) for line, head in zip(lines, heads, strict=True)]


@lru_cache(maxsize=64)
def _flow(answer: Answer, whole: bool) -> Flow:
    """Kept, for it is drawn again at every other width, and parsing is most of that."""
    return Flow(answer.text, answer.calls, answer.forced, closed=True, unfolded=whole)


class Transcript(LinesView):
    """The conversation above the prompt."""

    DEFAULT_CSS = """
    Transcript { padding: 0 0 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [*TRANSCRIPT, *BRANCHING]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.entries: list[Entry] = []
        # Drawn are entries[first:first + len(heights)], one height for each.
        self._first = 0
        self._heights: list[int] = []
        self._drawn: list[Line] = []
        self._width = 0
        self._whole = False
        self._more: Timer | None = None

    # What it shows

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
        self.following = True
        self._draw_anew()

    def go(self, entries: Sequence[Entry]) -> None:
        """Show another path: what it has in common with this one stays, notices included."""
        kept, common = 0, 0
        for place, entry in enumerate(self.entries, 1):
            if not isinstance(entry, Notice):
                if common == len(entries) or entry != entries[common]:
                    break
                common += 1
            kept = place
        self.replace([*self.entries[:kept], *entries[common:]])

    def clear(self) -> None:
        self.replace(())

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self._width and self._last == len(self.entries) - 1:
            changed_from = len(self._drawn)
            self._draw_below()
            self.show_lines(self._drawn, changed_from)

    def action_unfold(self) -> None:
        """Show files and long messages in full, or folded again."""
        self._whole = not self._whole
        self._draw_anew()

    # Drawing

    @property
    def _last(self) -> int:
        return self._first + len(self._heights)

    def on_mount(self) -> None:
        self._more = self.set_interval(_PAUSE, self._draw_more, pause=True)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw_anew())

    def fit(self) -> None:
        if self.columns != self._width:
            self._draw_anew()
        else:
            self.show_lines(self._drawn)

    def _draw_anew(self) -> None:
        """Draw what is in view, from the entry at its top or, where it follows, from the end."""
        anchor = len(self.entries) if self.following else self._entry_in_view()
        self._width = self.columns
        self._first = anchor
        self._heights.clear()
        self._drawn.clear()
        if not self._width:
            return
        # Where the height is that of what is drawn, as much as there could be room for.
        height = (self.app if self.styles.is_auto_height else self).size.height
        while len(self._drawn) < height and self._last < len(self.entries):
            self._draw_below()
        while len(self._drawn) < height and self._first > 0:
            self._draw_above()
        following = self.following
        self.show_lines(self._drawn)
        if not following:
            self.scroll_to_line(0)
            self.following = False
        if self._more is not None:
            self._more.resume()

    def _entry_in_view(self) -> int:
        y = self.scroll_offset.y
        for index, height in enumerate(self._heights, self._first):
            if y < height:
                return index
            y -= height
        return self._last

    def _draw_more(self) -> None:
        """One slice of what is not drawn yet, the newest first."""
        until = time.monotonic() + _SLICE
        before, above = len(self._drawn), 0
        while time.monotonic() < until and self._last < len(self.entries):
            self._draw_below()
        while time.monotonic() < until and self._first > 0:
            above += self._draw_above()
        if len(self._drawn) != before:
            self.show_lines(self._drawn, above + before, above)
        elif self._more is not None:
            self._more.pause()

    def _draw_above(self) -> int:
        self._first -= 1
        lines = self._lines_of(self._first)
        self._drawn[:0] = lines
        self._heights.insert(0, len(lines))
        return len(lines)

    def _draw_below(self) -> None:
        lines = self._lines_of(self._last)
        self._drawn += lines
        self._heights.append(len(lines))

    def _lines_of(self, index: int) -> list[Line]:
        entry = self.entries[index]
        lines = draw(entry, self._width, Palette.of(self.app), whole=self._whole)
        before = self.entries[index - 1] if index else None
        close = before is None or (isinstance(entry, Notice) and isinstance(before, Notice))
        return lines if close else [Line([]), *lines]
