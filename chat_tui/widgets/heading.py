"""One line at the edge of a screen: what it shows, or what its keys do."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from chat_tui.rendering import Palette


class Heading(Widget):
    """Draws `content`; nothing else."""

    DEFAULT_CSS = """
    Heading { height: 1; padding: 0 1; background: $background; color: $foreground; }
    """

    content: reactive[Text] = reactive(Text())

    def render(self) -> Text:
        return self.content


def key_line(keys: Iterable[tuple[str, str]], width: int, palette: Palette) -> Text:
    """Keys and what they do; of those that do not all fit, the first, and the last: the way out."""
    items = [Text.assemble((key, palette.text), (f" {does}", palette.muted)) for key, does in keys]
    shown = items[-1:]
    room = width - sum(item.cell_len for item in shown)
    for item in items[:-1]:
        if item.cell_len + 3 <= room:
            shown.insert(-1, item)
            room -= item.cell_len + 3
    return Text("   ").join(shown)
