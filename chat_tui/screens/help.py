"""F1: every key and every command, read from the bindings and the command table themselves."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from chat_tui.commands import COMMANDS
from chat_tui.keys import Section

WIDTH = 78


def command_rows() -> list[tuple[str, str]]:
    return [(command.usage, command.summary) for command in COMMANDS] + [
        ("//…", "a message that begins with a slash")
    ]


class HelpScreen(ModalScreen[None]):
    """Sections of two columns, scrolled with the usual keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("f1", "dismiss", "Close", id="chat.help"),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
    ]

    DEFAULT_CSS = """
    HelpScreen {
        align: center middle;
        & > VerticalScroll {
            width: 78; max-width: 96%; height: auto; max-height: 92%; padding: 1 2;
            border: round $primary; border-title-color: $text-primary;
            border-subtitle-color: $foreground 60%;
            background: $surface; scrollbar-size: 1 1;
        }
    }
    """

    def __init__(self, sections: Sequence[Section]) -> None:
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys and commands"
            box.border_subtitle = "Esc closes"
            yield Static(self.content(), markup=False)

    def content(self) -> Content:
        wide = max(len(keys) for _, rows in self._sections for keys, _ in rows)
        room = min(WIDTH, self.app.size.width * 96 // 100) - 8
        lines: list[Content] = []
        for title, rows in self._sections:
            lines += [Content("")] if lines else []
            lines.append(Content.styled(title, "bold $primary"))
            for keys, what in rows:
                if wide + 26 <= room:
                    keys, lead = f"{keys:<{wide}}  ", wide + 2
                else:
                    # Too narrow for two columns: what a key does stands under it.
                    lines.append(Content.styled(keys, "$foreground"))
                    keys, lead = "  ", 2
                for line in wrap(what, max(room - lead, 10)):
                    lines.append(Content.assemble((keys, "$foreground"), (line, "$foreground 60%")))
                    keys = " " * lead
        return Content("\n").join(lines)

    def on_click(self, event: Click) -> None:
        """Beside the box: close it."""
        if not self.query_one(VerticalScroll).region.contains_point(event.screen_offset):
            self.dismiss()

    def action_scroll(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)
