"""What a model thinks before it answers: `<think>...</think>` at the start of a text.

    thought = thought_in(text)           # None where it does not begin so
    thought.lines(...)                   # one line, or all of it

Models write it so themselves (Qwen 3, DeepSeek R1), and what a server sends as reasoning stands in
an answer in the same form. It is mostly longer than the answer, so it is folded into a line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import sanitise
from chat_tui.rendering.wrap import Line, graphemes, wrap

_BEGIN = re.compile(r"\s*<think>")
_END = "</think>"
_TAIL = 400
"""Characters of a thought that is still growing which may be seen of it in a line."""


class Thought(NamedTuple):
    """Attributes:
    text: what is thought.
    after: where the answer itself begins; None while it goes on.
    """

    text: str
    after: int | None

    def lines(self, width: int, palette: Palette, *, unfolded: bool, closed: bool) -> list[Line]:
        """Args: closed: nothing more will come."""
        words = len(self.text.split())
        if not words and self.after is not None:
            return []
        state = "thinking" if self.after is None and not closed else "thought"
        cut = ", cut off" if self.after is None and closed else ""
        label = f"{'▾' if unfolded else '▸'} {state} · {words:,} word{'s' * (words != 1)}{cut}"
        if unfolded:
            inside = wrap([(sanitise(self.text.strip()), palette.muted)], width - 2)
            framed = [line.framed(("│ ", palette.faint), lead="") for line in inside]
            return [Line([(label, palette.muted)]), *framed]
        runs = [(label, palette.muted)]
        if state == "thinking" and (tail := _tail(self.text, width - len(label) - 3)):
            runs.append((f" · {tail}", palette.faint))
        return [Line(runs)]


def thought_in(text: str) -> Thought | None:
    """The thought that a text begins with."""
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    end = text.find(_END, begin.end())
    if end < 0:
        return Thought(text[begin.end() :], None)
    after = end + len(_END)
    return Thought(text[begin.end() : end], after + len(text[after:]) - len(text[after:].lstrip()))


def _tail(text: str, width: int) -> str:
    """The end of a text in at most `width` cells, cut at a word where there is one."""
    line = " ".join(sanitise(text[-_TAIL:]).split())
    room, start = width - 1, len(line)
    for first, _, cells in reversed([*graphemes(line)]):
        if cells > room:
            break
        room, start = room - cells, first
    if not start:
        return line
    word = line.find(" ", start) + 1
    return "…" + line[word or start :] if width > 8 else ""
