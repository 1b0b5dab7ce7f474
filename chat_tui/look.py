"""How the screen looks: its theme, which characters draw it, and whether anything moves.

`Look` is what the command line says of it, and a `LookedApp` looks like that. What is told by
colour is told otherwise as well: where there are few colours or none (`NO_COLOR`), the theme is
`TERMINAL`, and palette and style sheets say it with bold, underline and reverse.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.constants import COLOR_SYSTEM
from textual.events import DescendantFocus
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Input

from chat_tui.ascii import in_ascii
from chat_tui.config import ConfigError, nearest
from chat_tui.keys import Keys
from chat_tui.memory import Memory
from chat_tui.screens.once import PaintedOnce
from chat_tui.theme import DARK, TERMINAL


class Look(NamedTuple):
    """
    Attributes:
        theme: by name; empty is the one that was chosen last, or the program's own.
        theme_from: where the name is from, as it is to be told.
        ascii: nothing is drawn in other characters.
        still: nothing moves by itself.
        few_colors: the terminal has sixteen, or none.
    """

    theme: str = ""
    theme_from: str = "--theme"
    ascii: bool = False
    still: bool = False
    few_colors: bool = False


PLAIN = Look()
OWN = {theme.name: theme for theme in (DARK, TERMINAL)}


def themes() -> list[str]:
    return [*OWN, *sorted(BUILTIN_THEMES)]


def check_theme(look: Look) -> None:
    """
    Raises:
        ConfigError: there is no theme of this name.
    """
    if look.theme and look.theme not in themes():
        near = nearest(look.theme, themes())
        raise ConfigError(
            f"{look.theme_from}: there is no theme {look.theme}{near} chat-tui config themes lists "
            "them."
        )


def settled(look: Look) -> Look:
    """As it can be in this terminal.

    Raises:
        ConfigError: there is no theme of this name.
    """
    check_theme(look)
    console = Console(color_system=COLOR_SYSTEM, force_terminal=True)  # type: ignore[arg-type]
    return look._replace(few_colors=console.color_system in (None, "standard"))


class Ascii(LineFilter):
    """Draws in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(in_ascii(text), style, control) for text, style, control in segments]


class LookedApp(App[None]):
    """An app with that look and with the user's keys."""

    def __init__(self, look: Look, keys: Keys, memory: Memory) -> None:
        super().__init__()
        self.keys = keys._replace(ascii=look.ascii)
        self.set_keymap(keys.changed)
        self.memory = memory
        self._look = look
        # The standard (https://no-color.org) takes an empty variable for none; Textual does not.
        self.no_color = bool(os.environ.get("NO_COLOR"))
        self._drawn_in = [Ascii()] if look.ascii else []
        self._colorless = [NoColor()] if self.no_color else []
        for theme in OWN.values():
            self.register_theme(theme)
        self.theme = self._first_theme()
        if look.still:
            self.animation_level = "none"

    def _first_theme(self) -> str:
        if self.no_color:
            return TERMINAL.name
        if self._look.theme:
            return self._look.theme
        if self._look.few_colors:
            return TERMINAL.name
        kept = self.memory.get("theme")
        return kept if isinstance(kept, str) and kept in self.available_themes else DARK.name

    def get_default_screen(self) -> Screen[None]:
        return PaintedOnce(id="_default")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What all that is drawn goes through at last."""
        return [*(self._colorless or super().get_line_filters()), *self._drawn_in]

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._keep_theme)

    def _keep_theme(self, chosen: Theme) -> None:
        self.memory.put("theme", chosen.name)
        look = self._look
        if look.theme not in ("", chosen.name):
            told = f"{look.theme_from} says {look.theme}, and will again at the next start."
            self.notify(told, markup=False)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if isinstance(event.widget, Input):
            event.widget.cursor_blink = False
