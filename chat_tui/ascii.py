"""Screens without Unicode's line drawing: one table of what stands for what.

`in_ascii(text)` replaces what is drawn (borders, bars, marks, arrows, typographic signs) by ASCII
of the same width; letters stay as they are. `speaks_utf8(environ)` says whether that is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

_ONE_FOR_ONE = {
    # Frames: light ones in one way, heavy and double ones in another.
    "─╌╍┄┅┈┉╴╶╸╺╼╾": "-",
    "│╎╏┆┇┊┋╵╷╹╻": "|",
    "┌┐└┘├┤┬┴┼╭╮╰╯": "+",
    "━═": "=",
    "┃║┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬": "#",
    # Bars and sparklines.
    "█▓▀▄▖▗▘▙▚▛▜▝▞▟▋▊▉": "#",
    "▒░": ":",
    "▌▍▎▏▐▕": "|",
    "▔": "-",
    "▁": "_",
    "▂": ".",
    "▃": "-",
    "▅": "+",
    "▆": "*",
    "▇": "%",
    # Marks.
    "●•◆▪": "*",
    "○◦◇◌": "o",
    "■": "#",
    "✓✔": "v",
    "✗✘×": "x",
    "▸▶→⇒›": ">",
    "◂◀←‹": "<",
    "↑▴▲": "^",
    "↓▾▼": "v",
    "↵": "$",
    "⍽": "_",
    "·‥": ".",
    "…": "~",
    "⟨≤": "<",
    "⟩≥": ">",
    "–—−‐‑": "-",
    "‘’′": "'",
    "“”„″": '"',
    "\xa0": " ",
    "".join(map(chr, range(0x2400, 0x2422))): "^",  # what stands for a control character
    "🔎": "? ",
}

TABLE = str.maketrans({sign: plain for signs, plain in _ONE_FOR_ONE.items() for sign in signs})


def in_ascii(text: str) -> str:
    """`text`, as wide as it was, with nothing in it that is drawn."""
    return text if text.isascii() else text.translate(TABLE)


def speaks_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the terminal's locale is one of UTF-8; one that says nothing is taken for it."""
    names = ["LC_ALL", "LC_CTYPE", "LANG"]
    if sys.flags.utf8_mode and environ.get("LC_CTYPE") == "C.UTF-8":
        # Python itself says so where the locale is C (PEP 538).
        names.remove("LC_CTYPE")
    locale = next((value for name in names if (value := environ.get(name))), "")
    return not locale or "utf" in locale.lower()
