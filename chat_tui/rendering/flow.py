"""One answer's text as it grows: raw characters in, strips of cells out.

    flow = Flow()
    flow.append("12*3 is ")            # as the model samples
    flow.set_call(0, ToolCall(...))    # the characters it covers are shown as a chip
    flow.close()                       # nothing more will come
    strips = flow.strips(width, palette)

The text is kept raw; what is drawn is made harmless on the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.strip import Strip

from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import sanitise
from chat_tui.rendering.wrap import Run, to_strip, wrap
from engine.messages import ToolCall

Span = tuple[int, int]


class Flow:
    """A text that grows, with its tool calls and forced stretches."""

    def __init__(
        self,
        text: str = "",
        calls: Sequence[ToolCall] = (),
        forced: Iterable[Span] = (),
        *,
        closed: bool = False,
    ) -> None:
        self.text = text
        self.calls: dict[int, ToolCall] = dict(enumerate(calls))
        self.forced: list[Span] = list(forced)
        self.closed = closed

    def append(self, text: str, forced: bool = False) -> None:
        start = len(self.text)
        self.text += text
        if forced and text:
            self.forced.append((start, start + len(text)))

    def set_call(self, index: int, call: ToolCall) -> None:
        self.calls[index] = call

    def close(self) -> None:
        self.closed = True

    def strips(self, width: int, palette: Palette) -> list[Strip]:
        runs: list[Run] = []
        at = 0
        for call in sorted(self.calls.values(), key=lambda call: call.start):
            runs.append((sanitise(self.text[at : call.start]), palette.text))
            runs.append((sanitise(f" {call.expression} → {call.result} "), palette.chip))
            at = call.end
        runs.append((sanitise(self.text[at:]), palette.text))
        return [to_strip(line) for line in wrap(runs, width)]
