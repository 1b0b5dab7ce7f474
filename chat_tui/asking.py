"""What a backend says, and how one thing leads to the next: the half of `chat.Chat` that the user
does not touch.

`Asking` holds the conversation, the turn that runs, what waits to be asked, and whether there is a
model to ask. It is given the backend's events with `take`; whatever has to be drawn comes out of
`effects()`, in order (`chat_tui/effects.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from chat_tui.backends.base import Backend
from chat_tui.conversation import Conversation, HistoryChangedError, turns_to_drop
from chat_tui.effects import (
    Began,
    Called,
    CountsCame,
    Effect,
    Extended,
    Fed,
    Kept,
    Kind,
    Moved,
    Noted,
    Overflow,
    Picked,
    Prefilled,
    Returned,
    RowEnded,
    ScoresCame,
    Told,
    Withdrawn,
)
from chat_tui.model import Model
from chat_tui.settings import Settings
from chat_tui.tree import Answer, Beginning, Turn
from chat_tui.turn import RunningTurn
from engine.messages import (
    Ask,
    Cancel,
    Counted,
    Died,
    Event,
    Failed,
    Finished,
    Loading,
    ModelInfo,
    Overflowed,
    Prefilling,
    Ready,
    RowFinished,
    Scored,
    Started,
    Stepped,
)

Pace = Literal["idle", "waiting", "running"]
Phase = Literal["absent", "loading", "ready"]

PATIENCE_S = 2.0
"""How long the engine may take to stop: it looks between two steps, or two chunks of a prefill."""
ALTERNATIVES = 10
"""Likeliest tokens kept with each token: what the token view shows, and what can be forked to."""


class Asking:
    """One conversation with one backend.

    Attributes:
        settings: replaced by commands; a running turn keeps those it was asked with.
        conversation: the path that is looked at, and the tree around it.
        turn: the turn whose answers are shown; None once one of them is picked and has ended.
        last: the turn before that.
        focused: the row that is continued where none was picked; the screen sets it.
        info, model: what answers; None before it is loaded.
        phase: whether there is a model to ask.
        loading: the last word on the model's way here, while `phase` is "loading".
        stopped: the engine's process is gone; the next message starts it anew.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        load_sent: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.conversation = Conversation()
        self.queue: deque[str] = deque()
        self.turn: RunningTurn | None = None
        self.last: RunningTurn | None = None
        self.overflow: Overflow | None = None
        self.info: ModelInfo | None = None
        self.model: Model | None = None
        self.phase: Phase = "absent"
        self.loading: Loading | None = None
        self.focused = 0
        self._backend = backend
        self._clock = clock
        self._asks = 0
        self._loads = 0
        self._scoring: set[int] = set()
        self._counting: set[int] = set()
        self._effects: list[Effect] = []
        self._back: tuple[Answer | None, Turn | None] | None = None  # where an edit came from
        self.stopped = False
        self._loaded: Settings | None = None
        if load_sent:
            self._loads, self.phase = 1, "loading"
        else:
            self._load()

    def effects(self) -> list[Effect]:
        """What has to be drawn since the last call."""
        effects, self._effects = self._effects, []
        return effects

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
    def context_used(self) -> int:
        """Tokens of the conversation, the running turn's longest or picked row included."""
        turn = self.turn
        if turn is None or not turn.started:
            return len(self.conversation.tokens)
        rows = turn.rows if turn.picked is None else [turn.rows[turn.picked]]
        return len(turn.prompt_tokens) + max((len(row.tokens) for row in rows), default=0)

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

    # What the backend says.

    def take(self, event: Event) -> None:
        match event:
            case Loading():
                self.loading = event
            case Ready():
                self._ready(event)
            case Died():
                self._loads, self.phase, self.loading, self.stopped = 0, "absent", None, True
                self._lose(event.reason)
                for ask in sorted(self._scoring):
                    self._scored(ScoresCame(ask, problem=event.reason))
                for ask in sorted(self._counting):
                    self._counted(CountsCame(ask))
            case Failed(ask=None):
                self._load_failed(event)
            case Failed(ask=int(ask), message=problem) if ask in self._scoring:
                self._scored(ScoresCame(ask, problem=problem))
            case Failed(ask=int(ask)) if ask in self._counting:
                self._counted(CountsCame(ask))
            case Counted():
                self._counted(CountsCame(event.ask, event.tokens))
            case Scored():
                self._scored(ScoresCame(event.ask, event.scores))
            case _:
                # A turn that was given up (by /new) may still have events on their way.
                if self.turn is not None and event.ask == self.turn.ask:
                    self._take_for_turn(self.turn, event)

    def _take_for_turn(self, turn: RunningTurn, event: Event) -> None:
        match event:
            case Started():
                self._started(turn, event)
            case Prefilling():
                turn.prefilled = (event.done, event.total)
                self._effects.append(Prefilled(event.done, event.total))
            case Stepped():
                self._stepped(turn, event)
            case RowFinished():
                turn.end_row(event)
                self._effects.append(RowEnded(turn.first + event.row, event.reason, event.text))
            case Finished():
                turn.end(event.stats)
                if turn.empty:
                    back = "" if turn.first else "; the message is back"
                    self._note(f"Stopped before the first token{back}.", "info")
                    self._withdraw(turn)
                self._settle()
            case Overflowed() if turn.first:
                self._note(
                    f"There is no room for another answer: its prompt has {event.prompt_tokens:,} "
                    f"tokens, and the model holds {event.limit:,}.",
                    "warning",
                )
                turn.end()
                self._withdraw(turn)
                self._settle()
            case Overflowed():
                self.turn = None
                drop = turns_to_drop(event, self.settings.max_tokens)
                self.overflow = Overflow(turn.user, event.prompt_tokens, event.limit, drop)
                self._effects.append(self.overflow)
            case Failed():
                self._lose(event.message)

    def _scored(self, came: ScoresCame) -> None:
        self._scoring.discard(came.ask)
        self._effects.append(came)

    def _counted(self, came: CountsCame) -> None:
        self._counting.discard(came.ask)
        self._effects.append(came)

    def _started(self, turn: RunningTurn, event: Started) -> None:
        assert self.model is not None  # nothing is asked before `Ready`
        try:
            self.conversation.check(event.prompt_tokens, event.preface_tokens, self.model)
        except HistoryChangedError as error:
            self._note(str(error), "warning")
        turn.start(event, self.conversation, self.model, time.time())
        self._effects.append(Extended(turn) if turn.first else Began(turn))

    def _stepped(self, turn: RunningTurn, event: Stepped) -> None:
        self._back = None
        turn.step(event, self._clock())
        self._effects += [
            Fed(turn.first + row, event.texts[row], event.masks[row] == 0)
            for row, token in enumerate(event.tokens)
            if token is not None
        ]
        for row, _, call in event.calls:
            place = turn.own[row].set_call(call)
            self._effects.append(Called(turn.first + row, place, call))

    def _ready(self, event: Ready) -> None:
        self._loads = max(0, self._loads - 1)
        if self._loads:
            return
        self.info, self.phase, self.loading = event.info, "ready", None
        self.model = Model.of(event.info)
        self._loaded = self.settings
        self._advance()

    def _load_failed(self, event: Failed) -> None:
        self._loads = max(0, self._loads - 1)
        if self._loads:
            return
        self.phase, self.loading = "absent", None
        self._note(event.message, "error")
        before = self._loaded
        if before is not None and self.settings.load() != before.load():
            self.settings = self.settings.answered_like(before)
            self._note(f"The next message goes to {before.asked_for} again.", "info")
        self._return_queue()

    def _lose(self, reason: str) -> None:
        """The engine failed: keep what was streamed, hand back what was not answered."""
        self._note(reason, "error")
        turn = self.turn
        if turn is not None and not turn.over:
            self._effects += [
                RowEnded(row, None, "")
                for row, answer in enumerate(turn.rows)
                if answer.reason is None
            ]
            turn.end(lost=reason)
            if turn.empty:
                self._withdraw(turn)
        self._return_queue()
        self._settle()

    # How one thing leads to the next.

    def _load(self) -> None:
        self._loads += 1
        self.phase, self.loading, self.stopped = "loading", None, False
        self._backend.send(self.settings.load())

    def pick(self, row: int) -> None:
        """Go on with `row`; the other rows stop."""
        turn = self.turn
        if turn is None or not turn.rows:
            return self._tell("There is no answer to pick yet.", "info")
        if not 0 <= row < len(turn.rows):
            return self._tell(f"There are {turn.samples} answers, no {row + 1}.", "warning")
        if turn.picked == row:
            return None
        turn.picked = row
        self._effects.append(Picked(row))
        if not turn.started:
            self._backend.send(Cancel(turn.ask))
        for index, answer in enumerate(turn.own):
            if turn.first + index != row and answer.reason is None:
                self._backend.send(Cancel(turn.ask, index))
        self._settle()
        return None

    def _pick_focused(self, turn: RunningTurn) -> None:
        self.pick(min(self.focused, len(turn.rows) - 1))

    def _settle(self) -> None:
        """Go on with the answer that is picked, once the turn is over, then with what waits."""
        turn = self.turn
        if turn is not None and turn.over and turn.picked is not None:
            kept = self.conversation.pick(turn.rows[turn.picked])
            self.turn, self.last = None, turn
            self._effects.append(Kept(kept))
        self._advance()

    def _advance(self) -> None:
        """Ask the next message that waits, if anything allows it."""
        if not self.queue or self.overflow is not None:
            return
        if self.phase == "absent":
            self._load()
        if self.phase == "loading" or self.running:
            return
        if self.turn is not None:
            # Over, but nobody picked: go on with the one that the screen shows in focus.
            self._pick_focused(self.turn)
        else:
            self._ask(self.queue.popleft())

    def _ask(self, text: str) -> None:
        """A message behind the conversation as it stands."""
        settings = self.settings
        self._send(
            RunningTurn(
                self._next_ask(),
                text,
                settings.samples,
                settings.top_ks,
                settings.system,
                settings.tools,
                asked_at=self._clock(),
            )
        )

    def _ask_beside(self, turn: Turn, count: int, beginning: Beginning | None = None) -> None:
        """More answers of a turn beside those it has, under the same prompt."""
        if self.turn is None or self.turn.turn is not turn:
            self._show(turn)
        prompt = turn.answers[-1].prompt
        self._send(
            RunningTurn(
                self._next_ask(),
                turn.user,
                count,
                self.settings.top_ks,
                prompt.system,
                prompt.tools,
                turn,
                beginning,
                asked_at=self._clock(),
            )
        )

    def _next_ask(self) -> int:
        self._asks += 1
        return self._asks

    def _send(self, turn: RunningTurn) -> None:
        assert self.model is not None
        if not turn.first:
            self.focused = 0
        self.turn = turn
        beginning = turn.beginning
        self._backend.send(
            Ask(
                ask=turn.ask,
                text=turn.user,
                history=self.conversation.history(self.model),
                system=turn.system,
                tools=turn.tools,
                samples=turn.count,
                params=replace(
                    self.settings.params(),
                    seed=self._seed(turn),
                    alternatives=ALTERNATIVES,
                ),
                reuse_cache=self.settings.reuse_cache,
                answer=beginning.tokens if beginning is not None else (),
                answer_text=beginning.then if beginning is not None else "",
            )
        )

    def _seed(self, turn: RunningTurn) -> int | None:
        """The seed that was set, moved on where it would only repeat answers of the same turn."""
        seed = self.settings.seed
        if seed is None:
            return None
        used = {answer.seed for answer in turn.rows}
        while not used.isdisjoint(range(seed, seed + turn.count)):
            seed += 1
        return seed

    def _stand_before(self, turn: Turn) -> None:
        self.conversation.go(self.conversation.tree.parent(turn))
        if turn.answers:
            self.conversation.dropped = turn.answers[-1].prompt.dropped

    def _show(self, turn: Turn, focused: int = 0) -> None:
        """Let the answers of a turn be seen again; none of them is picked."""
        self._stand_before(turn)
        self.turn = RunningTurn.again(self.conversation, turn)
        self.focused = focused
        self._moved()

    def _moved(self) -> None:
        self._effects.append(Moved(tuple(self.conversation.path), self.turn, self.focused))

    def _forget_empty(self, turn: RunningTurn) -> None:
        """Take answers out of the tree to which nothing was generated, where all of them are so."""
        if not turn.empty:
            return
        tree = self.conversation.tree
        for answer in turn.own:
            tree.remove_answer(answer)
        if turn.turn is not None and not turn.turn.answers:
            tree.remove_turn(turn.turn)

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
