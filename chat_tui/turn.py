"""The turn that is being answered: N rows that grow until each has ended.

`RunningTurn` takes the engine's events as they come and knows, at any moment, what every row's
exact tokens, mask and text are. When a row has been picked and has ended, `finished()` makes the
`conversation.Turn` that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chat_tui.conversation import Sample, Turn
from engine.messages import FinishReason, RowFinished, Started, Stats, Stepped, ToolCall


@dataclass
class RunningRow:
    """One answer while it grows; `forced` are the character spans that the engine put there."""

    temperature: float = 0.0
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    forced: list[tuple[int, int]] = field(default_factory=list)
    calls: dict[int, ToolCall] = field(default_factory=dict)
    reason: FinishReason | None = None
    closing: tuple[int, ...] = ()

    def append(self, text: str, forced: bool) -> None:
        if not text:
            return
        start, self.length = self.length, self.length + len(text)
        self.pieces.append(text)
        if not forced:
            return
        if self.forced and self.forced[-1][1] == start:
            start = self.forced.pop()[0]
        self.forced.append((start, self.length))

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def sample(self, index: int) -> Sample:
        return Sample(
            index=index,
            text=self.text,
            tokens=tuple(self.tokens),
            mask=tuple(self.mask),
            closing=self.closing,
            reason=self.reason or "cancelled",
            temperature=self.temperature,
            calls=tuple(call for _, call in sorted(self.calls.items())),
            forced=tuple(self.forced),
        )


@dataclass
class RunningTurn:
    """A message on its way and its rows.

    Attributes:
        ask: the number its events carry.
        picked: the row that the conversation goes on with; None until one is picked.
        over: no event will come for it any more.
        lost: why the rows ended before their end, where the engine failed.
        stopping_at: when the user asked for its end.
        asked_at, first_at, last_at: seconds on the screen's clock, for the figures shown while it
            runs; `stats` replaces them by the engine's own.
    """

    ask: int
    user: str
    samples: int
    top_k: int | None
    asked_at: float = 0.0
    prompt_tokens: tuple[int, ...] = ()
    preface_tokens: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    started: bool = False
    prefilled: tuple[int, int] = (0, 0)
    rows: list[RunningRow] = field(default_factory=list)
    picked: int | None = None
    over: bool = False
    lost: str = ""
    stats: Stats | None = None
    stopping_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None

    def __post_init__(self) -> None:
        self.rows = [RunningRow() for _ in range(self.samples)]
        if self.samples == 1:
            self.picked = 0

    def start(self, event: Started) -> None:
        self.started = True
        self.prompt_tokens = event.prompt_tokens
        self.preface_tokens = event.preface_tokens
        self.seed = event.seed
        self.max_tokens = event.max_tokens
        for index, row in enumerate(self.rows):
            row.temperature = event.temperatures[index % len(event.temperatures)]

    def step(self, event: Stepped, now: float) -> None:
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now
        for row, token, mask, text in zip(
            self.rows, event.tokens, event.masks, event.texts, strict=True
        ):
            if token is not None:
                row.tokens.append(token)
                row.mask.append(1 if mask is None else mask)
            row.append(text, forced=mask == 0)
        for index, number, call in event.calls:
            self.rows[index].calls[number] = call

    def end_row(self, event: RowFinished) -> None:
        row = self.rows[event.row]
        row.reason = event.reason
        row.closing = event.closing
        row.append(event.text, forced=False)

    def end(self, stats: Stats | None = None, lost: str = "") -> None:
        """No more events: whatever has no reason yet was cut off."""
        self.over = True
        self.stats = stats
        self.lost = lost
        for row in self.rows:
            row.reason = row.reason or "cancelled"

    @property
    def empty(self) -> bool:
        """Nothing was generated in any row, and none ended by itself."""
        return all(not row.tokens and row.reason in (None, "cancelled") for row in self.rows)

    @property
    def settled(self) -> bool:
        """A row is picked and has ended: the turn can be kept and the next one asked."""
        return self.picked is not None and self.rows[self.picked].reason is not None

    @property
    def active(self) -> int:
        return sum(row.reason is None for row in self.rows)

    @property
    def labels(self) -> list[str]:
        """What differs between the rows, one label each; none where nothing does."""
        if len({row.temperature for row in self.rows}) < 2:
            return []
        return [f"T {row.temperature:g}" for row in self.rows]

    def ttft(self) -> float | None:
        if self.stats is not None:
            return self.stats.ttft_s
        return None if self.first_at is None else self.first_at - self.asked_at

    def rates(self) -> tuple[float, float] | None:
        """Tokens per second of the longest row, and of all rows together."""
        counts = [len(row.tokens) for row in self.rows]
        if self.stats is not None:
            if self.stats.decode_s <= 0:
                return None
            longest = max(self.stats.row_tokens, default=0)
            return (longest - 1) / self.stats.decode_s, self.stats.tokens_per_s
        if self.first_at is None or self.last_at is None or self.last_at - self.first_at < 0.5:
            return None
        seconds = self.last_at - self.first_at
        return (max(counts) - 1) / seconds, (sum(counts) - len(counts)) / seconds

    def finished(self, model: str) -> Turn:
        """What is kept of this turn. Only where it is `settled`."""
        assert self.picked is not None
        return Turn(
            user=self.user,
            samples=tuple(row.sample(index) for index, row in enumerate(self.rows)),
            picked=self.picked,
            model=model,
            seed=self.seed,
            top_k=self.top_k,
            prompt_tokens=len(self.prompt_tokens),
            preface_tokens=self.preface_tokens,
        )
