"""Effects become pixels: what `chat.Chat` wants drawn, done to the widgets of the main screen.

`Stage(screen)` knows the transcript, the grid, the prompt and the line of answers; `draw(effect)`
does what one effect says. Questions that need a screen of their own are the App's.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.screen import Screen

from chat_tui import effects
from chat_tui.tree import Pick
from chat_tui.turn import RunningTurn
from chat_tui.widgets.grid import CompareGrid
from chat_tui.widgets.lines import Answer
from chat_tui.widgets.pane import Pane
from chat_tui.widgets.prompt import Prompt
from chat_tui.widgets.transcript import Answer as Answered
from chat_tui.widgets.transcript import Entry, Transcript, User


def entries(path: Sequence[Pick], turn: RunningTurn | None = None) -> list[Entry]:
    """A path as the transcript shows it, with the message of the turn that is shown behind it."""
    shown: list[Entry] = []
    for pick in path:
        answer = pick.answer
        shown += [
            User(pick.user),
            Answered(answer.text, tuple(answer.calls), tuple(answer.forced), pick.caption),
        ]
    return [*shown, User(turn.user)] if turn is not None else shown


def grow(effect: effects.Effect, panes: Sequence[Pane]) -> None:
    """Draw what came of an answer; `panes` are in the order of the turn's rows."""
    match effect:
        case effects.Fed(row, text, forced):
            panes[row].feed(text, forced)
        case effects.Prefilled(rows, done, total):
            for row in rows:
                panes[row].set_note(f"prefill {done:,} of {total:,}" if done < total else "")
        case effects.Called(row, number, call):
            panes[row].set_call(number, call)
        case effects.RowEnded(row, reason, text, problem):
            panes[row].finish(reason, text)
            if problem:
                panes[row].set_note(problem)


class Stage:
    """The widgets that effects are drawn on."""

    def __init__(self, screen: Screen[object]) -> None:
        self.screen = screen
        self.transcript = screen.query_one(Transcript)
        self.grid = screen.query_one(CompareGrid)
        self.prompt = screen.query_one(Prompt)
        self.answer = screen.query_one("#answer", Answer)

    def draw(self, effect: effects.Effect) -> None:
        grid = self.grid
        match effect:
            case effects.Fed() | effects.Prefilled() | effects.Called() | effects.RowEnded():
                grow(effect, grid.panes)
            case effects.Picked(row):
                for index, pane in enumerate(grid.panes):
                    pane.set_picked(index == row)
                if row is not None:
                    grid.focused_index = row
            case effects.Began(turn):
                self.transcript.add_user(turn.user)
                grid.start(turn.samples, turn.labels)
                grid.group = turn.group
                self._begin(turn)
                self.screen.remove_class("-empty").add_class("-answering")
            case effects.Extended(turn):
                grid.group = turn.group
                grid.extend(turn.samples, turn.labels)
                self._begin(turn)
                # They were asked for: where one answer has the room of all, it is the first new.
                if grid.has_focus_within:
                    grid.focus_pane(turn.first)
                else:
                    grid.focused_index = turn.first
            case effects.ClosedUp(turn, places, focused):
                grid.group = turn.group
                grid.close_up(places, focused, turn.labels)
            case effects.Kept(pick):
                answer = pick.answer
                self.transcript.add_answer(answer.text, answer.calls, answer.forced, pick.caption)
                self._close_grid()
            case effects.Moved(path, shown, focused):
                self.transcript.go(entries(path, shown))
                self.screen.set_class(not path and shown is None, "-empty")
                if shown is None:
                    self._close_grid()
                else:
                    self._show(shown, focused)
            case effects.Withdrawn():
                self._close_grid()
            case effects.Cleared():
                self.transcript.clear()
                self._close_grid()
                self.screen.add_class("-empty")
            case effects.Returned(text):
                self.prompt.give_back(text)
            case effects.Noted(text, kind):
                self.screen.remove_class("-empty")
                self.transcript.add_notice(text, kind)
            case effects.Told(text, kind):
                self.answer.tell(text, kind)

    def _begin(self, turn: RunningTurn) -> None:
        # The answers may have grown since: what came in the meantime is drawn by later effects.
        for pane, answer in zip(self.grid.panes[turn.first :], turn.own, strict=True):
            pane.begin(answer, answer.beginning(answer.given))

    def _show(self, turn: RunningTurn, focused: int) -> None:
        """The answers of a turn that was answered before."""
        inside = self.grid.has_focus_within
        self.grid.start(turn.samples, turn.labels)
        self.grid.group = turn.group
        for pane, answer in zip(self.grid.panes, turn.rows, strict=True):
            pane.show(answer)
        self.grid.focused_index = focused
        self.screen.remove_class("-empty").add_class("-answering")
        if inside:
            self.grid.focus_pane(focused)

    def _close_grid(self) -> None:
        if self.grid.has_focus_within:
            self.prompt.focus()
        self.grid.clear()
        self.screen.remove_class("-answering")
