"""The program's own colours: quiet greys, and one soft blue for what has the focus.

Every other Textual theme works as well (Ctrl+P, "Theme"): widgets name roles, never colours.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="chat-tui",
    primary="#7aa2f7",
    secondary="#9d8cf0",
    accent="#c4a7e7",
    success="#8fc28a",
    warning="#e0b06c",
    error="#e67e80",
    foreground="#d8dbe2",
    background="#14161a",
    surface="#1a1d23",
    panel="#22262e",
    dark=True,
    variables={
        "block-cursor-blurred-text-style": "none",
        "scrollbar": "#2c313b",
        "scrollbar-hover": "#3b4250",
        "scrollbar-active": "#4a5364",
        "scrollbar-background": "#14161a",
        "scrollbar-background-hover": "#14161a",
        "scrollbar-background-active": "#14161a",
        "scrollbar-corner-color": "#14161a",
    },
)
