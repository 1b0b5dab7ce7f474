"""What happens between a backend and a screen, without a screen.

`Chat` holds the conversation, the turn that runs, what waits to be asked, and whether there is a
model to ask. The screen calls `send`, `pick`, `stop` ... and gives it the backend's events with
`take`; whatever has to be drawn comes out of `effects()`, in order (`chat_tui/effects.py`). Nothing
that was typed is ever lost: it is in the transcript, in `queue`, or comes back as `Returned`.
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
    Cleared,
    Effect,
    Fed,
    Kept,
    Kind,
    Noted,
    Overflow,
    Picked,
    Prefilled,
    Returned,
    RowEnded,
    Told,
    Withdrawn,
)
from chat_tui.settings import Settings
from chat_tui.turn import RunningTurn
from engine.messages import (
    Ask,
    Cancel,
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
    Started,
    Stepped,
)

Pace = Literal["idle", "waiting", "running"]
Phase = Literal["absent", "loading", "ready"]

PATIENCE_S = 2.0
"""How long the engine may take to stop: it looks between two steps, or two chunks of a prefill."""


class Chat:
    """One conversation with one backend.

    Attributes:
        settings: replaced by commands; a running turn keeps those it was asked with.
        focused: the row that is continued where none was picked; the screen sets it.
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
        self.phase: Phase = "absent"
        self.loading: Loading | None = None
        self.focused = 0
        self._backend = backend
        self._clock = clock
        self._asks = 0
        self._loads = 0
        self._effects: list[Effect] = []
        self.stopped = False
        self._loaded = ""
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
        return len(turn.prompt_tokens) + max(len(row.tokens) for row in rows)

    # What the user does.

    def send(self, text: str) -> None:
        """Ask `text` as soon as that is possible; a turn without a pick goes on with `focused`."""
        self.queue.append(text)
        if self.turn is not None and self.turn.picked is None and self.turn.started:
            self.pick(self.focused)
        self._advance()

    def pick(self, row: int) -> None:
        """Go on with `row`; the other rows stop."""
        turn = self.turn
        if turn is None or not turn.started:
            return self._tell("There is no answer to pick yet.", "info")
        if not 0 <= row < turn.samples:
            return self._tell(f"There are {turn.samples} answers, no {row + 1}.", "warning")
        if turn.picked == row:
            return None
        turn.picked = row
        self._effects.append(Picked(row))
        for index, other in enumerate(turn.rows):
            if index != row and other.reason is None:
                self._backend.send(Cancel(turn.ask, index))
        self._settle()
        return None

    def stop(self) -> bool:
        """Stop the running turn, keeping what is there. False where nothing runs.

        Asked again when nothing came of it for a while, it ends the engine's process instead.
        """
        turn = self.turn
        if turn is None or turn.over:
            return False
        if turn.stopping_at is None:
            turn.stopping_at = self._clock()
            self._backend.send(Cancel(turn.ask))
        elif self.hangs:
            self._backend.close()
            self.take(Died("The engine did not stop and was ended."))
        return True

    @property
    def hangs(self) -> bool:
        """The engine was told to stop and has not done so."""
        stopping_at = self.turn.stopping_at if self.turn is not None and self.running else None
        return stopping_at is not None and self._clock() - stopping_at >= PATIENCE_S

    def take_back(self) -> str | None:
        """The message that waits longest from now, out of the queue."""
        return self.queue.pop() if self.queue else None

    def new(self) -> None:
        """Forget the conversation; what waits comes back into the prompt."""
        self.stop()
        self._return_queue()
        self.turn = self.last = self.overflow = None
        self.conversation.clear()
        self._effects.append(Cleared())

    def change(self, field: str, value: object) -> None:
        """Replace one field of the settings."""
        self.settings = replace(self.settings, **{field: value})  # type: ignore[arg-type]
        if field == "model":
            self.stop()
            self._load()

    def drop_oldest(self) -> None:
        """Answer an `Overflow`: forget the turns it named and ask again."""
        if self.overflow is None or self.overflow.drop is None:
            return self.decline()
        count = self.overflow.drop
        self.conversation.drop_oldest(count)
        turns = "The oldest turn is" if count == 1 else f"The {count} oldest turns are"
        self._note(f"{turns} no longer part of what the model sees.", "info")
        self.queue.appendleft(self.overflow.text)
        self.overflow = None
        self._advance()
        return None

    def decline(self) -> None:
        """Answer an `Overflow`: take the message back."""
        if self.overflow is not None:
            self.queue.appendleft(self.overflow.text)
            self.overflow = None
            self._return_queue()

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
            case Failed(ask=None):
                self._load_failed(event)
            case _:
                # A turn that was given up (by /new) may still have events on their way.
                if self.turn is not None and event.ask == self.turn.ask:
                    self._take_for_turn(self.turn, event)

    def _take_for_turn(self, turn: RunningTurn, event: Event) -> None:
        match event:
            case Started():
                turn.start(event)
                try:
                    self.conversation.check(event.prompt_tokens, event.preface_tokens)
                except HistoryChangedError as error:
                    self._note(str(error), "warning")
                self._effects.append(Began(turn))
            case Prefilling():
                turn.prefilled = (event.done, event.total)
                self._effects.append(Prefilled(event.done, event.total))
            case Stepped():
                turn.step(event, self._clock())
                self._effects += [
                    Fed(row, event.texts[row], event.masks[row] == 0)
                    for row, token in enumerate(event.tokens)
                    if token is not None
                ]
                self._effects += [Called(*call) for call in event.calls]
            case RowFinished():
                turn.end_row(event)
                self._effects.append(RowEnded(event.row, event.reason, event.text))
            case Finished():
                turn.end(event.stats)
                if turn.empty:
                    self._note("Stopped before the first token; the message is back.", "info")
                    self._withdraw(turn)
                self._settle()
            case Overflowed():
                self.turn = None
                drop = turns_to_drop(event, self.settings.max_tokens)
                self.overflow = Overflow(turn.user, event.prompt_tokens, event.limit, drop)
                self._effects.append(self.overflow)
            case Failed():
                self._lose(event.message)

    def _ready(self, event: Ready) -> None:
        self._loads = max(0, self._loads - 1)
        if self._loads:
            return
        if self.info is not None and self.info.name != event.info.name:
            self.conversation.rebase()
        self.info, self.phase, self.loading = event.info, "ready", None
        self._loaded = self.settings.model
        self._advance()

    def _load_failed(self, event: Failed) -> None:
        self._loads = max(0, self._loads - 1)
        if self._loads:
            return
        self.phase, self.loading = "absent", None
        self._note(event.message, "error")
        if self._loaded and self._loaded != self.settings.model:
            self.settings = replace(self.settings, model=self._loaded)
            self._note(f"The next message goes to {self._loaded} again.", "info")
        self._return_queue()

    def _lose(self, reason: str) -> None:
        """The engine failed: keep what was streamed, hand back what was not answered."""
        self._note(reason, "error")
        turn = self.turn
        if turn is not None and not turn.over:
            if turn.started:
                self._effects += [
                    RowEnded(row, None, "")
                    for row, state in enumerate(turn.rows)
                    if state.reason is None
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

    def _settle(self) -> None:
        """Keep a turn that is picked and over, then go on with what waits."""
        turn = self.turn
        if turn is not None and turn.over and turn.picked is not None:
            kept = turn.finished(self.info.name if self.info is not None else "")
            self.conversation.keep(kept, turn.prompt_tokens)
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
            self.pick(min(self.focused, self.turn.samples - 1))
        else:
            self._ask(self.queue.popleft())

    def _ask(self, text: str) -> None:
        self._asks += 1
        settings = self.settings
        self.focused = 0
        self.turn = RunningTurn(
            self._asks, text, settings.samples, settings.top_k, asked_at=self._clock()
        )
        self._backend.send(
            Ask(
                ask=self._asks,
                text=text,
                history=self.conversation.history(self.info.name if self.info else ""),
                system=settings.system,
                tools=settings.tools,
                samples=settings.samples,
                params=settings.params(),
                reuse_cache=settings.reuse_cache,
            )
        )

    def _withdraw(self, turn: RunningTurn) -> None:
        self.turn = None
        if turn.started:
            self._effects.append(Withdrawn())
        self.queue.appendleft(turn.user)
        self._return_queue()

    def _return_queue(self) -> None:
        if self.queue:
            self._effects.append(Returned("\n\n".join(self.queue)))
            self.queue.clear()

    def _note(self, text: str, kind: Kind) -> None:
        self._effects.append(Noted(text, kind))

    def _tell(self, text: str, kind: Kind) -> None:
        self._effects.append(Told(text, kind))
