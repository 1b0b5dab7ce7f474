"""What Textual leaves to do between the terminal and the App.

`leave_on_signals` ends the program as Ctrl+Q does when it is told to, so that the terminal is left
as it was found. The rest is about keys and pastes that are misread from terminals without the Kitty
keyboard protocol: `InputParser` stands in for Textual's own parser (`install()`), and puts these
things right before it reads them (all seen with Textual 8.2):

- ESC 1 ... ESC 9, which is what Alt+digit sends, is read as the characters that a Mac types with
  Option (`¡`, `™` ...): the picks would be typed into the prompt.
- ESC CR, Alt+Enter, is read as a plain Enter, and would send.
- `CSI 27;2;13~`, Shift+Enter where xterm or tmux report modified keys, is no key at all.
- An escape sequence inside a paste ends it half-way, and its rest is read as keys: a pasted line
  break would then send what was pasted so far.
- A terminal that does not mark pastes sends them as keys, and each of their line breaks would send
  a line. Nobody types a line break and goes on within one read, so that is taken for a paste.
- A byte that is no UTF-8 ends the program: it becomes U+FFFD.
- A terminal that has ended is read over and over: where the system tells nobody, SIGHUP does.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib import import_module

from textual import events
from textual._xterm_parser import (
    BRACKETED_PASTE_END,
    BRACKETED_PASTE_START,
    XTermParser,
)
from textual.message import Message

from chat_tui.served import is_served

_ANSWER = re.compile(r"\x1b\[\?[\d;]*[cnu]")
"""To a question that another program asked before: Textual would take it for something typed."""
_REWRITTEN = re.compile(r"\x1b(?P<digit>[1-9])|\x1b(?P<enter>\r)|\x1b\[27;(?P<modifier>\d);13~")


_PLAIN = "[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_BURST = re.compile(rf"(?=.{{16}}){_PLAIN}*[\r\n][^\x00-\x1f\x7f]{_PLAIN}*", re.DOTALL)
"""A read with a line break in it and something behind that."""
_CALM_S = 0.05
"""Without anything more for so long, an unmarked paste is over."""
_BEGUN_MARK = re.compile(r"\x1b\[20{0,2}\Z")


def _as_kitty(match: re.Match[str]) -> str:
    if match["digit"]:
        return f"\x1b[{ord(match['digit'])};3u"
    return f"\x1b[13;{match['modifier'] or 3}u"


class InputParser(XTermParser):
    """Takes pastes out of the stream whole, and hands on the rest with those keys respelled."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._paste: list[str] | None = None  # the one that is arriving, in pieces
        self._burst: list[str] = []  # one that the terminal did not mark
        self._begun = ""  # of a mark: its rest may come with the next read
        self._read_at = 0.0
        self._marks = False  # the terminal marks its pastes: what comes unmarked was typed

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from self._let_go()
            yield from super().feed(data)
            return
        data, self._begun = self._begun + data, ""
        self._read_at = time.monotonic()
        if self._burst or (not self._marks and self._paste is None and _BURST.fullmatch(data)):
            if "\x1b" not in data:
                self._burst.append(data)
                return
            yield from self._let_go()
        while data:
            if self._paste is None:
                keys, start, data = data.partition(BRACKETED_PASTE_START)
                if not start and (begun := _BEGUN_MARK.search(keys)):
                    keys, self._begun = keys[: begun.start()], begun.group()
                if keys := _ANSWER.sub("", keys):
                    yield from super().feed(_REWRITTEN.sub(_as_kitty, keys))
                if start:
                    self._paste, self._marks = [], True
            else:
                # The end mark may have come in two reads: what could be its beginning waits.
                held = self._paste.pop() if self._paste else ""
                text, end, data = (held + data).partition(BRACKETED_PASTE_END)
                if end:
                    yield events.Paste("".join([*self._paste, text]).replace("\x00", ""))
                    self._paste = None
                else:
                    cut = max(len(text) - len(BRACKETED_PASTE_END) + 1, 0)
                    self._paste += [text[:cut], text[cut:]]

    def tick(self) -> Iterable[Message]:
        """Asked by the driver after each read, and ten times a second."""
        if time.monotonic() - self._read_at >= _CALM_S:
            yield from self._let_go()
        yield from super().tick()

    def _let_go(self) -> Iterable[Message]:
        """Nothing more belongs to what was held back."""
        if self._burst:
            text = "".join(self._burst)
            self._burst.clear()
            yield events.Paste(text)
        if self._begun:
            keys, self._begun = self._begun, ""
            yield from super().feed(keys)


_ENDED_S = 0.05
"""Between two looks at a terminal that has ended."""


class _Bytes:
    """What a terminal sends, to text."""

    def __init__(self, encoding: str) -> None:
        self._decode = codecs.getincrementaldecoder(encoding)("replace").decode
        self._ended = False

    def decode(self, data: bytes, final: bool = False) -> str:
        """No bytes are the end of it. The system tells only those of whom it is the controlling
        terminal; Textual would read its end over and over, and the program would run for ever."""
        if not data and not final:
            time.sleep(_ENDED_S)
            if not self._ended:
                self._ended = True
                os.kill(os.getpid(), signal.SIGHUP)
        return self._decode(data, final)


def _decoder(encoding: str) -> Callable[[], _Bytes]:
    return lambda: _Bytes(encoding)


def install() -> None:
    """Let the driver use `InputParser`, of a terminal or of one in a browser. No effect where it is
    another one."""
    name = "web_driver" if is_served() else "linux_driver"
    try:
        driver = import_module(f"textual.drivers.{name}")
    except ImportError:
        return
    # By name, for the driver exports neither.
    setattr(driver, "XTermParser", InputParser)  # noqa: B010
    setattr(driver, "getincrementaldecoder", _decoder)  # noqa: B010


LEAVING_S = 3.0
"""How long leaving on a signal may take. Where the terminal is gone, Textual can wait for ever for
a thread that failed to write to it, while another one reads its end over and over."""


def leave_on_signals(leave: Callable[[int], object]) -> None:
    """Call `leave` with the exit code on SIGTERM and SIGHUP; end the process where that hangs.

    No effect off the main thread, and on Windows.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()

    def told(code: int) -> None:
        last_resort = threading.Timer(LEAVING_S, os._exit, (code,))
        last_resort.daemon = True
        last_resort.start()
        leave(code)

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, told, 128 + number)
