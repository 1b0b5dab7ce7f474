"""What is asked, of which models, and how the conversation goes on with what they answer.

`Asking` puts messages to the models and takes picks and failures back into the tree. What the
models say is taken in by `hearing.Hearing`; what the user does is in `chat.Chat`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from chat_tui.answer import Answer, Beginning
from chat_tui.effects import Kept, Moved, Picked, Returned, Withdrawn
from chat_tui.settings import Setup, by_prompt
from chat_tui.state import ChatState
from chat_tui.tree import Turn
from chat_tui.turn import Part, RunningTurn
from engine.messages import Ask, Cancel
from engine.seeds import fresh_seed

ALTERNATIVES = 10
"""Likeliest tokens kept with each token: what the token view shows, and what can be forked to."""


class Asking(ChatState):
    """Asks, and keeps what was picked."""

    # Asking.

    def _advance(self) -> None:
        """Ask the next message that waits, if anything allows it."""
        if not self.queue or self.overflow is not None or self.running:
            return
        if self.lanes.gone:
            self.lanes.revive()
        if self.phase == "loading":
            return
        if self.turn is not None:
            # Over, but nobody picked: go on with the one that the screen shows in focus.
            self._pick_focused(self.turn)
        else:
            self._ask(self.queue.popleft())

    def _ask(self, text: str) -> None:
        """A message behind the conversation as it stands."""
        parts = self._parts(self.settings.setups())
        now = self._clock()
        self._send(RunningTurn(text, parts, self.settings.tools, asked_at=now))

    def _ask_beside(
        self, turn: Turn, setups: Iterable[Setup], beginning: Beginning | None = None
    ) -> None:
        """More answers of a turn beside those it has."""
        if self.turn is None or self.turn.turn is not turn:
            self._show(turn)
        tools = turn.answers[-1].prompt.tools
        parts = self._parts(setups, len(turn.answers))
        self._send(RunningTurn(turn.user, parts, tools, turn, beginning, self._clock()))

    def _parts(self, setups: Iterable[Setup], first: int = 0) -> list[Part]:
        """One part for each model and system text; rows are placed from `first` on. A model that is
        not there gets none."""
        there = [setup for setup in setups if self.lanes.at(setup.model) is not None]
        parts = []
        for (source, _), places in by_prompt(there).items():
            lane = self.lanes.at(source)
            assert lane is not None
            alike = tuple(there[place] for place in places)
            parts.append(
                Part(self._next_ask(), lane, alike, tuple(first + place for place in places))
            )
        return parts

    def _next_ask(self) -> int:
        self._asks += 1
        return self._asks

    def _send(self, turn: RunningTurn) -> None:
        if not turn.first:
            self.focused = 0
        self.turn = turn
        beginning = turn.beginning
        seed = self._seed(turn)
        for part in turn.parts:
            assert part.lane.model is not None
            part.lane.send(
                Ask(
                    ask=part.ask,
                    text=turn.user,
                    history=self.conversation.history(part.lane.model),
                    system=part.system,
                    tools=turn.tools,
                    samples=len(part.setups),
                    params=replace(
                        self.settings.params(part.setups), seed=seed, alternatives=ALTERNATIVES
                    ),
                    reuse_cache=self.settings.reuse_cache,
                    answer=beginning.tokens if beginning is not None else (),
                    answer_text=beginning.then if beginning is not None else "",
                )
            )

    def _seed(self, turn: RunningTurn) -> int | None:
        """The seed that was set, moved on where it would only repeat answers of the same turn.
        Several parts get the same, also where none was set: what differs is then the model."""
        seed = self.settings.seed
        if seed is None:
            return fresh_seed() if len(turn.parts) > 1 else None
        used = {answer.seed for answer in turn.rows}
        most = max(len(part.setups) for part in turn.parts)
        while not used.isdisjoint(range(seed, seed + most)):
            seed += 1
        return seed

    # Going on.

    def pick(self, row: int) -> None:
        """Go on with `row`; the other rows stop."""
        turn = self.turn
        if turn is None or not turn.rows:
            return self._tell("There is no answer to pick yet.", "info")
        if not 0 <= row < len(turn.rows):
            return self._tell(turn.lacks(row), "warning")
        if turn.picked == row:
            return None
        if not turn.can_pick(row):
            part = turn.part_of(row)
            why = "came to nothing" if part is not None and part.over else "has not begun yet"
            return self._tell(f"Answer {row + 1} {why}.", "info")
        turn.picked = row
        self._effects.append(Picked(row))
        for part in turn.parts:
            if not part.over:
                self._leave_others(part, row)
        self._settle()
        return None

    def _leave_others(self, part: Part, row: int) -> None:
        """Stop the rows of a part that are not `row`."""
        if row not in part.places:
            return part.lane.send(Cancel(part.ask))
        for index, (place, answer) in enumerate(zip(part.places, part.rows, strict=True)):
            if place != row and answer.reason is None:
                part.lane.send(Cancel(part.ask, index))
        return None

    def _pick_focused(self, turn: RunningTurn) -> None:
        """The one in focus; where that came to nothing, the first that did not."""
        rows = range(len(turn.rows))
        focused = min(self.focused, len(rows) - 1)
        self.pick(next(filter(turn.can_pick, (focused, *rows)), focused))

    def _settle(self) -> None:
        """Go on with the answer that is picked, once the turn is over, then with what waits."""
        turn = self.turn
        if turn is not None and turn.over and turn.picked is not None:
            kept = self.conversation.pick(turn.rows[turn.picked])
            self.turn, self.last = None, turn
            self._effects.append(Kept(kept))
        self._advance()

    # Moving in the tree.

    def _stand_before(self, turn: Turn) -> None:
        self.conversation.go(self.conversation.tree.parent(turn))
        if turn.answers:
            self.conversation.dropped = turn.answers[-1].prompt.dropped

    def _show(self, turn: Turn, focused: int = 0) -> None:
        """Let the answers of a turn be seen again; none of them is picked."""
        self._stand_before(turn)
        self.turn = RunningTurn.again(turn)
        self.focused = focused
        self._moved()

    def _moved(self) -> None:
        self._effects.append(Moved(tuple(self.conversation.path), self.turn, self.focused))

    # Taking back.

    def _forget(self, answers: Iterable[Answer]) -> None:
        """Take answers out of the tree to which nothing was generated."""
        for answer in answers:
            self.conversation.tree.remove_answer(answer)

    def _forget_failed(self, turn: RunningTurn) -> None:
        """What has not begun, or failed before anything was generated, leaves no trace."""
        for part in turn.parts:
            if not part.started or (part.lost and part.empty):
                self._forget(part.rows)

    def _forget_empty(self, turn: RunningTurn) -> None:
        """A turn to which nothing at all was generated leaves no trace."""
        if not turn.empty:
            return
        self._forget(turn.own)
        if turn.turn is not None and not turn.turn.answers:
            self.conversation.tree.remove_turn(turn.turn)

    def _withdraw(self, turn: RunningTurn) -> None:
        """A turn that came to nothing: as if it had not been asked, but nothing typed is lost."""
        self._forget_empty(turn)
        if turn.first:
            assert turn.turn is not None
            self._show(turn.turn, min(self.focused, turn.first - 1))
            if turn.picked is not None and turn.picked < turn.first and self.turn is not None:
                self.turn.picked = turn.picked
            return
        self.turn = None
        if turn.started:
            self._effects.append(Withdrawn())
        self._return_from_edit()
        self.queue.appendleft(turn.user)
        self._return_queue()

    def _return_from_edit(self) -> None:
        """Where an edited message was not answered, show again what stood in its place."""
        if self._back is None:
            return
        (head, shown), self._back = self._back, None
        if shown is not None:
            self._show(shown)
        else:
            self.conversation.go(head)
            self._moved()

    def _return_queue(self) -> None:
        if self.queue:
            self._effects.append(Returned("\n\n".join(self.queue)))
            self.queue.clear()
