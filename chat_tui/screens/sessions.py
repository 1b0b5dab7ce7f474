"""Ctrl+O: the saved sessions, found by words and looked into before one is opened.

`app.push_screen(SessionsScreen(store, current, deleted), callback)` calls back with the number of
the session to open, or None. What is deleted here is added to `deleted`: it can come back until the
program ends. A name that was changed here is told by message: `Renamed`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from chat_tui.keys import SESSIONS, Keys
from chat_tui.rendering.sanitise import sanitise
from chat_tui.store import Store, StoreError, Summary

_LATER = 0.12
"""Seconds without a key after which the search runs."""


class SessionsScreen(ModalScreen[int | None]):
    """A search, the list of what it found, and a preview."""

    @dataclass
    class Renamed(Message):
        """A session has another name."""

        number: int
        title: str

    BINDINGS: ClassVar[list[BindingType]] = [*SESSIONS]

    DEFAULT_CSS = """
    SessionsScreen {
        align: center middle;
        & > Vertical {
            width: 120; max-width: 96%; height: 90%; padding: 0 1;
            border: round $primary; border-title-color: $text-primary;
            border-subtitle-color: $foreground 60%; background: $surface;
        }
        & Input {
            border: none; height: 1; padding: 0 1; background: $surface;
            &:focus { border: none; background-tint: $surface 0%; }
        }
        & #search { margin: 0 0 1 0; }
        & #name { display: none; }
        &.-naming #name { display: block; }
        &.-naming #ask { display: none; }
        & Horizontal { height: 1fr; }
        & OptionList {
            width: 1fr; height: 100%; border: none; padding: 0; background: $surface;
            scrollbar-size: 1 1; text-wrap: nowrap; text-overflow: ellipsis;
            &:focus { border: none; background-tint: $surface 0%; }
            & > .option-list--option-highlighted { background: $foreground 10%; text-style: none; }
            &:focus > .option-list--option-highlighted { background: $primary 30%; }
        }
        & VerticalScroll {
            width: 1fr; height: 100%; padding: 0 0 0 2; background: $surface; scrollbar-size: 1 1;
        }
        & #ask { height: auto; color: $text-warning; }
    }
    """

    def __init__(self, store: Store, current: int | None, deleted: list[int]) -> None:
        super().__init__()
        self._current = current
        self._store, self._deleted = store, deleted
        self._found: list[Summary] = []
        self._asked: int | None = None
        self._named: Summary | None = None  # what is being renamed

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Sessions"
            yield Input(placeholder="search in titles, messages and answers", id="search")
            with Horizontal():
                yield OptionList()
                with VerticalScroll(can_focus=False):
                    yield Static(id="preview", markup=False)
            yield Static(id="ask", markup=False)
            yield Input(placeholder="any name", id="name")

    def _hint(self) -> str:
        key = self._key
        if self.naming.has_focus:
            return f"Enter gives it this name · {key('close')} leaves it as it was"
        if self.list.has_focus:
            return (
                f"Enter opens · {key('rename')} renames · {key('delete')} deletes · "
                f"{key('undelete')} brings back · {key('close')} closes"
            )
        return f"Enter opens · {key('list')} to the list · {key('close')} closes"

    def _key(self, action: str) -> str:
        return Keys.of(self.app).first(f"sessions.{action}")

    def on_mount(self) -> None:
        self.search, self.list = self.query_one("#search", Input), self.query_one(OptionList)
        self.naming = self.query_one("#name", Input)
        self._timer = self.set_timer(_LATER, self._fill, pause=True)
        self.search.focus()
        self._fill()

    # Looking.

    def on_descendant_focus(self) -> None:
        self.query_one(Vertical).border_subtitle = self._hint()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self.search:
            self._timer.stop()
            self._timer = self.set_timer(_LATER, self._fill)

    def _fill(self) -> None:
        words = self.search.value.strip()
        trouble = ""
        try:
            self._found = self._store.search(words) if words else self._store.sessions()
        except StoreError as error:
            self._found, trouble = [], str(error)
        self.list.clear_options()
        self.list.add_options(
            Option(self._line(summary), id=str(summary.id)) for summary in self._found
        )
        self._ask(None)
        self._say(trouble)
        if self._found:
            self.list.highlighted = 0
        self._preview()

    def _line(self, summary: Summary) -> Content:
        when = time.strftime("%d %b %H:%M", time.localtime(summary.updated))
        title = " ".join(sanitise(summary.title).split())
        mark = "● " if summary.id == self._current else "  "
        line = Content.assemble((mark, "$success"), (title, "$foreground"))
        turns = f"{summary.turns} turn{'s' * (summary.turns != 1)}"
        under = f"\n  {when} · {turns} · {sanitise(', '.join(summary.models))}"
        return line + Content.styled(under, "$foreground 50%")

    def on_option_list_option_highlighted(self) -> None:
        self._ask(None)
        self._preview()

    def _preview(self) -> None:
        summary = self._chosen()
        lines: list[Content] = []
        if summary is not None:
            if summary.found and summary.found != summary.title:
                found = " ".join(sanitise(summary.found).split())
                lines += [Content.styled(found, "$text-warning"), Content("")]
            try:
                shown = self._store.preview(summary.id)
            except StoreError as error:
                shown = []
                self._say(str(error))
            for user, answer, answers in shown:
                lines.append(Content.styled(f"▌ {sanitise(user)}", "bold $foreground"))
                if answer is None:
                    many = f"{answers} answer{'s' * (answers != 1)}"
                    lines.append(Content.styled(f"{many}, none picked", "$foreground 50%"))
                else:
                    lines.append(Content.styled(sanitise(answer), "$foreground 80%"))
                lines.append(Content(""))
        elif self.search.value.strip():
            lines = [Content.styled("Nothing was found.", "$foreground 60%")]
        else:
            lines = [Content.styled("No conversation has been saved yet.", "$foreground 60%")]
        self.query_one("#preview", Static).update(Content("\n").join(lines))

    def _chosen(self) -> Summary | None:
        place = self.list.highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    # Acting.

    def action_list(self) -> None:
        self.list.focus()

    def action_search(self) -> None:
        self.search.focus()

    def action_close(self) -> None:
        if self._named is None:
            self.dismiss(None)
        else:
            self._end_naming()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self.naming:
            self._rename(" ".join(event.value.split()))
            return
        self._timer.stop()
        self._fill()
        self._open()

    def on_option_list_option_selected(self) -> None:
        self._open()

    def _open(self) -> None:
        summary = self._chosen()
        if summary is not None:
            self.dismiss(summary.id)

    def action_rename(self) -> None:
        self._named = self._chosen()
        if self._named is not None:
            self.add_class("-naming")
            self.naming.value = self._named.title
            self.naming.focus()

    def _end_naming(self) -> None:
        self._named = None
        self.remove_class("-naming")
        self.list.focus()

    def _rename(self, title: str) -> None:
        summary = self._named
        self._end_naming()
        if (
            summary is not None
            and title
            and self._change(lambda: self._store.rename(summary.id, title))
        ):
            self.post_message(self.Renamed(summary.id, title))

    def action_delete(self) -> None:
        summary = self._chosen()
        if summary is None:
            return
        if summary.id == self._current:
            self._say("This is the session that is open; /new begins another one first.")
        elif self._asked != summary.id:
            self._ask(summary.id)
        else:
            if self._change(lambda: self._store.delete(summary.id)):
                self._deleted.append(summary.id)
                back = self._key("undelete")
                self._say(f"Deleted; {back} brings it back until the program ends.")

    def action_undelete(self) -> None:
        if not self._deleted:
            self._say("Nothing was deleted since the program was started.")
            return
        number = self._deleted.pop()
        self._change(lambda: self._store.undelete(number))

    def _change(self, change: Callable[[], None]) -> bool:
        try:
            change()
        except StoreError as error:
            self._say(str(error))
            return False
        place = self.list.highlighted or 0
        self._fill()
        if self._found:
            self.list.highlighted = min(place, len(self._found) - 1)
        return True

    def _ask(self, number: int | None) -> None:
        self._asked = number
        again = f"{self._key('delete')} again deletes it."
        self._say("" if number is None else f"Delete session {number}? {again}")

    def _say(self, text: str) -> None:
        self.query_one("#ask", Static).update(Content(sanitise(text)))
