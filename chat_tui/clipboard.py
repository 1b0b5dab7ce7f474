"""Where copied text goes: the system's clipboard, the terminal's, a file.

    places = to_programs(text)                      # ["the clipboard (xclip)"]; may take a while
    for sequence in to_terminal(text): ...          # what asks the terminal to take it, if it can
    to_file(text, path)

A program that takes it is sure to have it. A terminal does not answer: OSC 52 may be switched off
in it, or unknown to it, so a file is written as well where nothing surer was found.

tmux (3.3 was looked at) drops an application's OSC 52 as it comes configured: `set-clipboard` is
`external`, and `allow-passthrough` off. `tmux load-buffer -w` is what it does honour. The sequences
are sent to it where that program is missing, both ways, as one of the two may be switched on. GNU
screen passes on what is wrapped in DCS strings, and cuts long ones.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.paths import private_file

Environment = Mapping[str, str]

OSC_52_BYTES = 74_994
"""100,000 characters of base64: what terminals are known to take, where they say how much."""
_SCREEN_PIECE = 700
"""Characters of a DCS string that every GNU screen passes on."""
_PATIENCE_S = 3.0
"""A program may wait for a display that is gone."""


class Program(NamedTuple):
    """One that takes a text from its stdin.

    Attributes:
        place: what the user calls the place where the text is then.
        command: how it is called.
        useful: whether it would be the user's clipboard that it writes to.
        encoding: what it expects.
    """

    place: str
    command: tuple[str, ...]
    useful: Callable[[Environment], bool]
    encoding: str = "utf-8"

    def take(self, text: str) -> bool:
        """Give it the text. False where it is not installed, or could not."""
        try:
            done = subprocess.run(
                self.command,
                input=text.encode(self.encoding, "replace"),
                stdout=subprocess.DEVNULL,  # xclip's child holds them open for as long as it lives
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0


def _has(name: str) -> Callable[[Environment], bool]:
    return lambda environ: bool(environ.get(name))


def _on_this_mac(environ: Environment) -> bool:
    return sys.platform == "darwin" and not environ.get("SSH_CONNECTION")


_CLIPBOARD = (
    Program("the clipboard (pbcopy)", ("pbcopy",), _on_this_mac),
    Program(
        "the clipboard (wl-copy)", ("wl-copy", "--type", "text/plain"), _has("WAYLAND_DISPLAY")
    ),
    Program("the clipboard (xclip)", ("xclip", "-selection", "clipboard"), _has("DISPLAY")),
    Program("the clipboard (xsel)", ("xsel", "--clipboard", "--input"), _has("DISPLAY")),
    Program("the clipboard (clip.exe)", ("clip.exe",), _has("WSL_DISTRO_NAME"), "utf-16"),
    Program("the clipboard (Termux)", ("termux-clipboard-set",), _has("TERMUX_VERSION")),
)
_TMUX = (
    Program("tmux and its terminal", ("tmux", "load-buffer", "-w", "-"), _has("TMUX")),
    Program("tmux's buffer", ("tmux", "load-buffer", "-"), _has("TMUX")),  # before 3.2
)
_DEAF = {"linux", "dumb"}


def to_programs(text: str, environ: Environment = os.environ) -> list[str]:
    """Give `text` to what keeps a clipboard here: the places where it is then."""
    taken = []
    for kind in (_CLIPBOARD, _TMUX):
        useful = (program for program in kind if program.useful(environ))
        place = next((program.place for program in useful if program.take(text)), None)
        if place is not None:
            taken.append(place)
    return taken


def to_terminal(text: str, environ: Environment = os.environ) -> list[str]:
    """What to write to the terminal so that it takes `text`; nothing where it would be no use."""
    data = text.encode("utf-8", "replace")
    term = environ.get("TERM", "")
    deaf = term in _DEAF or environ.get("TERM_PROGRAM") == "Apple_Terminal"
    if len(data) > OSC_52_BYTES or deaf:
        return []
    plain = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environ.get("TMUX") or term.startswith("tmux"):
        doubled = plain.replace("\x1b", "\x1b\x1b")
        return [plain, f"\x1bPtmux;{doubled}\x1b\\"]
    if environ.get("STY") or term.startswith("screen"):
        starts = range(0, len(plain), _SCREEN_PIECE)
        return [f"\x1bP{plain[at : at + _SCREEN_PIECE]}\x1b\\" for at in starts]
    return [plain]


def to_file(text: str, path: Path) -> bool:
    """Write it to a file of the user's own (0600). False where that is not possible."""
    try:
        with open(
            path, "w", encoding="utf-8", errors="replace", newline="", opener=private_file
        ) as file:
            file.write(text)
    except OSError:
        return False
    return True
