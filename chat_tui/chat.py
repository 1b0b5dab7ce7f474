"""What happens between the models and a screen, without a screen.

The screen calls `send`, `pick`, `stop`, `undo` ... and, some ten times a second, `drain`; whatever
has to be drawn comes out of `effects()`, in order (`chat_tui/effects.py`). What the models say is
in `hearing.Hearing`; here is what the user does. Nothing that was typed is ever lost: it is in the
tree, in `queue`, or comes back as `Returned`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chat_tui.answer import Answer, Beginning
from chat_tui.asking import ALTERNATIVES
from chat_tui.conversation import Conversation
from chat_tui.effects import Cleared, Picked, Returned
from chat_tui.hearing import Hearing
from chat_tui.lanes import Lane
from chat_tui.model import Model
from chat_tui.settings import SettingsError, Setup
from chat_tui.tree import Turn
from engine.messages import NO_ID, Cancel, Count, Died, Score

GROWING = "The answers are still growing; stop them first."


PATIENCE_S = 2.0
"""How long an engine may take to stop: it looks between two steps, or two chunks of a prefill."""


class Chat(Hearing):
    """One conversation with one or several models, as the user acts on it."""

    # Talking.

    def send(self, text: str) -> None:
        """Ask `text` as soon as that is possible; a turn without a pick goes on with `focused`."""
        self.queue.append(text)
        turn = self.turn
        if turn is not None and turn.picked is None and turn.can_pick(self.focused):
            self.pick(self.focused)
        self._advance()

    def stop(self) -> bool:
        """Stop the running turn, keeping what is there. False where nothing runs.

        Asked again when nothing came of it for a while, it ends the engines' processes instead.
        """
        turn = self.turn
        if turn is None or turn.over:
            return False
        if turn.stopping_at is None:
            turn.stopping_at = self._clock()
            self._cancel(lambda lane: True)
        elif self.hangs:
            for lane in [part.lane for part in turn.parts if not part.over]:
                died = Died("The engine did not stop and was ended.")
                lane.backend.close()
                lane.take(died)
                self.take(lane, died)
        return True

    def _cancel(self, which: Callable[[Lane], bool]) -> None:
        """Stop what grows in some of the lanes."""
        for part in self.turn.parts if self.turn is not None else ():
            if not part.over and which(part.lane):
                part.lane.send(Cancel(part.ask))

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
            for part in turn.parts:
                if not part.over:
                    part.end()
            self._forget_failed(turn)
            self._forget_empty(turn)

    def change(self, field: str, value: object) -> bool:
        """Replace one field of the settings. False where the others do not allow it."""
        try:
            self.settings = self.settings.changed(field, value)
        except SettingsError as error:
            self._tell(str(error), "warning")
            return False
        if field in ("models", "server", "own"):
            wanted = self.settings.sources
            self._cancel(lambda lane: lane.source not in wanted)
            self.lanes.want(self.settings)
            self.lanes.revive()
        return True

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
        model: Model,
        tokens: Sequence[int],
        start: int,
        temperature: float | None = None,
        top_k: int | None = None,
    ) -> int | None:
        """What does `model` think of its tokens, from place `start` on, and in the distribution
        that they were sampled from, if they were? `ScoresCame` answers with the number returned
        here. None: it is not there to be asked."""
        lane = self.lanes.of(model)
        if lane is None:
            return None
        ask = self._next_ask()
        self._scoring[ask] = lane
        lane.send(Score(ask, tuple(tokens), max(start, 1), ALTERNATIVES, temperature, top_k))
        return ask

    def count(self, texts: Sequence[str]) -> int | None:
        """How many tokens have these texts, of the model that is looked at? `CountsCame` answers
        with the number returned here. None: it is not there to be asked."""
        lane = self.lane
        if lane.phase != "ready":
            return None
        ask = self._next_ask()
        self._counting[ask] = lane
        lane.send(Count(ask, tuple(texts)))
        return ask

    # Growing the tree.

    def more(self, count: int | None = None) -> None:
        """Ask for `count` more answers (None: as many as for a message) beside those of the turn
        that is looked at."""
        turn = self.current_turn
        if turn is None:
            self._tell("There is no answer yet: send a message first.", "info")
        elif self._free():
            try:
                setups = self._like(turn, count or self.settings.samples)
            except SettingsError as error:
                return self._tell(str(error), "warning")
            self._ask_beside(turn, setups)
        return None

    def _like(self, turn: Turn, count: int) -> Sequence[Setup]:
        """What more answers of a turn are asked with: as the next message, but under the system
        texts that the turn has."""
        settings = replace(self.settings, samples=count).checked()
        systems = tuple(dict.fromkeys(answer.prompt.system for answer in turn.answers))
        if {setup.system for setup in settings.setups()} != set(systems):
            settings = settings.changed("systems", systems)
        return settings.setups()

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
            self._grow(answer, answer.beginning())
        elif answer.reason == "context":
            self._tell("The context is full: there is no room to continue.", "info")
        elif answer.reason == "content_filter":
            self._tell(
                "The server's content filter ended it: edit the message, or ask for more.", "info"
            )
        elif answer.reason is not None:
            self._tell("It ended by itself; an edited answer, or a fork, goes on.", "info")
        else:
            self._tell(GROWING, "info")

    def edit_answer(self, answer: Answer, text: str) -> None:
        """Go on from `text` in the place of what an answer says."""
        if not self._grow(answer, answer.edited(text)):
            self._effects.append(Returned(text))

    def fork(
        self, answer: Answer, index: int, instead: int | str, count: int | None = None
    ) -> None:
        """Ask for `count` answers (None: as many as for a message) that begin like `answer` up to
        its token `index`, and there go on with another token, or with a text."""
        self._grow(answer, answer.fork(index, instead), count or self.settings.samples)

    def _grow(self, answer: Answer, beginning: Beginning, count: int | None = None) -> bool:
        """Ask for answers that begin with a part of `answer`: one that is sampled as it was, or
        `count`. False where that is not possible."""
        if not self._free():
            return False
        own = self.lanes.of(answer.model)
        lane = own or next(lane for lane in self.lanes if lane.phase == "ready")
        if own is None or NO_ID in beginning.tokens:
            if len(beginning.tokens) > len(beginning.ends):
                self._tell(f"Token ids of {answer.model.name} mean nothing here.", "warning")
                return False
            beginning = Beginning(answer.id, then=beginning.text + beginning.then)
        setups = self._alone(lane, answer, count or self.settings.samples)
        if count is None:
            setups = (self._sampled_as(answer, setups[0]),)
        self._ask_beside(self.conversation.tree.turn_of(answer), setups, beginning)
        return True

    def _alone(self, lane: Lane, answer: Answer, count: int) -> Sequence[Setup]:
        """What answers of one model are asked with, under the system text of `answer`."""
        systems = (answer.prompt.system,)
        alone = replace(self.settings, models=(lane.source,), systems=systems, own=())
        return replace(alone, samples=count).setups()

    def _sampled_as(self, answer: Answer, setup: Setup) -> Setup:
        """`setup`, sampled as `answer` was, unless nothing is sampled so any more."""
        now = {(setup.temperature, setup.top_k) for setup in self.settings.setups()}
        if (answer.temperature, answer.top_k) not in now:
            return setup
        return setup._replace(temperature=answer.temperature, top_k=answer.top_k)

    def _free(self) -> bool:
        """Whether something can be asked now that is no message; else says why not."""
        if self.running:
            self._tell(GROWING, "info")
        elif self.lanes.gone:
            self.lanes.revive()
            self._tell("The engine is started anew; try again when it is ready.", "info")
        elif self.phase == "loading":
            self._tell("The model is still loading.", "info")
        else:
            return True
        return False
