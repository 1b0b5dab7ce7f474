"""Ctrl+P: every action of the screen that is seen, with its key, found by a few letters of it.

In the chat these are the slash commands and what the keys do; a command that takes an argument is
put into the prompt, ready for it. What only moves about is left to the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode

from chat_tui.commands import COMMANDS
from chat_tui.keys import BINDINGS, PLACES, RATING, Keys, number_of

if TYPE_CHECKING:
    from chat_tui.app import ChatApp

_ANYWHERE = ("chat.help", "chat.quit")
"""What can be done on other screens than the chat as well."""


class Entry(NamedTuple):
    """A line of the palette."""

    title: str
    what: str
    key: str
    run: Callable[[], object]

    def shown(self, title: Content) -> Content:
        return Content.assemble(title, "  ", (self.key, "$text-accent")) if self.key else title


class PaletteCommands(Provider):
    """What the palette offers."""

    def entries(self) -> Iterator[Entry]:
        app: ChatApp = self.app  # type: ignore[assignment]
        chat = self.screen is app.main
        told: set[str | None] = {"chat.palette"}
        for command in COMMANDS if chat else ():
            key = self._key(command.key) if command.key else ""
            yield Entry(command.usage, command.summary, key, partial(app.obeying.start, command))
            told.add(command.key)
        nodes = app.nodes(self.screen)
        answers = app.chat.turn.samples if app.chat.turn is not None else 0
        for place in PLACES:
            for binding in place.bindings if place.node in nodes else ():
                there = number_of(binding) <= answers
                if there and binding.show and binding.id not in told:
                    yield self._entry(binding, nodes[place.node])
                told.add(binding.id)
        for action in _ANYWHERE if not chat else ():
            yield self._entry(BINDINGS[action], app)
        yield from self._always()

    def _always(self) -> Iterator[Entry]:
        if not self.app.no_color:
            yield Entry("Theme", "choose the colours", "", self.app.action_change_theme)
        yield Entry("Screenshot", "save the screen as SVG", "", self.app.action_screenshot)

    def _entry(self, binding: Binding, node: DOMNode) -> Entry:
        run = partial(self.app.run_action, binding.action, node)
        return Entry(binding.description, "", self._key(binding.id or ""), run)

    def _key(self, action: str) -> str:
        key = Keys.of(self.app).first(action)
        # In the prompt it would be typed.
        return f"{key} in the answers" if action.startswith("answers.") else key

    async def discover(self) -> Hits:
        for entry in self.entries():
            title = entry.shown(Content(entry.title))
            yield DiscoveryHit(title, entry.run, text=entry.title, help=entry.what or None)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for entry in self.entries():
            score = matcher.match(f"{entry.title} {entry.what} {entry.key}")
            if score > 0:
                title = entry.shown(matcher.highlight(entry.title))
                yield Hit(score, title, entry.run, text=entry.title, help=entry.what or None)


class RatingCommands(PaletteCommands):
    """What can be said while rating."""

    def entries(self) -> Iterator[Entry]:
        for binding in RATING:
            if not number_of(binding):
                yield self._entry(binding, self.app)
        yield from self._always()
