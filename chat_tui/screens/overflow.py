"""The conversation no longer fits: drop the oldest turns, or take the message back.

`app.push_screen(OverflowScreen(overflow), callback)` calls back with True to drop.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from chat_tui.effects import Overflow


def wording(overflow: Overflow) -> tuple[str, str | None]:
    """What is wrong, and what the button that helps says, if anything helps."""
    size = f"{overflow.prompt_tokens:,} tokens; the model holds {overflow.limit:,}."
    if overflow.drop is None:
        return f"This message alone makes a prompt of {size} Shorten it and send it again.", None
    turns = "the oldest turn" if overflow.drop == 1 else f"the {overflow.drop} oldest turns"
    return (
        f"With this message the conversation has {size} Nothing was run yet. "
        f"Without {turns} it fits.",
        f"Drop {turns}",
    )


class OverflowScreen(ModalScreen[bool]):
    """A question with a button for each answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", "Take the message back"),
        Binding("left,right,tab,shift+tab", "other", "The other button", show=False),
    ]

    DEFAULT_CSS = """
    OverflowScreen {
        align: center middle;
        & > Vertical {
            width: 64; max-width: 92%; height: auto; padding: 1 2;
            border: round $warning; border-title-color: $text-warning;
            background: $surface;
        }
        & Horizontal { height: auto; align-horizontal: right; margin-top: 1; }
        & Button { margin-left: 2; }
    }
    """

    def __init__(self, overflow: Overflow) -> None:
        super().__init__()
        self._overflow = overflow

    def compose(self) -> ComposeResult:
        text, drop = wording(self._overflow)
        with Vertical() as box:
            box.border_title = "Too long for the model"
            yield Static(text, markup=False)
            with Horizontal():
                yield Button("Take it back", id="decline", compact=True)
                if drop is not None:
                    yield Button(drop, id="drop", variant="warning", compact=True)

    def on_mount(self) -> None:
        self.query(Button).last().focus()

    def action_other(self) -> None:
        self.focus_next(Button)

    def action_answer(self, drop: bool) -> None:
        self.dismiss(drop)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "drop")
