"""The running turn: N answers side by side, stacked, or one with a strip of the others.

    grid.start(4, labels=["0.2", "0.7", "1.0", "1.3"])
    grid.pane(0).feed(...)      # see pane.py
    grid.paint((0, 2))          # every other pane, some six times a second, while answers grow
    grid.paint((1, 2))          # and then those between
    grid.focused_index          # the answer that is continued if none is picked
    grid.clear()

What the user chooses is told by message: `Picked`, `FocusMoved`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import ClassVar, TypeAlias

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.layout import Layout
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from chat_tui.answer import Answer
from chat_tui.keys import ANSWERS, BRANCHING
from chat_tui.rendering import warm_up
from chat_tui.scores import parting
from chat_tui.widgets.pane import Pane
from chat_tui.widgets.strip import StateStrip
from chat_tui.widgets.tiles import Plan, Tiles, neighbour, plan

Turn: TypeAlias = "tuple[int, int]"
"""(i, n): of every n panes the one at place i."""


class CompareGrid(Widget):
    """N answers growing; one of them is current, with or without the keyboard's focus."""

    DEFAULT_CSS = """
    CompareGrid { background: $background; overflow: hidden; }
    """

    @dataclass
    class Picked(Message):
        """The user chose this answer to go on with."""

        index: int

    @dataclass
    class FocusMoved(Message):
        """Another answer is the current one: it is continued if none is picked."""

        index: int

    BINDINGS: ClassVar[list[BindingType]] = [*ANSWERS, *BRANCHING]

    zoomed: reactive[bool] = reactive(False)
    parting: reactive[bool] = reactive(False)
    focused_index: reactive[int] = reactive(0)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.panes: list[Pane] = []
        self.group = 1  # so many answers after one another are one model's
        self.unfolded = False
        self.strip = StateStrip()
        self._tiles = Tiles()

    def compose(self) -> ComposeResult:
        yield self.strip

    def on_mount(self) -> None:
        thread = Thread(target=warm_up, name="warm up", daemon=True)
        self.call_after_refresh(thread.start)

    def start(self, n: int, labels: Sequence[str] = (), *, figures: bool = True) -> None:
        """Make room for `n` answers; `labels` say what differs between them, if anything. Without
        `figures` nothing tells how an answer came about."""
        self.clear()
        self.panes = [
            Pane(i, labels[i] if i < len(labels) else "", numbered=n > 1, figures=figures)
            for i in range(n)
        ]
        self._fold()
        self._mark_current()
        self.mount_all(self.panes)

    def extend(self, n: int, labels: Sequence[str] = ()) -> None:
        """Make room for `n` answers, beside those that are there."""
        fresh = [Pane(i) for i in range(len(self.panes), n)]
        self.panes += fresh
        self._fold()
        self._name_panes(labels)
        self.mount_all(fresh)
        self._mark_current()
        self._lay_out()

    def close_up(self, places: Sequence[int], current: int, labels: Sequence[str] = ()) -> None:
        """Take away the answers that are not at these places; of the others, `current` is."""
        inside = self.has_focus_within
        stay = [self.panes[place] for place in places]
        gone = [pane for pane in self.panes if pane not in stay]
        self.panes = stay
        self._name_panes(labels)
        self.zoomed = self.zoomed and len(stay) > 1
        self.focused_index = current
        if inside:
            self.focus_pane(current)
        for pane in gone:
            pane.remove()
        self._mark_current()
        self._lay_out()

    def _name_panes(self, labels: Sequence[str]) -> None:
        """Number the panes, and say of each what tells it from the others."""
        numbered = len(self.panes) > 1
        for index, pane in enumerate(self.panes):
            pane.index = index
            pane.name_it(labels[index] if index < len(labels) else "", numbered=numbered)

    def clear(self) -> None:
        """Take the answers away."""
        for pane in self.panes:
            pane.remove()
        self.panes = []
        self.group = 1
        self.focused_index = 0
        self.zoomed = False

    def pane(self, index: int) -> Pane:
        return self.panes[index]

    def focus_pane(self, index: int) -> None:
        """Make an answer the current one and give it the keyboard."""
        self.focused_index = index
        # At once: two keys may come before a deferred focus has arrived.
        self.screen.set_focus(self.panes[index], scroll_visible=False)

    def paint(self, turn: Turn = (0, 1)) -> None:
        """Draw what came since the last time in the panes whose turn it is. What is not in view
        costs nothing."""
        if self.parting:
            self._part()
        which, turns = turn
        for pane in self.panes[which::turns]:
            pane.paint()
        self.strip.show(self.panes, self.focused_index)

    # Where things go

    @property
    def layout(self) -> Layout:
        return self._tiles

    def plan(self, size: Size) -> Plan:
        return plan(len(self.panes), size.width, size.height, zoomed=self.zoomed, group=self.group)

    def places(self, size: Size) -> Iterator[tuple[Widget, Region]]:
        """What is shown, and where; asked by the layout."""
        if not self.panes:
            return
        laid_out = self.plan(size)
        shown = self.panes
        if laid_out.strip is not None:
            yield self.strip, laid_out.strip
            shown = [self.panes[self.focused_index]]
        for pane in shown:
            yield pane, laid_out.tiles[pane.index]

    # What changes it

    def watch_parting(self) -> None:
        if not self.parting:
            for pane in self.panes:
                pane.unpart()
        self.paint()

    def _part(self) -> None:
        """Tell the panes where their answers stop being the same."""
        answers = [pane.answer for pane in self.panes if pane.answer is not None]
        if len(answers) == len(self.panes) > 1:
            places = parting(answers)
            for place, pane in enumerate(self.panes):
                pane.part(None if places is None else places[place])

    def watch_zoomed(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        # From a child: a widget that asks for layout invalidates the arrangement of its parents.
        self.strip.refresh(layout=True)

    def watch_focused_index(self, index: int) -> None:
        if not self.panes:
            return
        self._mark_current()
        self.strip.show(self.panes, index)
        if self.plan(self.size).strip is not None:
            self._lay_out()
        self.post_message(self.FocusMoved(index))

    def _mark_current(self) -> None:
        for pane in self.panes:
            pane.set_class(pane.index == self.focused_index, "-current")

    def on_descendant_focus(self) -> None:
        # The screen knows; the panes learn of it one after the other.
        focused = self.screen.focused
        if isinstance(focused, Pane) and focused in self.panes:
            self.focused_index = focused.index

    def on_click(self) -> None:
        # Some terminals tell of clicks, not of the way between them.
        for pane in self.panes:
            pane.point()

    def on_state_strip_chosen(self, event: StateStrip.Chosen) -> None:
        event.stop()
        self.focus_pane(event.index)

    def rescored(self, answer: Answer) -> None:
        """There are scores of an answer that there were not."""
        for pane in self.panes:
            if pane.answer is answer:
                pane.sum_up_anew()

    def action_pick(self, index: int) -> None:
        if index >= len(self.panes):
            raise SkipAction
        self.post_message(self.Picked(index))

    def action_pick_current(self) -> None:
        if not self.panes:
            raise SkipAction
        self.post_message(self.Picked(self.focused_index))

    def action_move(self, direction: str) -> None:
        if not self.panes:
            raise SkipAction
        laid_out = self.plan(self.size)
        step = {"left": -1, "right": 1}.get(direction, 0)
        target: int | None = self.focused_index + step
        if laid_out.strip is None:
            target = neighbour(laid_out.tiles, self.focused_index, direction)
        if target is not None and target != self.focused_index:
            if 0 <= target < len(self.panes):
                self.focus_pane(target)
        elif not step:
            current = self.panes[self.focused_index]
            current.scroll_relative(y=-1 if direction == "up" else 1, animate=False)

    def action_part(self) -> None:
        if len(self.panes) < 2:
            raise SkipAction
        self.parting = not self.parting

    def action_unfold(self) -> None:
        self.unfolded = not self.unfolded
        self._fold()

    def _fold(self) -> None:
        for pane in self.panes:
            pane.unfold(self.unfolded)

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed and len(self.panes) > 1
