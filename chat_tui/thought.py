"""What a model thinks before it answers: `<think>...</think>` at the start of a text.

    thought = thought_in(text)           # None where it does not begin so
    text[thought.after:]                 # the answer itself

Models write it so themselves (Qwen 3, DeepSeek R1), and what a server sends as reasoning stands in
an answer in the same form. It is mostly longer than the answer, so what shows answers folds it into
a line, and a script gets the answer alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BEGIN, END = "<think>", "</think>"
_BEGIN = re.compile(rf"\s*{BEGIN}")


class Thought(NamedTuple):
    """Attributes:
    text: what is thought.
    after: where the answer itself begins; None while it goes on.
    """

    text: str
    after: int | None

    @property
    def words(self) -> int:
        return len(self.text.split())

    def label(self, *, closed: bool) -> str:
        """How far it is, in a few words. Args: closed: nothing more will come."""
        state = "thinking" if self.after is None and not closed else "thought"
        cut = ", cut off" if self.after is None and closed else ""
        words = self.words
        return f"{state} · {words:,} word{'s' * (words != 1)}{cut}"


def thought_in(text: str) -> Thought | None:
    """The thought that a text begins with."""
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    end = text.find(END, begin.end())
    if end < 0:
        return Thought(text[begin.end() :], None)
    after = end + len(END)
    return Thought(text[begin.end() : end], after + len(text[after:]) - len(text[after:].lstrip()))


def may_begin(text: str) -> bool:
    """Whether a text that is too short to have a thought may still get one."""
    return BEGIN.startswith(text.lstrip())
