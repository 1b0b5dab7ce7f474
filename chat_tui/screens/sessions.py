"""Ctrl+O: the saved sessions, found by words and looked into before one is opened.

`app.push_screen(SessionsScreen(store, current, deleted), callback)` calls back with the number of
the session to open, or None. What is deleted here is added to `deleted`: it can come back until the
program ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
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

    BINDINGS: ClassVar[list[BindingType]] = [*SESSIONS]

    DEFAULT_CSS = """
    SessionsScreen {
        align: center middle;
        & > Vertical {
            width: 120; max-width: 96%; height: 90%; padding: 0 1;
            border: round $primary; border-title-color: $text-primary;
            border-subtitle-color: $foreground 60%; background: $surface;
        }
        & Input { border: none; height: 1; padding: 0 1; background: $surface; margin: 0 0 1 0; }
        & Horizontal { height: 1fr; }
        & OptionList {
            width: 1fr; height: 100%; border: none; padding: 0; background: $surface;
            scrollbar-size: 1 1;
        }
        & OptionList:focus { border: none; background-tint: $surface 0%; }
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

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Sessions"
            box.border_subtitle = self._hint()
            yield Input(placeholder="search in titles, messages and answers")
            with Horizontal():
                yield OptionList()
                with VerticalScroll(can_focus=False):
                    yield Static(id="preview", markup=False)
            yield Static(id="ask", markup=False)

    def _hint(self) -> str:
        return (
            f"Enter opens · {self._key('list')} to the list, there {self._key('delete')} deletes, "
            f"{self._key('undelete')} brings back · {self._key('close')} closes"
        )

    def _key(self, action: str) -> str:
        return Keys.of(self.app).first(f"sessions.{action}")

    def on_mount(self) -> None:
        self.search, self.list = self.query_one(Input), self.query_one(OptionList)
        self._timer = self.set_timer(_LATER, self._fill, pause=True)
        self.search.focus()
        self._fill()

    # Looking.

    def on_input_changed(self) -> None:
        self._timer.stop()
        self._timer = self.set_timer(_LATER, self._fill)

    def _fill(self) -> None:
        words = self.search.value.strip()
        self._found = self._store.search(words) if words else self._store.sessions()
        self.list.clear_options()
        self.list.add_options(
            Option(self._line(summary), id=str(summary.id)) for summary in self._found
        )
        self._ask(None)
        if self._found:
            self.list.highlighted = 0
        self._preview()

    def _line(self, summary: Summary) -> Content:
        when = time.strftime("%d %b %H:%M", time.localtime(summary.updated))
        title = " ".join(sanitise(summary.title).split())
        mark = "● " if summary.id == self._current else "  "
        line = Content.assemble((mark, "$success"), (title, "$foreground"))
        under = f"\n    {when} · {summary.turns} turns · {sanitise(', '.join(summary.models))}"
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
            for user, answer in self._store.preview(summary.id):
                lines.append(Content.styled(f"▌ {sanitise(user)}", "bold $foreground"))
                lines += [Content.styled(sanitise(answer), "$foreground 80%"), Content("")]
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

    def on_input_submitted(self) -> None:
        self._timer.stop()
        self._fill()
        self._open()

    def on_option_list_option_selected(self) -> None:
        self._open()

    def _open(self) -> None:
        summary = self._chosen()
        if summary is not None:
            self.dismiss(summary.id)

    def action_delete(self) -> None:
        summary = self._chosen()
        if summary is None:
            return
        if summary.id == self._current:
            self._say("This is the session that is open; /new begins another one first.")
        elif self._asked != summary.id:
            self._ask(summary.id)
        else:
            self._change(lambda: self._store.delete(summary.id))
            self._deleted.append(summary.id)
            self._say(f"Deleted; {self._key('undelete')} brings it back until the program ends.")

    def action_undelete(self) -> None:
        if not self._deleted:
            self._say("Nothing was deleted since the program was started.")
            return
        number = self._deleted.pop()
        self._change(lambda: self._store.undelete(number))

    def _change(self, change: Callable[[], None]) -> None:
        try:
            change()
        except StoreError as error:
            self._say(str(error))
            return
        place = self.list.highlighted or 0
        self._fill()
        if self._found:
            self.list.highlighted = min(place, len(self._found) - 1)

    def _ask(self, number: int | None) -> None:
        self._asked = number
        again = f"{self._key('delete')} again deletes it."
        self._say("" if number is None else f"Delete session {number}? {again}")

    def _say(self, text: str) -> None:
        self.query_one("#ask", Static).update(Content(sanitise(text)))
