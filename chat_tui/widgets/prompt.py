"""The box at the bottom: what is typed, pasted, recalled and completed.

`Prompt` grows with its text up to eight lines. It posts `Prompt.Submitted` on Enter and leaves the
text where it is: whoever takes it calls `clear_text()`. Newlines are Shift+Enter where the terminal
can tell it from Enter, and Ctrl+J or Alt+Enter everywhere. The list above it (`Completions`) offers
slash commands while one is being typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from chat_tui.commands import Choice
from chat_tui.history import PromptHistory
from chat_tui.widgets.completions import Completions

MAX_LINES = 8
_KEPT_CONTROLS = "\n\t"


class Prompt(TextArea):
    """A multi-line input that sends on Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send"),
        Binding("shift+enter,ctrl+j,alt+enter", "newline", "New line", key_display="^J"),
        Binding("up", "up", "Older prompt", show=False),
        Binding("down", "down", "Newer prompt", show=False),
        Binding("tab", "tab", "To the answers; take a completion", show=False),
    ]

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 10;
        padding: 0 1;
        border: round $foreground 25%;
        background: $background;
        scrollbar-size: 1 1;
        border-title-color: $foreground 60%;
        border-title-background: $background;
        border-subtitle-color: $foreground 60%;
        border-subtitle-background: $background;
        & .text-area--cursor-line { background: transparent; }
        & .text-area--placeholder { color: $foreground 40%; }
        &:focus { border: round $primary; }
    }
    """

    @dataclass
    class Submitted(Message):
        """Enter was pressed on this text."""

        text: str

    @dataclass
    class Edited(Message):
        """The text changed by the user's hand."""

        text: str

    class TakeBack(Message):
        """Up was pressed in an empty box: a message that still waits could come back."""

    def __init__(
        self,
        completions: Completions,
        past: PromptHistory,
        complete: Callable[[str], tuple[Sequence[Choice], str]],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
        self.completions = completions
        self.past = past
        self.waiting = False
        self._complete = complete
        self._settled = ""

    def clear_text(self) -> None:
        """The text was taken: remember it, and begin a new one."""
        self.past.add(self.text)
        self.replace_text("")

    def replace_text(self, text: str) -> None:
        """Put another text into the box, cursor at its end, undo kept."""
        start, end = (0, 0), self.document.end
        self.replace(text, start, end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)
        self._settled = text
        self.completions.offer([], "")

    def give_back(self, text: str) -> None:
        """Text that could not be asked returns, in front of what is in the box."""
        self.replace_text(f"{text}\n\n{self.text}" if self.text.strip() else text)

    def tell_state(self, title: str, segments: Sequence[str]) -> None:
        """Say in the frame how answers are sampled, and as many of the key hints as fit."""
        room = self.size.width - 4
        hint = segments[0]
        for segment in segments[1:]:
            if len(hint) + 3 + len(segment) <= room:
                hint = f"{hint} · {segment}"
        self.border_title = Content(title if len(title) <= room else title[: room - 1] + "…")
        self.border_subtitle = Content(hint)

    # Keys.

    def action_submit(self) -> None:
        choice = self.completions.chosen
        if choice is not None and choice.line.rstrip() != self.text.strip():
            self._take(choice)
            if not choice.final:
                return
        if self.text.strip():
            self.post_message(self.Submitted(self.text))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_tab(self) -> None:
        choice = self.completions.chosen or self.completions.first
        if choice is None:
            raise SkipAction()  # then Tab is the screen's: it moves to the answers
        self._take(choice)

    def action_up(self) -> None:
        if self.completions.move(-1):
            return
        if not self.navigator.is_first_wrapped_line(self.cursor_location):
            self.action_cursor_up()
        elif self.waiting and not self.text:
            self.post_message(self.TakeBack())
        elif (text := self.past.previous(self.text)) is not None:
            self.replace_text(text)

    def action_down(self) -> None:
        if self.completions.move(1):
            return
        if not self.navigator.is_last_wrapped_line(self.cursor_location):
            self.action_cursor_down()
        elif (text := self.past.next()) is not None:
            self.replace_text(text)

    async def _on_key(self, event: events.Key) -> None:
        # TextArea inserts a newline on Enter before any binding sees the key.
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_submit()
        elif event.key == "escape" and self.completions.display:
            event.stop()
            event.prevent_default()
            self.completions.offer([], "")
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        # Terminals send a pasted newline as CR; other control characters have no place in a text.
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = "".join(
            char for char in text if char.isprintable() or char in _KEPT_CONTROLS or ord(char) > 159
        )
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)
            self.focus()

    def _take(self, choice: Choice) -> None:
        self.replace_text(choice.line)
        if not choice.final:
            self.offer()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.text == self._settled:
            return
        self._settled = self.text
        self.offer()
        self.post_message(self.Edited(self.text))

    def offer(self) -> None:
        """Show what could be typed next."""
        choices, hint = self._complete(self.text)
        self.completions.offer(choices, hint)
