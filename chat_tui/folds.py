"""Long texts as short labels, while they stand in the prompt.

    folds = Folds()
    folds.paste(text)            # "[pasted 1,240 lines]", or a short text as it is
    folds.expand(shown)          # what is sent: each label is its text again
    folds.shrink(message)        # what is shown of it: texts that were folded are labels again

A box that holds a megabyte would be laid out anew with every key. A label is one thing to the
cursor and to the keys that delete (`chat_tui/widgets/prompt.py`), so that none is ever half gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chat_tui.frames import frames

LONG_LINES, LONG_CHARACTERS = 12, 2_000
"""A paste beyond one of these is folded."""
WHOLE_LINES, WHOLE_CHARACTERS = 200, 20_000
"""Any other text is folded where it is longer than this: one may have been typed."""

Span = tuple[int, int]


def _beyond(text: str, lines: int, characters: int) -> bool:
    return len(text) > characters or text.count("\n") >= lines


def _size(text: str) -> str:
    lines = text.removesuffix("\n").count("\n") + 1
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"


class Folds:
    """Attributes:
    bodies: what each label stands for. They are kept as long as the prompt is there: undo may
        bring any of them back.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}

    def paste(self, text: str) -> str:
        """What a pasted text is in the box."""
        return self.fold(text) if _beyond(text, LONG_LINES, LONG_CHARACTERS) else text

    def fold(self, text: str, name: str = "") -> str:
        """A label for `text`; the same one for the same text."""
        name = name or f"pasted {_size(text)}"
        label, number = f"[{name}]", 1
        while self.bodies.setdefault(label, text) != text:
            number += 1
            label = f"[{name} #{number}]"
        return label

    def expand(self, shown: str) -> str:
        """The text that is meant by what is shown."""
        if not self.bodies or "[" not in shown:
            return shown
        return self._labels.sub(self._body, shown)

    def _body(self, label: re.Match[str]) -> str:
        body = self.bodies[label.group()]
        frame = next(frames(body), None) if body.startswith("---") else None
        if frame is None or frame.end < len(body):
            return body
        # Its first and last line stay lines, whatever was typed beside the label.
        before = label.string[label.start() - 1 : label.start()]
        behind = label.string[label.end() : label.end() + 1]
        return "\n" * (before not in ("", "\n")) + body + "\n" * (behind not in ("", "\n"))

    def shrink(self, text: str) -> str:
        """What is shown of a text: `expand` gives it back."""
        shown = text
        if not any(self.spans(text)):  # else a label is meant literally
            for label in sorted(self.bodies, key=lambda label: -len(self.bodies[label])):
                shown = shown.replace(self.bodies[label], label)
            for frame in reversed(list(frames(shown))):
                size = "1 line" if frame.lines == 1 else f"{frame.lines:,} lines"
                label = self.fold(shown[frame.start : frame.end], f"{frame.name}, {size}")
                shown = shown[: frame.start] + label + shown[frame.end :]
        fits = not _beyond(shown, WHOLE_LINES, WHOLE_CHARACTERS) and self.expand(shown) == text
        return shown if fits else self.fold(text, _size(text))

    def spans(self, shown: str) -> Iterator[Span]:
        """Where labels stand in a text."""
        if self.bodies and "[" in shown:
            for label in self._labels.finditer(shown):
                yield label.span()

    def labels(self, shown: str) -> list[str]:
        """The labels in a text, each once."""
        return list(dict.fromkeys(shown[start:end] for start, end in self.spans(shown)))

    @property
    def _labels(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.bodies)))
