"""What the models say, and how one thing leads to the next: the half of `chat.Chat` that the user
does not touch.

`drain()` takes what their backends have to say. An event belongs to a lane, and mostly to one part
of the running turn. A part that fails ends alone; only when none is on its way any more is the turn
over, and something else can follow.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from chat_tui.asking import Asking
from chat_tui.conversation import HistoryChangedError, turns_to_drop
from chat_tui.effects import (
    Began,
    Called,
    ClosedUp,
    CountsCame,
    Extended,
    Fed,
    Overflow,
    Picked,
    Prefilled,
    RowEnded,
    ScoresCame,
)
from chat_tui.lanes import Lane
from chat_tui.turn import Part, RunningTurn
from engine.messages import (
    Counted,
    Died,
    Event,
    Failed,
    Finished,
    Overflowed,
    Prefilling,
    Ready,
    RowFinished,
    Scored,
    Started,
    Stepped,
)


class Hearing(Asking):
    """Takes the backends' events."""

    def drain(self) -> list[Event]:
        """Take all events that have come; they are returned, to tell how much there was."""
        events = []
        for lane, event in self.lanes.drain():
            self.take(lane, event)
            events.append(event)
        return events

    def take(self, lane: Lane, event: Event) -> None:
        """What a lane says, after it has heard it itself."""
        match event:
            case Ready():
                if self.phase == "ready" and not self.lanes.gone:
                    self._loaded = self.settings
                self._advance()
            case Died():
                self._died(lane, event.reason)
            case Failed(ask=None):
                if lane.failed is not None:
                    self._load_failed(lane, event.message)
            case Failed(ask=int(ask), message=problem) if ask in self._scoring:
                self._scored(ScoresCame(ask, problem=problem))
            case Failed(ask=int(ask)) if ask in self._counting:
                self._counted(CountsCame(ask))
            case Counted():
                self._counted(CountsCame(event.ask, event.tokens))
            case Scored():
                self._scored(ScoresCame(event.ask, event.scores))
            case (
                Started()
                | Prefilling()
                | Stepped()
                | RowFinished()
                | Finished()
                | Overflowed()
                | Failed()
            ):
                # A turn that was given up (by /new) may still have events on their way.
                turn = self.turn
                for part in turn.parts if turn is not None else ():
                    if part.ask == event.ask and turn is not None and not part.over:
                        self._take_for_part(turn, part, event)

    def _take_for_part(self, turn: RunningTurn, part: Part, event: Event) -> None:
        match event:
            case Started():
                self._started(turn, part, event)
            case Prefilling():
                part.prefilled = (event.done, event.total)
                self._effects.append(Prefilled(part.places, event.done, event.total))
            case Stepped():
                self._stepped(part, event)
            case RowFinished():
                part.end_row(event)
                self._effects.append(RowEnded(part.places[event.row], event.reason, event.text))
            case Finished():
                part.end(event.stats)
                self._conclude(turn)
            case Overflowed():
                part.overflow = event
                self._end_part(part, self._no_room(turn, part.lane, event))
                self._conclude(turn)
            case Failed():
                self._lose(part.lane, event.message, [part])

    def _scored(self, came: ScoresCame) -> None:
        self._scoring.pop(came.ask, None)
        self._effects.append(came)

    def _counted(self, came: CountsCame) -> None:
        self._counting.pop(came.ask, None)
        self._effects.append(came)

    def _started(self, turn: RunningTurn, part: Part, event: Started) -> None:
        assert part.lane.model is not None  # nothing is asked before `Ready`
        try:
            self.conversation.check(event.prompt_tokens, event.preface_tokens, part.lane.model)
        except HistoryChangedError as error:
            self._note(str(error), "warning")
        begins = not turn.started
        if begins:
            turn.begin(self.conversation, time.time())
        turn.start(part, event, self.conversation)
        if begins:
            self._effects.append(Extended(turn) if turn.first else Began(turn))
            for other in turn.parts:
                if other.over:
                    self._show_end(other)

    def _stepped(self, part: Part, event: Stepped) -> None:
        self._back = None
        part.step(event, self._clock())
        self._effects += [
            Fed(part.places[row], event.texts[row], event.masks[row] == 0)
            for row, token in enumerate(event.tokens)
            if token is not None
        ]
        for row, _, call in event.calls:
            place = part.rows[row].set_call(call)
            self._effects.append(Called(part.places[row], place, call))

    # The end of a part.

    def _end_part(self, part: Part, reason: str) -> None:
        """A part that fails keeps what was streamed."""
        part.over, part.lost = True, reason
        self._show_end(part)

    def _show_end(self, part: Part) -> None:
        """Once there is something to see of the turn: what fails before has no rows yet."""
        if part.rows and part.overflow is not None:
            self._note(part.lost, "warning")
        for place, answer in zip(part.places, part.rows, strict=False):
            if answer.reason is None:
                answer.end("cancelled")
                problem = part.lost if answer.empty else ""
                self._effects.append(RowEnded(place, None, "", problem))

    def _conclude(self, turn: RunningTurn) -> None:
        """If no part is on its way any more, the turn is over."""
        if not turn.over:
            return
        self._forget_failed(turn)
        if turn.empty:
            self._came_to_nothing(turn)
        else:
            if turn.picked is not None and not turn.can_pick(turn.picked):
                turn.picked = None
                self._effects.append(Picked(None))
            self._close_up(turn)
        self._settle()

    def _close_up(self, turn: RunningTurn) -> None:
        """Of a turn that is over, show what the tree has of it."""
        closed, stay = turn.closed_up()
        if len(stay) < len(turn.rows):
            self.turn = closed
            self.focused = min(sum(place < self.focused for place in stay), len(stay) - 1)
            self._effects.append(ClosedUp(closed, stay, self.focused))

    def _came_to_nothing(self, turn: RunningTurn) -> None:
        overflows = [part.overflow for part in turn.parts if part.overflow is not None]
        if overflows and len(overflows) == len(turn.parts) and not turn.first:
            self.turn = None
            self.overflow = self._too_long(turn, overflows)
            self._effects.append(self.overflow)
            return
        for part in turn.parts:
            if part.overflow is not None and not turn.started:
                self._note(part.lost, "warning")
        if not any(part.lost for part in turn.parts):
            back = "" if turn.first else "; the message is back"
            self._note(f"Stopped before the first token{back}.", "info")
        self._withdraw(turn)

    def _too_long(self, turn: RunningTurn, overflows: Sequence[Overflowed]) -> Overflow:
        """As the model with the least room has it."""
        drops = [turns_to_drop(event, self.settings.max_tokens) for event in overflows]
        known = [drop for drop in drops if drop is not None]
        tightest = min(overflows, key=lambda event: event.limit)
        return Overflow(
            turn.user,
            tightest.prompt_tokens,
            tightest.limit,
            max(known) if len(known) == len(drops) else None,
        )

    def _no_room(self, turn: RunningTurn, lane: Lane, event: Overflowed) -> str:
        answer = "another answer" if turn.first else "an answer"
        return self._named(
            lane,
            f"There is no room for {answer}: its prompt has {event.prompt_tokens:,} tokens, "
            f"and the model holds {event.limit:,}.",
        )

    # A model that is not there any more, or does not come.

    def _died(self, lane: Lane, reason: str) -> None:
        turn = self.turn
        parts = [part for part in turn.parts if part.lane is lane] if turn is not None else []
        self._lose(lane, reason, [part for part in parts if not part.over])
        for ask in sorted(ask for ask, asked in self._scoring.items() if asked is lane):
            self._scored(ScoresCame(ask, problem=reason))
        for ask in sorted(ask for ask, asked in self._counting.items() if asked is lane):
            self._counted(CountsCame(ask))

    def _lose(self, lane: Lane, reason: str, parts: Sequence[Part]) -> None:
        """A model failed: keep what was streamed, hand back what was not answered."""
        if lane.failed is not None:
            self._load_failed(lane, reason)
        elif parts or lane in self.lanes:
            self._note(self._named(lane, reason), "error")
        turn = self.turn
        if turn is not None and parts:
            for part in parts:
                self._end_part(part, reason)
            self._conclude(turn)
        alone = turn is None or (turn.over and all(part.lost for part in turn.parts))
        if self.phase == "absent" or (parts and alone):
            self._return_queue()
        self._settle()

    def _load_failed(self, lane: Lane, message: str) -> None:
        """A model that does not come is not waited for: the others go on, or those before it."""
        source = lane.failed
        assert source is not None
        if lane not in self.lanes:
            return
        named = len(self.lanes) == 1 or message.startswith(source.label)
        self._note(message if named else f"{source.label}: {message}", "error")
        rest, before = self.settings.without(source), self._loaded
        if before is not None and before.sources != self.settings.sources:
            self.settings = self.settings.answered_like(before)
            self._note(f"The next message goes to {self._names()} again.", "info")
        elif source not in rest.sources:
            self.settings = rest
            self._note(f"The next message goes to {self._names()}.", "info")
        self.lanes.want(self.settings)
        self._return_queue()

    def _named(self, lane: Lane, text: str) -> str:
        """With the name of the model, where there are several."""
        return text if len(self.lanes) == 1 else f"{self.lanes.name(lane)}: {text}"

    def _names(self) -> str:
        return " and ".join(source.label for source in self.settings.sources)
