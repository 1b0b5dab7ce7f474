"""The command line without a process of its own: `chat-tui ARGUMENTS` is `main()` in this one."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import TextIO

import pytest

from chat_tui.cli import main


@dataclass(frozen=True)
class Done:
    """What a command came to: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLine:
    """`run("sessions", "list")`"""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, stdin: str | None = None) -> Done:
        """`stdin` is what is piped in; without it there is nobody and nothing."""
        self.patch.setattr(sys, "argv", ["chat-tui", *arguments])
        with open(os.devnull, encoding="utf-8") if stdin is None else _pipe(stdin) as file:
            self.patch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as end:
                main()
        return Done(int(end.value.code or 0), *self.capture.readouterr())


def _pipe(text: str) -> TextIO:
    """Out of which `text` comes."""
    out, into = os.pipe()

    def write() -> None:
        with open(into, "w", encoding="utf-8") as file:
            file.write(text)

    threading.Thread(target=write, daemon=True).start()
    return open(out, encoding="utf-8")
