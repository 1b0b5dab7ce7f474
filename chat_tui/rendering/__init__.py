"""Model text to lines of terminal cells.

`Flow` holds one growing text and gives `Line`s for a width; `Palette` says how things look in a
theme; `sanitise` keeps control out of the terminal. Nothing here knows a widget:
`chat_tui/widgets` draws the lines.
"""

from importlib import import_module

from chat_tui.rendering.flow import Flow
from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import sanitise

__all__ = ["Flow", "Palette", "sanitise", "warm_up"]


def warm_up() -> None:
    """Import the Markdown parser and the lexers, which the first answer needs and the first frame
    does not. May run on any thread."""
    import_module("chat_tui.rendering.markdown")
