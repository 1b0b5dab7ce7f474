"""The list above the prompt while a slash command, or the path of a file, is typed.

It never has the focus: the prompt moves its highlight (`move`), asks what is `chosen`, and gives it
something new to `offer` with every key. It floats over what is above the prompt, so that nothing is
laid out anew while answers stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from chat_tui.commands import Choice

MAX_ROWS = 12


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
        text-wrap: nowrap;
        margin: 0 1;
        background: $panel;
        color: $foreground;
    }
    """

    class Taken(Message):
        """A click took what is chosen now."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._choices: list[Choice] = []
        self._hint = ""
        self._place: int | None = None
        self._top = 0

    @property
    def chosen(self) -> Choice | None:
        return None if self._place is None else self._choices[self._place]

    @property
    def first(self) -> Choice | None:
        return self._choices[0] if self._choices else None

    def offer(self, choices: Sequence[Choice], hint: str) -> None:
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

    def on_click(self, event: Click) -> None:
        if self._top + event.y < len(self._choices):
            self._place = self._top + event.y
            self.post_message(self.Taken())

    def _show(self) -> None:
        room = max(self.app.size.width - 4, 10)
        place = self._place or 0
        self._top = top = max(0, min(place - MAX_ROWS + 1, len(self._choices) - MAX_ROWS))
        wide = max((cell_len(choice.label) for choice in self._choices), default=0)
        lines: list[Content] = []
        for choice in self._choices[top : top + MAX_ROWS]:
            chosen = choice is self.chosen
            label = f" {choice.label}{' ' * (wide - cell_len(choice.label))} "
            summary = f" {choice.summary} " if choice.summary else ""
            lines.append(
                Content.assemble(
                    (label, "bold $primary" if chosen else "$foreground 90%"),
                    (summary, "$foreground 90%" if chosen else "$foreground 55%"),
                )
            )
        if self._hint:
            lines.append(Content.styled(f" {self._hint} ", "$foreground 55%"))
        lines = [line.truncate(room, ellipsis=True) for line in lines]
        full = max((line.cell_length for line in lines), default=0)
        lines = [line.pad_right(full - line.cell_length) for line in lines]
        if self._place is not None:
            # Colours of the terminal's own cannot be blended with its ground.
            ground = "reverse" if self.app.native_ansi_color else "on $primary 18%"
            lines[place - top] = lines[place - top].stylize(ground)
        self.update(Content("\n").join(lines))
        self.styles.offset = (0, -len(lines))
        self.display = bool(lines)
