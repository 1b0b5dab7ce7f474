"""What happens between a backend and a screen, without a screen.

The screen calls `send`, `pick`, `stop`, `undo` ... and gives the backend's events to `take`;
whatever has to be drawn comes out of `effects()`, in order (`chat_tui/effects.py`). What the
backend says is in `asking.Asking`; here is what the user does. Nothing that was typed is ever lost:
it is in the tree, in `queue`, or comes back as `Returned`.
"""

from __future__ import annotations

from collections.abc import Sequence

from chat_tui.asking import ALTERNATIVES, PATIENCE_S, Asking
from chat_tui.conversation import Conversation
from chat_tui.effects import Cleared, Picked, Returned
from chat_tui.tree import Answer, Beginning, Turn
from engine.messages import NO_ID, Cancel, Count, Died, Score

GROWING = "The answers are still growing; stop them first."


class Chat(Asking):
    """One conversation with one backend, as the user acts on it."""

    # Talking.

    def send(self, text: str) -> None:
        """Ask `text` as soon as that is possible; a turn without a pick goes on with `focused`."""
        self.queue.append(text)
        if self.turn is not None and self.turn.picked is None and self.turn.rows:
            self._pick_focused(self.turn)
        self._advance()

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
        """Begin another conversation; what waits comes back into the prompt."""
        self.open(Conversation())
        self._effects.append(Cleared())

    def open(self, conversation: Conversation, shown: Turn | None = None) -> None:
        """Go on with another conversation, where `shown` is without a pick, if any is."""
        self.leave()
        self._return_queue()
        self.turn = self.last = self.overflow = self._back = None
        self.conversation = conversation
        self.focused = 0
        if shown is not None and shown.answers:
            self._show(shown)
        elif conversation.path:
            self._moved()

    def leave(self) -> None:
        """End what grows, as it stands now."""
        self.stop()
        turn = self.turn
        if turn is not None and not turn.over:
            turn.end()
            self._forget_empty(turn)

    def change(self, field: str, value: object) -> None:
        """Replace one field of the settings."""
        self.settings = self.settings.changed(field, value)
        if field in ("model", "server"):
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
            self._return_from_edit()
            self.queue.appendleft(self.overflow.text)
            self.overflow = None
            self._return_queue()

    # Moving in the tree.

    @property
    def current(self) -> Answer | None:
        """The answer that a key acts on: the focused one, else the one that was picked last."""
        if self.turn is not None and self.turn.rows:
            return self.turn.rows[min(self.focused, len(self.turn.rows) - 1)]
        return self.conversation.head

    @property
    def current_turn(self) -> Turn | None:
        """The turn that a key acts on: the one that is shown, else the last one of the path."""
        if self.turn is not None and self.turn.turn is not None:
            return self.turn.turn
        return self.conversation.path[-1].turn if self.conversation.path else None

    def undo(self) -> None:
        """Take the last pick back: the answers of its turn are shown again."""
        turn, path = self.turn, self.conversation.path
        if turn is not None and self.running:
            if turn.picked is None or turn.samples == 1:
                return self._tell(GROWING, "info")
            turn.picked = None
            self._effects.append(Picked(None))
        elif not path:
            self._tell("There is no pick to take back.", "info")
        else:
            last = path[-1]
            last.turn.picked = None
            self._show(last.turn, last.picked)
        return None

    def show(self, turn: Turn) -> None:
        """Go back to a turn: its answers are shown, to pick another."""
        if self.running:
            return self._tell(GROWING, "info")
        picked = turn.picked
        return self._show(turn, 0 if picked is None else turn.index(picked))

    def go(self, answer: Answer) -> None:
        """Stand behind an answer, anywhere in the tree; the next message follows it."""
        if self.running:
            return self._tell(GROWING, "info")
        self.conversation.go(answer)
        self.turn = None
        return self._moved()

    # Looking closer.

    def score(
        self,
        tokens: Sequence[int],
        start: int,
        temperature: float | None = None,
        top_k: int | None = None,
    ) -> int | None:
        """What does the model think of these tokens, from place `start` on, and in the distribution
        that they were sampled from, if they were? `ScoresCame` answers with the number returned
        here. None: there is no model to ask."""
        if self.phase != "ready":
            return None
        ask = self._next_ask()
        self._scoring.add(ask)
        self._backend.send(
            Score(ask, tuple(tokens), max(start, 1), ALTERNATIVES, temperature, top_k)
        )
        return ask

    def count(self, texts: Sequence[str]) -> int | None:
        """How many tokens have these texts? `CountsCame` answers with the number returned here.
        None: there is no model to ask."""
        if self.phase != "ready":
            return None
        ask = self._next_ask()
        self._counting.add(ask)
        self._backend.send(Count(ask, tuple(texts)))
        return ask

    # Growing the tree.

    def more(self, count: int | None = None) -> None:
        """Ask for `count` more answers (None: as many as for a message) beside those of the turn
        that is looked at."""
        turn = self.current_turn
        if turn is None:
            self._tell("There is no answer yet: send a message first.", "info")
        elif self._free():
            self._ask_beside(turn, count or self.settings.samples)

    def edit(self, turn: Turn, text: str) -> None:
        """Ask `text` in the place of `turn`'s message, in a branch beside it."""
        if not self._free():
            return self._effects.append(Returned(text))
        self._back = (self.conversation.head, self.turn.turn if self.turn is not None else None)
        self._stand_before(turn)
        self.turn = None
        self._moved()
        return self._ask(text)

    def continue_(self, answer: Answer) -> None:
        """Go on where an answer was stopped or cut, in a new answer beside it."""
        if answer.can_continue:
            self._grow(answer, answer.beginning(), 1)
        elif answer.reason == "context":
            self._tell("The context is full: there is no room to continue.", "info")
        elif answer.reason is not None:
            self._tell("It ended by itself; an edited answer, or a fork, goes on.", "info")
        else:
            self._tell(GROWING, "info")

    def edit_answer(self, answer: Answer, text: str) -> None:
        """Go on from `text` in the place of what an answer says."""
        if not self._grow(answer, answer.edited(text), 1):
            self._effects.append(Returned(text))

    def fork(
        self, answer: Answer, index: int, instead: int | str, count: int | None = None
    ) -> None:
        """Ask for `count` answers (None: as many as for a message) that begin like `answer` up to
        its token `index`, and there go on with another token, or with a text."""
        self._grow(answer, answer.fork(index, instead), count or self.settings.samples)

    def _grow(self, answer: Answer, beginning: Beginning, count: int) -> bool:
        """Ask for answers that begin with a part of `answer`. False where that is not possible."""
        if not self._free():
            return False
        assert self.model is not None
        if not self.model.speaks_with(answer.model) or NO_ID in beginning.tokens:
            if len(beginning.tokens) > len(beginning.ends):
                self._tell(f"Token ids of {answer.model.name} mean nothing here.", "warning")
                return False
            beginning = Beginning(answer.id, then=beginning.text + beginning.then)
        self._ask_beside(self.conversation.tree.turn_of(answer), count, beginning)
        return True

    def _free(self) -> bool:
        """Whether something can be asked now that is no message; else says why not."""
        if self.running:
            self._tell(GROWING, "info")
        elif self.phase == "absent":
            self._load()
            self._tell("The engine is started anew; try again when it is ready.", "info")
        elif self.phase == "loading":
            self._tell("The model is still loading.", "info")
        return self.phase == "ready" and not self.running
