"""Model text to lines of terminal cells.

`Flow` holds one growing text and gives `Line`s for a width; `Palette` says how things look in a
theme; `sanitise` keeps control out of the terminal. Nothing here knows a widget:
`chat_tui/widgets` draws the lines.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from chat_tui.rendering.sanitise import sanitise

if TYPE_CHECKING:
    from chat_tui.rendering.flow import Flow as Flow
    from chat_tui.rendering.palette import Palette as Palette

__all__ = ["Flow", "Palette", "sanitise", "warm_up"]

_ELSEWHERE = {"Flow": "chat_tui.rendering.flow", "Palette": "chat_tui.rendering.palette"}


def __getattr__(name: str) -> object:
    """What draws needs the screen's libraries; what only prints a clean line does without them."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE[name]), name)


def warm_up() -> None:
    """Import the Markdown parser and the lexers, which the first answer needs and the first frame
    does not. May run on any thread."""
    import_module("chat_tui.rendering.markdown")
