"""Where a conversation stands: the ground of `chat.Chat`.

`ChatState` holds the conversation, the turn that is shown, what waits to be asked, and the models
that can be asked; it tells what of it is looked at. What happens to it is in `asking.Asking`, and
above that. Whatever has to be drawn comes out of `effects()`, in order (`chat_tui/effects.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from chat_tui.answer import Answer
from chat_tui.backends.base import Backend
from chat_tui.backends.made import backend_for
from chat_tui.conversation import Conversation
from chat_tui.effects import Effect, Kind, Noted, Overflow, Told
from chat_tui.lanes import Lane, Lanes, Phase
from chat_tui.settings import Settings
from chat_tui.tree import Turn
from chat_tui.turn import Part, RunningTurn
from engine.messages import Load, Loading, ModelInfo

Pace = Literal["idle", "waiting", "running"]


class ChatState:
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

    # What has to be drawn.

    def _note(self, text: str, kind: Kind) -> None:
        self._effects.append(Noted(text, kind))

    def _tell(self, text: str, kind: Kind) -> None:
        self._effects.append(Told(text, kind))
