"""A conversation that has a name: what the store keeps, and what is given away.

`Session.conversation` is the path that was looked at last; `shown` is the turn whose answers stood
there without a pick, if there was one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chat_tui.conversation import Conversation
from chat_tui.frames import frames
from chat_tui.tree import Turn

_TITLE = 60
"""Characters of a title that is taken from a message."""


@dataclass
class Session:
    """One conversation with its name and its dates (seconds since 1970). `revision` counts what was
    written of it to the store. `rated` is the file whose prompts it rates, if it does."""

    id: int | None = None
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    conversation: Conversation = field(default_factory=Conversation)
    shown: Turn | None = None
    revision: int = 0
    rated: str = ""


def title_of(message: str) -> str:
    """A message, shortened to a title; the files in it are none."""
    file = next(frames(message), None)
    said = message[: file.start] if file is not None and file.start else message
    words = " ".join(said[:1000].split())
    if len(words) <= _TITLE:
        return words or "(empty)"
    cut = words[: _TITLE - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[_TITLE // 2 :] else cut}…"
