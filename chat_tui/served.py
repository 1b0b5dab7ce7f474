"""The chat as `chat-tui serve` runs it: no terminal at either end, but a page in a browser.

What would be a line on stderr is drawn there, in the words of Textual's web driver.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn


def is_served() -> bool:
    """Whether the screen is in a browser, though neither end is a terminal."""
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def main() -> NoReturn:
    """The chat with the options of the command line."""
    from chat_tui.cli import outcome

    code, problem = outcome(sys.argv[1:])
    if problem:
        _draw(problem)
    raise SystemExit(code)


def _draw(line: str) -> None:
    from chat_tui.rendering.sanitise import sanitise

    text = f"\x1b[2J\x1b[H\r\n  {sanitise(' '.join(line.split()))}\r\n".encode()
    end = json.dumps({"type": "exit"}).encode()
    packets = (
        kind + len(data).to_bytes(4, "big") + data for kind, data in ((b"D", text), (b"M", end))
    )
    sys.stdout.buffer.write(b"__GANGLION__\n" + b"".join(packets))
    sys.stdout.buffer.flush()
