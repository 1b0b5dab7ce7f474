"""The conversation no longer fits: drop the oldest turns, or take the message back.

`app.push_screen(OverflowScreen(overflow), callback)` calls back with True to drop.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from chat_tui.effects import Overflow


def wording(overflow: Overflow) -> tuple[str, str | None]:
    """What is wrong, and what would help, in words, if anything does."""
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
    """A question with a line for each answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", "Take the message back"),
        Binding("tab", "other", "The other answer", show=False),
    ]

    DEFAULT_CSS = """
    OverflowScreen {
        align: center middle;
        & > Vertical {
            width: 64; max-width: 92%; height: auto; padding: 1 2;
            border: round $warning; border-title-color: $text-warning;
            background: $surface;
        }
        & Static { margin-bottom: 1; }
        & OptionList { height: auto; border: none; padding: 0; background: $surface; }
        & OptionList:focus { border: none; background-tint: $surface 0%; }
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
            options = [Option(" Take the message back", id="decline")]
            if drop is not None:
                options.insert(0, Option(f" {drop}", id="drop"))
            yield OptionList(*options)

    def action_other(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_answer(self, drop: bool) -> None:
        self.dismiss(drop)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id == "drop")
