"""Rating a file's prompts, one after the other, without a screen.

    rating = Rating(chat, prompts, session)
    rating.drain()                        # what the models say
    rating.pick(0), rating.say("tie")     # of the prompt that is shown; then the next one is
    rating.undo()
    rating.effects()                      # what has to be drawn

`chat` answers the prompts in the order of the file and is up to `AHEAD` further than the one that
is looked at, which goes first. Each is a conversation of its own; all are in the tree of one
session (`rated.py`), and what is said of them is in it at once.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from chat_tui.answer import Answer
from chat_tui.chat import Chat
from chat_tui.conversation import Conversation
from chat_tui.effects import Began, Called, Effect, Fed, Kind, Noted, Prefilled, RowEnded, Told
from chat_tui.prompts import FilePrompt
from chat_tui.rated import Rated
from chat_tui.session import Session
from chat_tui.tree import Judgement, Turn, Verdict
from chat_tui.turn import RunningTurn
from engine.messages import Event

AHEAD = 3
"""Prompts that are answered before they are shown: a few that take long cost nobody a wait."""
_PACES = 20
"""Judgements that tell how fast the user is."""
_PAUSE_S = 120.0
"""Nobody looks at one prompt for longer than that without doing something else."""


@dataclass(frozen=True)
class Turned:
    """Another prompt is shown, or this one is to be drawn as a whole."""


@dataclass(frozen=True)
class Progress:
    """How far it has come. `per_minute` and `left_s` are None before anything was judged."""

    done: int
    total: int
    ahead: int
    per_minute: float | None
    left_s: float | None


@dataclass(frozen=True)
class Last:
    """What was said of a prompt; `column` is where what was picked stood, and `label` what it
    differed from the others by."""

    place: int
    verdict: Verdict
    column: int
    label: str


class Rating:
    """A file's prompts, and what was said of their answers.

    Attributes:
        place: the prompt that is shown; as many as there are prompts where none is left.
        problems: why a prompt that was looked at has no answers, or cut ones.
        left_out: prompts that are too long for the model, and by how much.
        passed: prompts that were skipped where there was nothing to be judged.
        last: what was said last.
        conversation, turn: for the recorder.
    """

    def __init__(
        self,
        chat: Chat,
        prompts: Sequence[FilePrompt],
        session: Session,
        *,
        blind: bool = False,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
    ) -> None:
        self.chat, self.prompts, self.session, self.blind = chat, prompts, session, blind
        self.conversation = session.conversation
        self.problems: dict[int, str] = {}
        self.left_out: dict[int, str] = {}
        self.passed: set[int] = set()
        self.last: Last | None = None
        self._clock, self._today = clock, today
        self._models, self._systems = chat.settings.models, chat.settings.systems
        seed = chat.settings.seed
        self._seed = random.randrange(2**32) if seed is None else seed
        self._rated = Rated(session.conversation.tree, prompts, today)
        self._judged = self._rated.turns
        self._said = sorted(self._judged, key=lambda place: self._judged[place].judged_at)
        self._turns: dict[int, RunningTurn] = {}
        self._put_off: set[int] = set()  # failed while another one was looked at
        self._asked: int | None = None  # what `chat` answers now
        self._halted = False  # the engine is gone: asking on would start it again and again
        self._reason = ""
        self._paces: list[float] = []
        self._effects: list[Effect | Turned] = []
        self._go(self._next())

    # What is shown.

    @property
    def prompt(self) -> FilePrompt | None:
        return self.prompts[self.place] if self.place < len(self.prompts) else None

    @property
    def turn(self) -> RunningTurn | None:
        """The answers of the prompt that is shown, as far as they have come."""
        return self._turns.get(self.place)

    @property
    def order(self) -> list[int]:
        """Which row of the turn stands at each place, from left to right."""
        count = self.turn.samples if self.turn is not None else 0
        return self._order(self.place, count)

    def _order(self, place: int, count: int) -> list[int]:
        rows = list(range(count))
        if self.blind:
            random.Random(f"{self._seed} {self.prompts[place].key}").shuffle(rows)
        return rows

    @property
    def growing(self) -> bool:
        """The answers to the prompt that is shown are not all there yet."""
        return self.turn is None or not self.turn.over

    @property
    def visible(self) -> bool:
        """There is something of them to be seen. Blind, that is when all are there: which one is
        faster would tell which one it is."""
        turn = self.turn
        return turn is not None and (turn.over if self.blind else turn.started)

    @property
    def progress(self) -> Progress:
        done = len(self._judged) + len(self.left_out)
        paces = self._paces[-_PACES:]
        each = sum(paces) / len(paces) if paces else None
        return Progress(
            done,
            len(self.prompts),
            sum(turn.over for place, turn in self._turns.items() if self._is_ahead(place)),
            60 / each if each else None,
            each * (len(self.prompts) - done) if each else None,
        )

    def _is_ahead(self, place: int) -> bool:
        return place != self.place and place not in self._judged and place not in self.passed

    @property
    def counts(self) -> Counter[Verdict]:
        """How often each was said."""
        return Counter(turn.judgement.verdict for turn in self._judged.values() if turn.judgement)

    def judged(self, place: int) -> Turn | None:
        """A prompt's turn, if something was said of it."""
        return self._judged.get(place)

    # What the backend says.

    def drain(self) -> list[Event]:
        """Take all that has come."""
        events = self.chat.drain()
        if events:
            self._hear()
            self._check()
            self._fill()
        return events

    def effects(self) -> list[Effect | Turned]:
        """What has to be drawn since the last call. What is drawn as a whole needs no news of how
        it came about."""
        effects, self._effects = self._effects, []
        if any(isinstance(effect, Turned) for effect in effects):
            return [Turned(), *(effect for effect in effects if isinstance(effect, Told))]
        return effects

    def _hear(self) -> None:
        shown = self._asked == self.place
        for effect in self.chat.effects():
            match effect:
                case Noted(text, "error" | "warning"):
                    self._reason = text
                case Began() if shown:
                    self._effects.append(Turned())
                case Prefilled() | Fed() | Called() | RowEnded() if shown and self.visible:
                    self._effects.append(effect)

    def _check(self) -> None:
        """See what became of the prompt that `chat` answers."""
        place, turn = self._asked, self.chat.turn
        if place is None:
            return
        if turn is not None:
            self._turns[place] = turn
        if (overflow := self.chat.overflow) is not None:
            self.chat.decline()
            self._hear()
            self._turns.pop(place, None)
            self._leave_out(place, overflow.prompt_tokens, overflow.limit)
        elif turn is None and not self.chat.queue:
            self._turns.pop(place, None)
            self._fail(place, self._reason or "There is no answer.")
        elif turn is not None and turn.over:
            self._asked = None
            if turn.lost:
                self._fail(place, turn.lost)
            elif place == self.place and self.blind:
                self._effects.append(Turned())

    def _leave_out(self, place: int, tokens: int, limit: int) -> None:
        self._asked = None
        self.left_out[place] = f"{tokens:,} tokens, and the model holds {limit:,}"
        if place == self.place:
            self._go(self._next())
            self._tell(f"Prompt {place + 1} is left out: {self.left_out[place]}.", "warning")

    def _fail(self, place: int, reason: str) -> None:
        self._asked, self._reason = None, ""
        # A chat goes on without a model that does not come; here it was to be compared.
        self._halted = self.chat.phase == "absent" or self.chat.settings.models != self._models
        if place == self.place:
            self.problems[place] = reason
            self._effects.append(Turned())
        elif place not in self._judged:
            # Nobody saw it: it is asked again when one comes to it.
            self._take_away(place)
            self._put_off.add(place)

    # What the user says.

    def pick(self, column: int) -> None:
        """The answer at this place, from the left, is the best."""
        turn = self.turn
        if turn is not None and self._can_judge():
            if column >= len(turn.rows):
                return self._tell(turn.lacks(column), "warning")
            row = self.order[column]
            if not turn.can_pick(row):
                return self._tell("There is nothing in this answer to be picked.", "info")
            self._judge("pick", turn.rows[row])
        return None

    def say(self, verdict: Verdict) -> None:
        """`tie` or `bad`, of all answers; or `skip`."""
        if verdict != "skip":
            if self._can_judge():
                self._judge(verdict)
        elif self.prompt is not None:
            if self.turn is not None and self.turn.turn is not None:
                self._judge(verdict)
            else:
                self.passed.add(self.place)
                self._said.append(self.place)
                self.last = Last(self.place, verdict, 0, "")
                self._go(self._next())

    def undo(self) -> None:
        """Go back to what was judged last, as if it had not been."""
        if not self._said:
            return self._tell("Nothing was rated yet.", "info")
        place = self._said.pop()
        self.last = None
        self.passed.discard(place)
        self._take_back(place)
        return self._go(place)

    def skipped_again(self) -> None:
        """Once more through the prompts that were skipped."""
        skipped = [place for place, turn in self._judged.items() if turn.verdict == "skip"]
        if not skipped and not self.passed:
            return self._tell("None was skipped.", "info")
        self._said = [place for place in self._said if place not in {*skipped, *self.passed}]
        self.passed.clear()
        for place in skipped:
            self._take_back(place)
        return self._go(self._next())

    def retry(self) -> None:
        """Ask the prompt again whose answers did not come, or not whole."""
        turn = self.turn
        if self.problems.pop(self.place, None) is None and turn is not None and not self._cut:
            there = "The answers are there." if turn.over else "The answers are on their way."
            return self._tell(there, "info")
        self._take_away(self.place)
        return self._go(self.place)

    def _take_away(self, place: int) -> None:
        """What there is of a prompt's answers."""
        turn = self._turns.pop(place, None)
        if turn is not None and turn.turn is not None:
            self._rated.forget(turn.turn)

    def stop(self) -> None:
        """End what is waited for, as it stands."""
        if not self.growing or not self.chat.stop():
            self._tell("Nothing grows here.", "info")
        self._hear()
        self._check()

    @property
    def _cut(self) -> bool:
        """The answers that are shown were stopped."""
        turn = self.turn
        return (
            turn is not None
            and turn.over
            and any(answer.reason == "cancelled" for answer in turn.rows)
        )

    def _can_judge(self) -> bool:
        """Whether there is something to be judged; else says why not."""
        turn = self.turn
        if self.prompt is None:
            return False
        if turn is None or not (turn.over or any(answer.text for answer in turn.rows)):
            self._tell("There is no answer yet.", "info")
        elif not self.visible:
            self._tell("Blind, answers are shown when all of them are there.", "info")
        else:
            return True
        return False

    def _judge(self, verdict: Verdict, picked: Answer | None = None) -> None:
        shown = self.turn
        assert shown is not None
        turn = shown.turn
        assert turn is not None
        seconds = self._clock() - self._shown_at
        turn.picked = picked.id if picked is not None else None
        turn.judgement = Judgement(
            verdict,
            tuple(
                shown.rows[row].id
                for row in self._order(self.place, len(shown.rows))
                if shown.rows[row].id in self._rated.tree.answers
            ),
            self.blind,
            self._today(),
            round(seconds, 2),
            self.prompts[self.place].key,
        )
        self._rated.pack()
        self._paces.append(min(seconds, _PAUSE_S))
        self._judged[self.place] = turn
        self._said.append(self.place)
        self.problems.pop(self.place, None)
        column = turn.judgement.order.index(picked.id) if picked is not None else 0
        labels = shown.labels
        label = labels[shown.rows.index(picked)] if picked is not None and labels else ""
        self.last = Last(self.place, verdict, column, label)
        self._go(self._next())

    def _take_back(self, place: int) -> None:
        turn = self._judged.pop(place, None)
        if turn is None:
            return
        turn.picked = turn.judgement = None
        if self._paces:
            self._paces.pop()
        if place not in self._turns:
            self._turns[place] = RunningTurn.again(turn)

    # How one prompt leads to the next.

    def _next(self) -> int:
        """The first prompt of which nothing was said yet."""
        return next(self._open(), len(self.prompts))

    def _open(self) -> Iterator[int]:
        """Those of which nothing was said yet, in the file's order."""
        done = (self._judged, self.left_out, self.passed)
        return (
            place
            for place in range(len(self.prompts))
            if not any(place in places for places in done)
        )

    def _go(self, place: int) -> None:
        self.place = place
        self._halted = False  # somebody goes on with it
        self._shown_at = self._clock()
        self._effects.append(Turned())
        self._fill()

    def _fill(self) -> None:
        """Let `chat` answer the prompt that is shown, or one of the next."""
        if self._halted:
            return
        if self._asked is not None:
            waits = bool(self.chat.queue) and self._asked != self.place
            if not (waits and self._lacks(self.place)):
                return
            self.chat.take_back()  # the one that is looked at goes first
        ahead = (place for place in self._open() if place != self.place)
        for place in (self.place, *islice(ahead, AHEAD)):
            if self._lacks(place) and (place == self.place or place not in self._put_off):
                self._ask(place)
                return

    def _lacks(self, place: int) -> bool:
        """There is a prompt, and nothing came of it yet."""
        there = place in self._turns or place in self.problems
        return place < len(self.prompts) and not there

    def _ask(self, place: int) -> None:
        prompt = self.prompts[place]
        self._asked, self._reason = place, ""
        self._put_off.discard(place)
        if self.chat.settings.models != self._models:
            self.chat.change("models", self._models)
        own = (prompt.system,)
        self.chat.change("systems", self._systems if prompt.system is None else own)
        self.chat.open(Conversation(self._rated.tree, self._rated.head(place)))
        self.chat.send(prompt.text)
        self._hear()
        self._check()

    def _tell(self, text: str, kind: Kind) -> None:
        self._effects.append(Told(text, kind))
