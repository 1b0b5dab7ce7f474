"""F1: every key and every command, read from the bindings and the command table themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.screen import ModalScreen
from textual.widgets import Static

from chat_tui.commands import COMMANDS

Section = tuple[str, Sequence[tuple[str, str]]]

WIDTH = 78

_NAMES = {
    "enter": "Enter",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
}


def key_name(key: str) -> str:
    """A key as it is printed on the keyboard: `ctrl+j` is Ctrl+J."""
    *modifiers, last = key.split("+")
    shown = _NAMES.get(last) or (format_key(last).capitalize() if len(last) > 1 else last)
    if modifiers:
        shown = shown[0].upper() + shown[1:]
    return "+".join([*(modifier.capitalize() for modifier in modifiers), shown])


def rows_of(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """Keys and what they do; the nine bindings of a numbered key become one row."""
    rows: list[tuple[str, str]] = []
    for binding in bindings:
        if not isinstance(binding, Binding) or not binding.description:
            continue
        keys = [key_name(key) for key in binding.key.split(",")]
        if keys[0].endswith(tuple("23456789")) and rows and not keys[0].startswith("F"):
            continue
        name = ", ".join(keys)
        if name.endswith("1") and not name.startswith("F"):
            rows.append((name + "…9", binding.description.replace(" 1", " 1 to 9")))
        else:
            rows.append((name, binding.description))
    return rows


def command_rows() -> list[tuple[str, str]]:
    return [(command.usage, command.summary) for command in COMMANDS] + [
        ("//…", "a message that begins with a slash")
    ]


class HelpScreen(ModalScreen[None]):
    """Sections of two columns, scrolled with the usual keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "Close"),
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

    def action_scroll(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)
