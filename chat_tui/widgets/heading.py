"""One line at the edge of a screen: what it shows, or what its keys do."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from textual.content import Content
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget

from chat_tui.keys import Hint
from chat_tui.rendering import Palette


class Heading(Widget):
    """Draws `content`; nothing else."""

    DEFAULT_CSS = """
    Heading { height: 1; padding: 0 1; background: $background; color: $foreground; }
    """

    content: reactive[Text | Content] = reactive(Text())

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.auto_links = False  # they would be coloured as links are

    def render(self) -> Text | Content:
        return self.content


def key_line(hints: Iterable[Hint], width: int, palette: Palette) -> Content:
    """Keys and what they do; of those that do not all fit, the first, and the last: the way out. A
    click is as good as the key."""
    items = [_item(hint, palette) for hint in hints]
    shown = items[-1:]
    room = width - sum(item.cell_length for item in shown)
    for item in items[:-1]:
        if item.cell_length + 3 <= room:
            shown.insert(-1, item)
            room -= item.cell_length + 3
    return Content("   ").join(shown)


def _item(hint: Hint, palette: Palette) -> Content:
    text = Text.assemble((hint.keys, palette.text), (f" {hint.does}", palette.muted))
    item = Content.from_rich_text(text)
    click = Style.from_meta({"@click": f"app.simulate_key({hint.key!r})"})
    return item.stylize(click) if hint.key else item
