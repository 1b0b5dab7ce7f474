"""The box at the bottom: what is typed, pasted, recalled and completed.

`Prompt` grows with its text up to eight lines. On Enter it posts `Prompt.Submitted` and is empty;
what cannot be taken comes back with `give_back()`. Newlines are Shift+Enter where the terminal can
tell it from Enter, and Ctrl+J or Alt+Enter everywhere. The list above it (`Completions`) offers
slash commands while one is being typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from chat_tui.commands import Choice
from chat_tui.history import PromptHistory
from chat_tui.keys import PROMPT, Keys
from chat_tui.widgets.completions import Completions
from chat_tui.widgets.text_box import TextBox


class Prompt(TextBox):
    """A multi-line input that sends on Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [*PROMPT]

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
        &:focus { border: round $primary; }
    }
    """

    @dataclass
    class Submitted(Message):
        """Enter was pressed on this text; `shown` is what the box showed of it."""

        text: str
        shown: str

    @dataclass
    class Told(Message):
        """A line that answers a key."""

        line: str

    @dataclass
    class Edited(Message):
        """The text changed; `by_hand`: the user changed it."""

        by_hand: bool

    @dataclass
    class Page(Message):
        """What is above the box is to be scrolled by a page."""

        step: int

    class TakeBack(Message):
        """Up was pressed in an empty box: a message that still waits could come back."""

    def __init__(
        self,
        completions: Completions,
        past: PromptHistory,
        complete: Callable[[str, int], tuple[Sequence[Choice], str]],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.completions = completions
        self.past = past
        self.waiting = False
        self._complete = complete
        self._offered = ""
        self._state: tuple[str, Sequence[str]] = ("", ("",))
        self._shown: tuple[str, str, int] = ("", "", 0)

    @cached_property
    def _bound(self) -> Mapping[str, Sequence[Binding]]:
        return Keys.of(self.app).bound(TextArea.BINDINGS, PROMPT)

    def replace_text(self, text: str) -> None:
        super().replace_text(text)
        self.close_list()

    def give_back(self, text: str) -> None:
        """Text that could not be asked returns, in front of what is in the box."""
        self.replace_text(f"{text}\n\n{self.whole}" if self.text.strip() else text)

    def tell_state(self, title: str, segments: Sequence[str]) -> None:
        """Say in the frame how answers are sampled, and as many of the key hints as fit."""
        self._state = (title, segments)
        room = self.outer_size.width - 6
        hint = segments[0]
        for segment in segments[1:]:
            if len(hint) + 3 + len(segment) <= room:
                hint = f"{hint} · {segment}"
        if (title, hint, room) != self._shown:  # setting a title draws the box anew
            self._shown = (title, hint, room)
            self.border_title = Content(title).truncate(room, ellipsis=True)
            self.border_subtitle = Content(hint).truncate(room, ellipsis=True)

    def on_resize(self) -> None:
        self.tell_state(*self._state)

    def offer(self) -> None:
        """Show what could be typed next."""
        self._offered = self.text
        self.completions.offer(*self._complete(self.text, self.cursor_index))

    def close_list(self) -> None:
        """Offer nothing until the text changes."""
        self._offered = self.text
        self.completions.offer([], "")

    # Keys.

    def action_submit(self) -> None:
        self._offer_if_changed()
        choice = self.completions.chosen
        if choice is not None and choice.line.rstrip() != self.text.strip():
            self._take(choice)
            if not choice.final:
                return
        text, shown = self.whole, self.text
        if text.strip():
            # Emptied here and not by whoever takes it: more may have been typed by then.
            self.replace_text("")
            self.post_message(self.Submitted(text, shown))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_reveal(self) -> None:
        if why := self.reveal():
            self.post_message(self.Told(why))

    async def caught_up(self) -> None:
        """Wait until every key that was pressed on this box is in its text."""
        done = asyncio.Event()
        if self.call_later(done.set):
            await done.wait()

    def take_first(self) -> bool:
        """Take the chosen completion, or the first. False where nothing is offered."""
        self._offer_if_changed()
        choice = self.completions.chosen or self.completions.first
        if choice is not None:
            self._take(choice)
        return choice is not None

    def action_close_list(self) -> None:
        if not self.completions.display:
            raise SkipAction()  # then Esc is the screen's: it stops the answers
        self.close_list()

    def action_page(self, step: int) -> None:
        self.post_message(self.Page(step))

    def action_up(self) -> None:
        self._offer_if_changed()
        if self.completions.move(-1):
            return
        if not self.navigator.is_first_wrapped_line(self.cursor_location):
            self.action_cursor_up()
        elif self.waiting and not self.text:
            self.post_message(self.TakeBack())
        elif (text := self.past.previous(self.whole)) is not None:
            self.replace_text(text)

    def action_down(self) -> None:
        self._offer_if_changed()
        if self.completions.move(1):
            return
        if not self.navigator.is_last_wrapped_line(self.cursor_location):
            self.action_cursor_down()
        elif (text := self.past.next(self.whole)) is not None:
            self.replace_text(text)

    async def _on_key(self, event: events.Key) -> None:
        # Textual runs bindings when the key has come back to the App. By then this box has taken
        # whatever was typed behind it: a newline would land in the wrong place. So they run here.
        for binding in self._bound.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)

    def _take(self, choice: Choice) -> None:
        if choice.span is None:
            self.replace_text(choice.line)
        else:
            start, end = map(self.location_of, choice.span)
            result = self.replace(choice.line, start, end, maintain_selection_offset=False)
            self.move_cursor(result.end_location)
        if not choice.final:
            self.offer()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.post_message(self.Edited(self._offer_if_changed()))

    def _offer_if_changed(self) -> bool:
        """Keys may come faster than the news that the text changed."""
        if self._offered == self.text:
            return False
        self.offer()
        return True
