"""How a file stands in a message: between two lines that name it.

    --- notes.txt ---
    its text
    --- end of notes.txt ---

`framed(name, text)` writes that, `frames(message)` finds it again. A message is kept and sent as
plain text and nothing else, so what is shown of it folded is found by these lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPENING = re.compile(r"^(-{3,}) (.{1,400}) \1$", re.MULTILINE)
_MOST = 100
"""Frames looked for in a message: a text that only looks like openings costs no more than this."""


class Frame(NamedTuple):
    """The characters `message[start:end]`, and what they are."""

    start: int
    end: int
    name: str
    lines: int


def framed(name: str, text: str) -> str:
    """A file's text as it is put into a message."""
    text = text.removesuffix("\n")
    dashes = "---"
    while f"{dashes} end of {name} {dashes}" in text:
        dashes += "-"
    return f"{dashes} {name} {dashes}\n{text}\n{dashes} end of {name} {dashes}"


def frames(message: str) -> Iterator[Frame]:
    """The files in a message, in order."""
    at = 0
    for _ in range(_MOST):
        opening = _OPENING.search(message, at)
        if opening is None:
            return
        dashes, name = opening.groups()
        closing = f"\n{dashes} end of {name} {dashes}"
        end = message.find(closing, opening.end())
        at = opening.end()
        if end >= 0 and message[end + len(closing) : end + len(closing) + 1] in ("", "\n"):
            at = end + len(closing)
            yield Frame(opening.start(), at, name, message.count("\n", opening.end(), end))
