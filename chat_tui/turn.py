"""The turn that is looked at: its answers, earlier ones and those that are growing.

`RunningTurn` takes the engine's events as they come and lets the answers of the tree grow by them.
A turn is shown here from when it is asked until one of its answers is picked, and again when the
user goes back to it (`RunningTurn.again`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chat_tui.conversation import Conversation
from chat_tui.model import Model
from chat_tui.settings import show_top_k
from chat_tui.tree import Answer, Beginning, Turn
from engine.messages import RowFinished, Started, Stats, Stepped, per_row


@dataclass
class RunningTurn:
    """A message, its answers, and the ask that is on its way.

    `rows` are all answers that are shown; from place `first` on, they are those of this ask, and
    row i of the engine's events is `rows[first + i]`.

    Attributes:
        ask: the number its events carry.
        user: what was asked.
        count: how many answers this ask is for; 0 where earlier ones are only looked at.
        top_ks, system, tools: what it was asked with.
        turn: its place in the tree; None until the engine has begun.
        beginning: what the new answers are given to begin with.
        picked: the row that the conversation goes on with; None until one is picked.
        over: no event will come for it any more.
        lost: why the rows ended before their end, where the engine failed.
        stopping_at: when the user asked for its end.
        asked_at, first_at, last_at: seconds on the screen's clock, for the figures shown while it
            runs; `stats` replaces them by the engine's own.
    """

    ask: int
    user: str
    count: int
    top_ks: tuple[int | None, ...] = (None,)
    system: str | None = None
    tools: bool = True
    turn: Turn | None = None
    beginning: Beginning | None = None
    asked_at: float = 0.0
    prompt_tokens: tuple[int, ...] = ()
    preface_tokens: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    started: bool = False
    prefilled: tuple[int, int] = (0, 0)
    rows: list[Answer] = field(default_factory=list)
    first: int = 0
    picked: int | None = None
    over: bool = False
    lost: str = ""
    stats: Stats | None = None
    stopping_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None

    def __post_init__(self) -> None:
        if self.turn is not None:
            self.rows = list(self.turn.answers)
        self.first = len(self.rows)
        if self.count == 1 and not self.rows:
            self.picked = 0

    @classmethod
    def again(cls, conversation: Conversation, turn: Turn) -> RunningTurn:
        """A turn that was answered before, to be looked at; `conversation` stands before it."""
        shown = cls(0, turn.user, 0, turn=turn, started=True, over=True)
        if shown.rows:
            prompt = shown.rows[-1].prompt
            shown.prompt_tokens = conversation.prompt_tokens(prompt)
            shown.preface_tokens = len(prompt.preface)
            shown.seed = shown.rows[-1].seed
        return shown

    # What the engine says.

    def start(
        self, event: Started, conversation: Conversation, model: Model, asked_at: float
    ) -> None:
        """The engine has begun: make the answers' places in the tree."""
        self.started = True
        self.prompt_tokens = event.prompt_tokens[: len(event.prompt_tokens) - len(event.answer)]
        self.preface_tokens = event.preface_tokens
        self.seed = event.seed
        self.max_tokens = event.max_tokens
        tree = conversation.tree
        prompt = conversation.prompt(event, model, self.system, self.tools)
        head = conversation.head
        if self.turn is None:
            self.turn = tree.add_turn(head, self.user, asked_at)
            if head is not None:
                tree.turn_of(head).picked = head.id
        top_ks = per_row(self.top_ks, self.count)
        for row in range(self.count):
            answer = tree.add_answer(
                self.turn,
                prompt=prompt,
                model=model,
                seed=event.seed + row,
                temperature=event.temperatures[row % len(event.temperatures)],
                top_k=top_ks[row],
            )
            if self.beginning is not None:
                answer.begin(self.beginning, event.answer, event.answer_text, event.answer_ends)
            self.rows.append(answer)

    def step(self, event: Stepped, now: float) -> None:
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now
        for row, (answer, token, mask, text) in enumerate(
            zip(self.own, event.tokens, event.masks, event.texts, strict=True)
        ):
            if token is not None:
                score = event.scores[row] if event.scores else None
                answer.append(token, 1 if mask is None else mask, text, score)

    def end_row(self, event: RowFinished) -> None:
        self.own[event.row].end(event.reason, event.closing, event.text)

    def end(self, stats: Stats | None = None, lost: str = "") -> None:
        """No more events: whatever has no reason yet was cut off."""
        self.over = True
        self.stats = stats
        self.lost = lost
        for answer in self.own:
            if answer.reason is None:
                answer.end("cancelled")

    # What it is.

    @property
    def own(self) -> list[Answer]:
        """The answers of this ask."""
        return self.rows[self.first :]

    @property
    def samples(self) -> int:
        """How many answers there are to choose from, or will be."""
        return len(self.rows) if self.started else self.first + self.count

    @property
    def empty(self) -> bool:
        """Nothing was generated in any of this ask's rows, and none ended by itself."""
        return all(answer.empty for answer in self.own)

    @property
    def labels(self) -> list[str]:
        """What differs between the rows, one label each; none where nothing does."""
        temperatures = len({answer.temperature for answer in self.rows}) > 1
        top_ks = len({answer.top_k for answer in self.rows}) > 1
        labels = [
            " · ".join(
                part
                for part in (
                    f"T {answer.temperature:g}" if temperatures else "",
                    show_top_k(answer.top_k) if top_ks else "",
                    self._origin(answer),
                )
                if part
            )
            for answer in self.rows
        ]
        return labels if any(labels) else []

    def _origin(self, answer: Answer) -> str:
        if answer.source is None or self.turn is None:
            return ""
        places = {own.id: place for place, own in enumerate(self.turn.answers, 1)}
        return f"{answer.given} from {places.get(answer.source, '?')}"

    def ttft(self) -> float | None:
        if self.stats is not None:
            return self.stats.ttft_s
        return None if self.first_at is None else self.first_at - self.asked_at

    def rates(self) -> tuple[float, float] | None:
        """Tokens per second of the longest row, and of all rows together."""
        counts = [answer.sampled for answer in self.own]
        if self.stats is not None:
            if self.stats.decode_s <= 0:
                return None
            longest = max(self.stats.row_tokens, default=0)
            return (longest - 1) / self.stats.decode_s, self.stats.tokens_per_s
        if self.first_at is None or self.last_at is None or self.last_at - self.first_at < 0.5:
            return None
        seconds = self.last_at - self.first_at
        return (max(counts) - 1) / seconds, (sum(counts) - len(counts)) / seconds
