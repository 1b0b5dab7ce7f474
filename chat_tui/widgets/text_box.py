"""A text that is being written: pasted, folded, edited.

`TextBox` is a TextArea in which a grapheme and a folded text (`chat_tui/folds.py`) are one thing
each: the cursor passes over them, and a key deletes them whole. `text` is what is shown, `whole`
what is meant. Whatever is in it, nothing of it reaches the terminal as control.
"""

from __future__ import annotations

import re
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit
from textual.widgets import TextArea

from chat_tui.folds import Folds
from chat_tui.keys import Keys
from chat_tui.rendering.sanitise import neutral
from chat_tui.widgets import units

units.install()

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
REVEALED = 50_000
"""Characters of a folded text that can still be edited in the box."""


def clean(pasted: str) -> str:
    """A pasted text with its line breaks as newlines (terminals send CR) and no other controls."""
    return _CONTROLS.sub("", pasted.replace("\r\n", "\n").replace("\r", "\n"))


class TextBox(TextArea):
    """Several lines of text."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"text-box--fold"}

    DEFAULT_CSS = """
    TextBox {
        & .text-area--cursor-line { background: transparent; }
        & .text-area--placeholder { color: $foreground 40%; }
        & .text-box--fold { color: $text-primary; background: $primary 15%; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        self.folds = Folds()
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
        self.cursor_blink = False

    @property
    def whole(self) -> str:
        """The text with what is folded in it."""
        return self.folds.expand(self.text)

    @property
    def selected_text(self) -> str:
        return self.folds.expand(super().selected_text)

    @property
    def cursor_index(self) -> int:
        """How many characters of the text stand before the cursor."""
        return len(self.get_text_range((0, 0), self.cursor_location))

    def location_of(self, index: int) -> Location:
        before = self.text[:index]
        return before.count("\n"), index - before.rfind("\n") - 1

    def replace_text(self, text: str) -> None:
        """Put another text into the box, cursor at its end, undo kept."""
        self.replace(
            self.folds.shrink(text), (0, 0), self.document.end, maintain_selection_offset=False
        )
        self.move_cursor(self.document.end)

    def take_paste(self, pasted: str) -> None:
        """Put a pasted text where the cursor is, folded where it is long."""
        self.history.checkpoint()  # undo takes back the paste alone
        if result := self._replace_via_keyboard(self.folds.paste(clean(pasted)), *self.selection):
            self.move_cursor(result.end_location)

    def reveal(self) -> str:
        """Show the folded text at the cursor, or the nearest before it, in full. Returns why it
        cannot be, in a line; empty where it is."""
        row, column = self.cursor_location
        folded = [
            (line, start, end)
            for line in range(self.document.line_count)
            for start, end in self.folds.spans(self.document.get_line(line))
        ]
        if not folded:
            return "Nothing is folded here."
        before = [fold for fold in folded if fold[:2] <= (row, column)]
        line, start, end = (before or folded[:1])[-1]
        body = self.folds.bodies[self.document.get_line(line)[start:end]]
        if len(body) > REVEALED:
            edits = Keys.of(self.app).first("prompt.editor")
            return f"{len(body):,} characters are too many for this box: {edits} edits them."
        self.history.checkpoint()
        self.replace(body, (line, start), (line, end), maintain_selection_offset=False)
        return ""

    # What is one thing.

    def _unit_around(self, location: Location) -> tuple[Location, Location] | None:
        """What a place is inside of, as a whole; None where it stands between two things."""
        row, column = location
        line = self.document.get_line(row) if row < self.document.line_count else ""
        if not 0 < column < len(line):
            return None
        labels = (span for span in self.folds.spans(line) if span[0] < column < span[1])
        span = next(labels, None) or units.grapheme_around(line, column)
        return None if span is None else ((row, span[0]), (row, span[1]))

    def _validate_selection(self, selection: Selection) -> Selection:
        start, end = super()._validate_selection(selection)
        before = self.selection.end
        places = []
        for place in (start, end):
            unit = self._unit_around(place)
            places.append(place if unit is None else unit[1] if place > before else unit[0])
        return Selection(*places)

    def edit(self, edit: Edit) -> EditResult:
        start, end = sorted((edit.from_location, edit.to_location))
        first, last = self._unit_around(start), self._unit_around(end)
        if start == end and last is not None:
            start = end = last[1]
        else:
            start, end = first[0] if first else start, last[1] if last else end
        edit.from_location, edit.to_location = start, end
        return super().edit(edit)

    def _recompute_cursor_offset(self) -> None:
        # Textual asks in the middle of an undo, where the cursor still stands in text that is gone.
        place = self.clamp_visitable(self.cursor_location)
        self._cursor_offset = self.wrapped_document.location_to_offset(place)

    # Keys.

    def action_cut(self) -> None:
        if self.selection.is_empty:
            self.select_line(self.cursor_location[0])
        if self.selected_text:
            self.action_copy()
            self._delete_via_keyboard(*self.selection)

    def action_paste(self) -> None:
        self.take_paste(self.app.clipboard)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.take_paste(event.text)
        self.focus()

    # Drawing.

    def get_line(self, line_index: int) -> Text:
        shown = self.document.get_line(line_index)
        line = Text(neutral(shown), end="", no_wrap=True)
        for start, end in self.folds.spans(shown):
            line.stylize(self.get_component_rich_style("text-box--fold"), start, end)
        return line
