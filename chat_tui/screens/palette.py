"""Ctrl+P: the slash commands and the App's own keys, found by a few letters of what they do.

A command that takes an argument is put into the prompt, ready for it; everything else runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from chat_tui.commands import COMMANDS

if TYPE_CHECKING:
    from chat_tui.app import ChatApp

_ELSEWHERE = ("command_palette", "help", "quit", "tab(1)")
"""Actions that are left out: the palette itself, what a slash command does as well, and Tab."""


class PaletteCommands(Provider):
    """What the palette offers."""

    def _entries(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        app: ChatApp = self.app  # type: ignore[assignment]
        for command in COMMANDS:
            yield command.usage, command.summary, partial(app.start_command, command)
        for binding in app.BINDINGS:
            if (
                isinstance(binding, Binding)
                and binding.description
                and binding.action not in _ELSEWHERE
                and not binding.action.startswith("pick")
            ):
                action = partial(app.run_action, binding.action)
                yield binding.description, "", action
        for index in range(app.chat.turn.samples if app.chat.turn is not None else 0):
            yield f"Pick answer {index + 1}", "", partial(app.action_pick, index)
        yield "Theme", "choose the colours", app.action_change_theme
        yield "Screenshot", "save the screen as SVG", app.action_screenshot

    async def discover(self) -> Hits:
        for title, what, run in self._entries():
            yield DiscoveryHit(title, run, help=what or None)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, what, run in self._entries():
            score = matcher.match(f"{title} {what}")
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, text=title, help=what or None)
