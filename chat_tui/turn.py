"""The turn that is looked at: its answers, earlier ones and those that are growing.

`RunningTurn` takes the engine's events as they come and lets the answers of the tree grow by them.
A turn is shown here from when it is asked until one of its answers is picked, and again when the
user goes back to it (`RunningTurn.again`).

Its new answers come in parts. A `Part` is one ask: the answers of one model under one system text,
which share one prefill. Each part starts, grows and ends by itself; one that fails costs the others
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from chat_tui.answer import Answer, Beginning, Prompt
from chat_tui.conversation import Conversation
from chat_tui.labels import differences
from chat_tui.lanes import Lane
from chat_tui.settings import Setup
from chat_tui.tree import Turn
from engine.messages import Overflowed, RowFinished, Started, Stats, Stepped


@dataclass
class Part:
    """Answers of a turn that grow out of one prompt.

    Row i of the engine's events is `rows[i]`, and `turn.rows[places[i]]`.

    Attributes:
        ask: the number its events carry.
        lane: who is asked.
        setups: what each row is asked with; the system text is the same for all.
        places: where each row stands among the turn's.
        rows: the answers, from when the turn has begun.
        started: the prefill has begun.
        over: no event will come for it any more.
        lost: why the rows ended before their end, where the model failed.
        overflow: the prompt did not fit.
        prefilled: tokens of the prompt that were run, and all of them.
        first_at, last_at: seconds on the screen's clock, for the figures shown while it runs;
            `stats` replaces them by the engine's own.
    """

    ask: int
    lane: Lane
    setups: tuple[Setup, ...]
    places: tuple[int, ...]
    rows: list[Answer] = field(default_factory=list)
    started: bool = False
    over: bool = False
    lost: str = ""
    overflow: Overflowed | None = None
    prefilled: tuple[int, int] = (0, 0)
    max_tokens: int | None = None
    stats: Stats | None = None
    first_at: float | None = None
    last_at: float | None = None

    @property
    def system(self) -> str | None:
        return self.setups[0].system

    def step(self, event: Stepped, now: float) -> None:
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now
        for row, (answer, token, mask, text) in enumerate(
            zip(self.rows, event.tokens, event.masks, event.texts, strict=True)
        ):
            if token is not None:
                score = event.scores[row] if event.scores else None
                answer.append(token, 1 if mask is None else mask, text, score)

    def end_row(self, event: RowFinished) -> None:
        self.rows[event.row].end(event.reason, event.closing, event.text)

    def end(self, stats: Stats | None = None) -> None:
        """No more events: whatever has no reason yet was cut off."""
        self.over, self.stats = True, stats
        for answer in self.rows:
            if answer.reason is None:
                answer.end("cancelled")

    @property
    def empty(self) -> bool:
        """Nothing was generated in any row, and none ended by itself."""
        return all(answer.empty for answer in self.rows)

    def rates(self) -> tuple[float, float] | None:
        """Tokens per second of the longest row, and of all rows together."""
        if self.stats is not None:
            if self.stats.decode_s <= 0:
                return None
            longest = max(self.stats.row_tokens, default=0)
            return (longest - 1) / self.stats.decode_s, self.stats.tokens_per_s
        if self.first_at is None or self.last_at is None or self.last_at - self.first_at < 0.5:
            return None
        counts = [answer.sampled for answer in self.rows]
        seconds = self.last_at - self.first_at
        return (max(counts) - 1) / seconds, (sum(counts) - len(counts)) / seconds


@dataclass
class RunningTurn:
    """A message, its answers, and the asks that are on their way.

    `rows` are all answers that are shown; from place `first` on, they are those of `parts`. When
    all is over, they are the answers that the tree has, in the same order.

    Attributes:
        user: what was asked.
        parts: none where earlier answers are only looked at.
        tools: whether the calculator is offered.
        turn: its place in the tree; None until the first part has started.
        beginning: what the new answers are given to begin with.
        seed: of each part's first row.
        picked: the row that the conversation goes on with; None until one is picked.
        stopping_at: when the user asked for its end.
        asked_at: seconds on the screen's clock.
    """

    user: str
    parts: Sequence[Part] = ()
    tools: bool = True
    turn: Turn | None = None
    beginning: Beginning | None = None
    asked_at: float = 0.0
    seed: int | None = None
    rows: list[Answer] = field(default_factory=list)
    first: int = 0
    picked: int | None = None
    stopping_at: float | None = None

    def __post_init__(self) -> None:
        if self.turn is not None:
            self.rows = list(self.turn.answers)
        self.first = len(self.rows)
        if self.samples == 1 and self.parts:
            self.picked = 0

    @classmethod
    def again(cls, turn: Turn) -> RunningTurn:
        """A turn that was answered before, to be looked at."""
        shown = cls(turn.user, turn=turn)
        shown.seed = shown.rows[-1].seed if shown.rows else None
        return shown

    # What the engine says.

    def begin(self, conversation: Conversation, asked_at: float) -> None:
        """The first part has started: make the turn, and all new answers; each has its place in the
        tree once its own part has started."""
        tree, head = conversation.tree, conversation.head
        if self.turn is None:
            self.turn = tree.add_turn(head, self.user, asked_at)
            if head is not None:
                tree.turn_of(head).picked = head.id
        rows: dict[int, Answer] = {}
        for part in self.parts:
            assert part.lane.model is not None  # nothing is asked before `Ready`
            prompt = Prompt(system=part.system, tools=self.tools)
            for place, setup in zip(part.places, part.setups, strict=True):
                rows[place] = Answer(
                    0,
                    self.turn.id,
                    prompt,
                    part.lane.model,
                    temperature=setup.temperature,
                    top_k=setup.top_k,
                )
        for place in sorted(rows):
            rows[place].id = tree.expect(self.turn)
            self.rows.append(rows[place])
        for part in self.parts:
            part.rows = [rows[place] for place in part.places]

    def start(self, part: Part, event: Started, conversation: Conversation) -> None:
        """A part's prefill begins: its answers are part of the tree from now on."""
        assert self.turn is not None
        part.started = True
        part.max_tokens = event.max_tokens
        self.seed = event.seed
        model = part.rows[0].model
        prompt = conversation.prompt(event, model, part.system, self.tools)
        for row, answer in enumerate(part.rows):
            answer.prompt, answer.seed = prompt, event.seed + row
            if self.beginning is not None:
                answer.begin(self.beginning, event.answer, event.answer_text, event.answer_ends)
            conversation.tree.hold(self.turn, answer)

    def closed_up(self) -> tuple[RunningTurn, tuple[int, ...]]:
        """All is over: the same turn without the rows that came to nothing, so that each stands
        where it stands in the tree; and the places where these stood. What was said to be drawn of
        this one, and is not drawn yet, still finds its rows here."""
        assert self.turn is not None
        there = {answer.id for answer in self.turn.answers}
        stay = tuple(place for place, row in enumerate(self.rows) if row.id in there)
        now = {before: place for place, before in enumerate(stay)}
        parts = [
            replace(
                part,
                rows=[row for row in part.rows if row.id in there],
                places=tuple(now[place] for place in part.places if place in now),
            )
            for part in self.parts
        ]
        closed = replace(self, parts=parts)  # its rows are those of the tree
        closed.first = self.first
        closed.picked = None if self.picked is None else now.get(self.picked)
        return closed, stay

    # What it is.

    @property
    def started(self) -> bool:
        """There is something to see."""
        return not self.parts or len(self.rows) > self.first

    @property
    def over(self) -> bool:
        return all(part.over for part in self.parts)

    @property
    def lost(self) -> str:
        """Why answers ended before their end, where a model failed."""
        return " ".join(dict.fromkeys(part.lost for part in self.parts if part.lost))

    @property
    def own(self) -> list[Answer]:
        """The answers of its parts."""
        return self.rows[self.first :]

    @property
    def samples(self) -> int:
        """How many answers there are to choose from, or will be."""
        return self.first + sum(len(part.places) for part in self.parts)

    @property
    def empty(self) -> bool:
        """Nothing was generated in any of its parts' rows, and none ended by itself."""
        return all(part.empty for part in self.parts)

    def part_of(self, row: int) -> Part | None:
        """The part that a row is of; None for an earlier answer."""
        return next((part for part in self.parts if row in part.places), None)

    def lacks(self, row: int) -> str:
        """That there is no such row, in a line."""
        there = "is 1 answer" if len(self.rows) == 1 else f"are {len(self.rows)} answers"
        return f"There {there}, no {row + 1}."

    def can_pick(self, row: int) -> bool:
        """Whether the conversation can go on with a row: it has begun, and did not come to
        nothing."""
        if not 0 <= row < len(self.rows):
            return False
        part = self.part_of(row)
        return part is None or (part.started and not (part.over and self.rows[row].empty))

    @property
    def group(self) -> int:
        """How many rows after one another are of one model under one system text, where there are
        several of these with as many; else 1."""
        kinds = groupby(self.rows, key=lambda row: (row.model, row.prompt.system))
        sizes = [len(list(rows)) for _, rows in kinds]
        return sizes[0] if len(sizes) > 1 and len(set(sizes)) == 1 else 1

    @property
    def labels(self) -> list[str]:
        """What differs between the rows, one label each; none where nothing does."""
        labels = [
            " · ".join(part for part in (differs, self._origin(answer)) if part)
            for differs, answer in zip(differences(self.rows), self.rows, strict=True)
        ]
        return labels if any(labels) else []

    def _origin(self, answer: Answer) -> str:
        if answer.source is None or self.turn is None:
            return ""
        places = {own.id: place for place, own in enumerate(self.rows, 1)}
        return f"{answer.given} from {places.get(answer.source, '?')}"

    @property
    def first_at(self) -> float | None:
        """When the first token came."""
        came = [part.first_at for part in self.parts if part.first_at is not None]
        return min(came, default=None)

    def ttft(self, part: Part) -> float | None:
        """Seconds until a part's first token."""
        if part.stats is not None:
            return part.stats.ttft_s
        return None if part.first_at is None else part.first_at - self.asked_at

    def rate(self) -> float | None:
        """Tokens per second of all parts together."""
        rates = [rates for part in self.parts if (rates := part.rates()) is not None]
        return sum(together for _, together in rates) if rates else None
