"""The running turn: N panes side by side, stacked, or one with a strip of the others.

    grid.start(4, labels=["0.2", "0.7", "1.0", "1.3"])
    grid.pane(0).feed(...)                    # see pane.py
    grid.focused_index                        # the answer that is continued if none is picked
    grid.clear()

The grid draws its panes by its own clock while answers grow. It says what was chosen by message:
`Picked`, `FocusMoved`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import reactive

from chat_tui.widgets.pane import Pane

PAINTS_PER_SECOND = 10


class CompareGrid(Horizontal):
    """N answers growing, one of them focused."""

    @dataclass
    class Picked(Message):
        """The user chose this answer to go on with."""

        index: int

    @dataclass
    class FocusMoved(Message):
        """Another answer is the focused one: it is continued if none is picked."""

        index: int

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"pick({n - 1})", f"Pick answer {n}", show=False) for n in range(1, 10)),
        Binding("enter", "pick_focused", "Pick this answer"),
        Binding("left,h", "move('left')", "Pane to the left", show=False),
        Binding("right,l", "move('right')", "Pane to the right", show=False),
        Binding("up,k", "move('up')", "Pane above", show=False),
        Binding("down,j", "move('down')", "Pane below", show=False),
        Binding("z", "zoom", "Zoom"),
    ]

    zoomed = reactive(False)
    focused_index = reactive(0)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.panes: list[Pane] = []

    def compose(self) -> ComposeResult:
        return iter(())

    def on_mount(self) -> None:
        self.set_interval(1 / PAINTS_PER_SECOND, self.paint)

    def start(self, n: int, labels: Sequence[str] = ()) -> None:
        """Make room for `n` answers; `labels` say what differs between them, if anything."""
        self.clear()
        self.panes = [
            Pane(i, labels[i] if i < len(labels) else "", numbered=n > 1) for i in range(n)
        ]
        self.mount_all(self.panes)

    def clear(self) -> None:
        for pane in self.panes:
            pane.remove()
        self.panes = []
        self.focused_index = 0
        self.zoomed = False

    def pane(self, index: int) -> Pane:
        return self.panes[index]

    def focus_pane(self, index: int) -> None:
        """Move the focus to a pane, showing it if it was not."""
        self.panes[index].focus()

    def paint(self) -> None:
        """Draw what came since the last time; called by the grid's own clock."""
        for pane in self.panes:
            pane.paint()

    def on_descendant_focus(self) -> None:
        for pane in self.panes:
            if pane.has_focus:
                self.focused_index = pane.index

    def watch_focused_index(self, index: int) -> None:
        if self.panes:
            self.post_message(self.FocusMoved(index))

    def action_pick(self, index: int) -> None:
        if index < len(self.panes):
            self.post_message(self.Picked(index))

    def action_pick_focused(self) -> None:
        if self.panes:
            self.post_message(self.Picked(self.focused_index))

    def action_move(self, direction: str) -> None:
        step = -1 if direction in ("left", "up") else 1
        self.focus_pane((self.focused_index + step) % len(self.panes))

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
