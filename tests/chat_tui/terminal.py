"""The real program in a pseudo-terminal, as a person meets it: keys in, a screen of characters
out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pexpect
import pyte

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "ctrl+c": "\x03",
    "ctrl+q": "\x11",
    "ctrl+t": "\x14",
    "f1": "\x1bOP",
}


class Terminal:
    """`chat-tui` with `arguments` in a terminal of `columns` x `lines`."""

    def __init__(self, *arguments: str, columns: int = 100, lines: int = 30) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.process = pexpect.spawn(
            sys.executable,
            ["-c", "from chat_tui.cli import main; main()", *arguments],
            dimensions=(lines, columns),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            timeout=5,
        )

    def press(self, *keys: str) -> None:
        """Named keys, `alt+X`, or text as it is typed."""
        for key in keys:
            alt = key.startswith("alt+")
            self.process.send("\x1b" + key[4:] if alt else KEYS.get(key, key))
            time.sleep(0.05)

    def paste(self, text: str) -> None:
        """A bracketed paste."""
        self.process.send(f"\x1b[200~{text}\x1b[201~")

    def text(self) -> str:
        """What the screen shows now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def until(self, shown: str | Callable[[str], bool], timeout: float = 60) -> str:
        """Read what the program draws until the screen shows a text; that screen."""
        holds = (lambda text: shown in text) if isinstance(shown, str) else shown
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                self._stream.feed(self.process.read_nonblocking(1 << 16, timeout=0.2))
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                break
            if holds(self.text()):
                return self.text()
        raise AssertionError(f"not within {timeout} s: {shown!r}; the screen:\n{self.text()}")

    def lose(self) -> None:
        """The terminal goes away, as when a connection breaks; the program hears of it from the
        system alone."""
        self.process.ptyproc.fileobj.close()
        self.process.ptyproc.closed = self.process.closed = True

    def end(self) -> int | None:
        """Wait for the program to leave; its exit code."""
        self.process.expect(pexpect.EOF, timeout=20)
        self.process.close()
        return self.process.exitstatus
