"""What Textual leaves to do between the terminal and the App.

`leave_on_signals` ends the program as Ctrl+Q does when it is told to, so that the terminal is left
as it was found. The rest is about keys and pastes that are misread from terminals without the Kitty
keyboard protocol: `InputParser` stands in for Textual's own parser (`install()`), and puts four
things right before it reads them (all seen with Textual 8.2):

- ESC 1 ... ESC 9, which is what Alt+digit sends, is read as the characters that a Mac types with
  Option (`¡`, `™` ...): the picks would be typed into the prompt.
- ESC CR, Alt+Enter, is read as a plain Enter, and would send.
- `CSI 27;2;13~`, Shift+Enter where xterm or tmux report modified keys, is no key at all.
- An escape sequence inside a paste ends it half-way, and its rest is read as keys: a pasted line
  break would then send what was pasted so far.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable

from textual import events
from textual._xterm_parser import (
    BRACKETED_PASTE_END,
    BRACKETED_PASTE_START,
    XTermParser,
)
from textual.message import Message

_REWRITTEN = re.compile(r"\x1b(?P<digit>[1-9])|\x1b(?P<enter>\r)|\x1b\[27;(?P<modifier>\d);13~")


def _as_kitty(match: re.Match[str]) -> str:
    if match["digit"]:
        return f"\x1b[{ord(match['digit'])};3u"
    return f"\x1b[13;{match['modifier'] or 3}u"


class InputParser(XTermParser):
    """Takes pastes out of the stream whole, and hands on the rest with those keys respelled."""

    _paste: str | None = None
    """The paste that is arriving, as far as it has come."""

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
            return
        while data:
            if self._paste is None:
                keys, start, data = data.partition(BRACKETED_PASTE_START)
                if keys:
                    yield from super().feed(_REWRITTEN.sub(_as_kitty, keys))
                if start:
                    self._paste = ""
            else:
                # The end mark may have come in two reads.
                text, end, data = (self._paste + data).partition(BRACKETED_PASTE_END)
                self._paste = None if end else text
                if end:
                    yield events.Paste(text.replace("\x00", ""))


def install() -> None:
    """Let the terminal driver use `InputParser`. No effect where that driver is not used."""
    try:
        from textual.drivers import linux_driver
    except ImportError:
        return
    setattr(linux_driver, "XTermParser", InputParser)  # noqa: B010 (not an exported name)


LEAVING_S = 3.0
"""How long leaving on a signal may take. Where the terminal is gone, Textual can wait for ever for
a thread that failed to write to it, while another one reads its end over and over."""


def leave_on_signals(leave: Callable[[int], object]) -> None:
    """Call `leave` with the exit code on SIGTERM and SIGHUP; end the process where that hangs.

    No effect off the main thread, and on Windows.
    """
    loop = asyncio.get_running_loop()

    def told(code: int) -> None:
        last_resort = threading.Timer(LEAVING_S, os._exit, (code,))
        last_resort.daemon = True
        last_resort.start()
        leave(code)

    for name in ("SIGTERM", "SIGHUP"):
        try:
            number = getattr(signal, name)
            loop.add_signal_handler(number, told, 128 + number)
        except (AttributeError, NotImplementedError, RuntimeError, ValueError):
            return
