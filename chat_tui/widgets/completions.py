"""The list above the prompt while a slash command is typed.

It never has the focus: the prompt moves its highlight (`move`), asks what is `chosen`, and gives it
something new to `offer` with every key. It floats over what is above the prompt, so that nothing is
laid out anew while answers stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from chat_tui.commands import Choice

MAX_ROWS = 8


class Completions(Static):
    """Choices, one of them highlighted; or one line about the argument that is being typed."""

    DEFAULT_CSS = """
    Completions {
        display: none;
        overlay: screen;
        constrain: none inside;
        width: auto;
        max-width: 100%;
        height: auto;
        padding: 0 1;
        margin: 0 1;
        background: $panel;
        color: $foreground;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._choices: list[Choice] = []
        self._hint = ""
        self._place: int | None = None

    @property
    def chosen(self) -> Choice | None:
        return None if self._place is None else self._choices[self._place]

    @property
    def first(self) -> Choice | None:
        return self._choices[0] if self._choices else None

    def offer(self, choices: Sequence[Choice], hint: str, *, highlight: bool = True) -> None:
        """Show these, or nothing."""
        self._choices = list(choices)
        self._hint = hint
        # A value is only taken by Enter once it was pointed at: Enter alone runs what is typed.
        self._place = 0 if self._choices and not hint else None
        self._show()

    def move(self, step: int) -> bool:
        """Move the highlight. False where there is nothing to move in."""
        if not self.display or not self._choices:
            return False
        if self._place is None:
            self._place = 0 if step > 0 else len(self._choices) - 1
        else:
            self._place = (self._place + step) % len(self._choices)
        self._show()
        return True

    def _show(self) -> None:
        place = self._place or 0
        top = max(0, min(place - MAX_ROWS + 1, len(self._choices) - MAX_ROWS))
        rows = self._choices[top : top + MAX_ROWS]
        wide = max((len(choice.label) for choice in self._choices), default=0)
        lines: list[Content] = []
        for index, choice in enumerate(rows, top):
            label = f" {choice.label:<{wide}}  "
            if index == self._place:
                line = Content.assemble(
                    (label, "bold $primary"), (f"{choice.summary} ", "$foreground")
                ).stylize("on $primary 20%")
            else:
                line = Content.assemble(label, (f"{choice.summary} ", "$foreground 60%"))
            lines.append(line)
        if self._hint:
            lines.append(Content.styled(f" {self._hint} ", "$foreground 60%"))
        self.update(Content("\n").join(lines))
        self.styles.offset = (0, -len(lines))
        self.display = bool(lines)
