"""A thought, as lines: one that says how long it is, or all of it.

lines = thought_lines(thought, width, palette, unfolded=False, closed=True)
"""

from __future__ import annotations

from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import sanitise
from chat_tui.rendering.wrap import Line, graphemes, wrap
from chat_tui.thought import Thought

_TAIL = 400
"""Characters of a thought that is still growing which may be seen of it in a line."""


def thought_lines(
    thought: Thought, width: int, palette: Palette, *, unfolded: bool, closed: bool
) -> list[Line]:
    """Args: closed: nothing more will come."""
    label = f"{'▾' if unfolded else '▸'} {thought.label(closed=closed)}"
    if unfolded:
        inside = wrap([(sanitise(thought.text.strip()), palette.muted)], width - 2)
        framed = [line.framed(("│ ", palette.faint), lead="") for line in inside]
        return [Line([(label, palette.muted)]), *framed]
    runs = [(label, palette.muted)]
    grows = thought.after is None and not closed
    if grows and (tail := _tail(thought.text, width - len(label) - 3)):
        runs.append((f" · {tail}", palette.faint))
    return [Line(runs)]


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
