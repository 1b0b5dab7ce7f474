"""What is asked, of which models, and where the conversation stands: the ground of `chat.Chat`.

`Asking` holds the conversation, the turn that runs, what waits to be asked, and the models that can
be asked. What they say is taken in by `hearing.Hearing`; what the user does is in `chat.Chat`.
Whatever has to be drawn comes out of `effects()`, in order (`chat_tui/effects.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from chat_tui.answer import Answer, Beginning
from chat_tui.backends.base import Backend
from chat_tui.backends.made import backend_for
from chat_tui.conversation import Conversation
from chat_tui.effects import (
    Effect,
    Kept,
    Kind,
    Moved,
    Noted,
    Overflow,
    Picked,
    Returned,
    Told,
    Withdrawn,
)
from chat_tui.lanes import Lane, Lanes, Phase
from chat_tui.settings import Settings, Setup, by_prompt
from chat_tui.tree import Turn
from chat_tui.turn import Part, RunningTurn
from engine.messages import Ask, Cancel, Load, Loading, ModelInfo
from engine.seeds import fresh_seed

Pace = Literal["idle", "waiting", "running"]

ALTERNATIVES = 10
"""Likeliest tokens kept with each token: what the token view shows, and what can be forked to."""


class Asking:
    """One conversation with one or several models.

    Attributes:
        settings: replaced by commands; a running turn keeps those it was asked with.
        conversation: the path that is looked at, and the tree around it.
        turn: the turn whose answers are shown; None once one of them is picked and has ended.
        last: the turn before that.
        focused: the row that is continued where none was picked; the screen sets it.
        lanes: the models that answer.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        load_sent: bool = False,
        make: Callable[[Load], Backend] = backend_for,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`backend` is for the first model, whose `Load` it may have got already; `make` gives
        those for others."""
        self.settings = settings
        self.conversation = Conversation()
        self.queue: deque[str] = deque()
        self.turn: RunningTurn | None = None
        self.last: RunningTurn | None = None
        self.overflow: Overflow | None = None
        self.focused = 0
        given = iter([backend])
        self.lanes = Lanes(lambda load: next(given, None) or make(load))
        self.lanes.want(settings, sent=load_sent)
        self._clock = clock
        self._asks = 0
        self._scoring: dict[int, Lane] = {}
        self._counting: dict[int, Lane] = {}
        self._effects: list[Effect] = []
        self._back: tuple[Answer | None, Turn | None] | None = None  # where an edit came from
        self._loaded: Settings | None = None  # when all of its models were there

    def effects(self) -> list[Effect]:
        """What has to be drawn since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def close(self) -> None:
        """End what answers."""
        self.lanes.close()

    # Who answers.

    @property
    def phase(self) -> Phase:
        """Whether there is a model to ask."""
        return self.lanes.phase

    @property
    def loading(self) -> Loading | None:
        """The last word on a model that is on its way here."""
        return next((lane.loading for lane in self.lanes if lane.loading is not None), None)

    @property
    def lane(self) -> Lane:
        """Of the answer that is looked at; else the first."""
        part = self.part if self.turn is not None else None
        if part is not None:
            return part.lane
        answer = self.current
        own = self.lanes.of(answer.model) if answer is not None else None
        return own or self.lanes.first

    @property
    def info(self) -> ModelInfo | None:
        """What is known of it; None before it is loaded."""
        return self.lane.info

    @property
    def part(self) -> Part | None:
        """The answers whose figures are told: the one that is looked at, and those that share its
        prompt. Of the turn before, where none is shown."""
        turn = self.turn or self.last
        if turn is None or not turn.parts:
            return None
        row = self.focused if turn.picked is None else turn.picked
        return turn.part_of(row) or turn.parts[0]

    # What is looked at.

    @property
    def running(self) -> bool:
        return self.turn is not None and not self.turn.over

    @property
    def pace(self) -> Pace:
        """How often something new can be expected."""
        if self._scoring or self._counting:
            return "waiting"
        if self.turn is not None and self.running:
            return "waiting" if self.turn.first_at is None else "running"
        return "running" if self.phase == "loading" else "idle"

    @property
    def current(self) -> Answer | None:
        """The answer that a key acts on: the one in focus, else the one that was picked last. None
        where that one has not begun."""
        turn = self.turn
        if turn is None or not turn.rows:
            return self.conversation.head
        answer = turn.rows[min(self.focused, len(turn.rows) - 1)]
        return answer if answer.id in self.conversation.tree.answers else None

    @property
    def current_turn(self) -> Turn | None:
        """The turn that a key acts on: the one that is shown, else the last one of the path."""
        if self.turn is not None and self.turn.turn is not None:
            return self.turn.turn
        return self.conversation.path[-1].turn if self.conversation.path else None

    @property
    def context_used(self) -> int:
        """Tokens of the conversation; of a turn that is shown, with the picked row, or the longest
        under the same prompt."""
        turn = self.turn
        if turn is None or not turn.rows:
            return len(self.conversation.tokens)
        row = self.focused if turn.picked is None else turn.picked
        looked_at = turn.rows[min(row, len(turn.rows) - 1)]
        rows = [row for row in turn.rows if row.prompt == looked_at.prompt]
        longest = max(len(row.tokens) for row in (rows if turn.picked is None else [looked_at]))
        return self.conversation.prompt_length(looked_at.prompt) + longest

    def unkept(self, grace: float = 0.0) -> list[str]:
        """What was sent and is nowhere but here: what waits, and a message to which nothing was
        generated before `grace` seconds ago."""
        turn = self.turn
        texts = [self.overflow.text] if self.overflow is not None else []
        if turn is not None and self.running and not turn.first:
            began = turn.first_at
            if began is None or self._clock() - began < grace:
                texts.append(turn.user)
        return [*texts, *self.queue]

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
            count = len(turn.rows)
            there = "is 1 answer" if count == 1 else f"are {count} answers"
            return self._tell(f"There {there}, no {row + 1}.", "warning")
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

    def _note(self, text: str, kind: Kind) -> None:
        self._effects.append(Noted(text, kind))

    def _tell(self, text: str, kind: Kind) -> None:
        self._effects.append(Told(text, kind))
