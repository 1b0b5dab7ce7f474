"""The program's own colours: quiet greys, and one soft blue for what has the focus.

Every other Textual theme works as well (`--theme`, or the palette): widgets name roles, never
colours. `TERMINAL` has the terminal's own sixteen, on its own ground, dark or light.
"""

from __future__ import annotations

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

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

_SIXTEEN = BUILTIN_THEMES["ansi-dark"]
TERMINAL = replace(
    _SIXTEEN,
    name="terminal",
    primary="ansi_bright_blue",
    accent="ansi_magenta",
    variables={
        **_SIXTEEN.variables,
        "block-cursor-blurred-foreground": "ansi_black",
        "block-cursor-blurred-background": "ansi_white",
        # Reversed: on a light ground as good as on a dark one, and without colours too.
        "input-cursor-foreground": "ansi_default",
        "input-cursor-background": "ansi_default",
        "input-cursor-text-style": "reverse",
        "border": "ansi_bright_blue",
        "border-blurred": "ansi_default",
        "scrollbar": "ansi_default",
        "scrollbar-hover": "ansi_default",
        "scrollbar-active": "ansi_bright_blue",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
    },
)
