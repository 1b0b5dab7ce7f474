"""The decode step of a GPU as two graphs, and the tensors that they read and write.

      logits ---> emit ---> column ---> the host, which may take its time
        ^          |
        |          v
        +-- advance <-- ids        (and appends to the cache)

`emit` samples an id for each row, puts a forced one in its place where there is one, and scores it
where that is asked for. `advance` runs the network on these ids. Between two steps the host writes
at most the forced ids; how rows are sampled depends on numbers that it drew long before. So the
next `advance` can be launched before anybody has looked at the ids that it runs.

There is one `emit` for each number of rows and way to sample, and one `advance` for each number of
rows and capacity of the cache. Both are captured when they are needed for the second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.capture import Capture, Captured
from engine.messages import SamplingParams, per_row
from engine.models.base import Model
from engine.sampling import Kept, choose
from engine.scoring import measure
from engine.static_cache import StaticCache, roomy

DRAWS = 256
"""Steps whose random numbers are drawn and sent at once."""

NOT_FORCED = -1


@dataclass(frozen=True)
class Sampling:
    """What a captured `emit` has decided for ever.

    Attributes:
        greedy: every row takes the likeliest.
        most: the largest top-k of a row.
        uneven: not all rows have that.
        alternatives: to score; None scores nothing.
    """

    greedy: bool
    most: int
    uneven: bool
    alternatives: int | None


@dataclass(frozen=True)
class _Emission:
    """An `emit` and where it puts its column: float64 (rows, 1 + what `measure` returns), the id
    first; ids are whole numbers far below 2^53."""

    run: Captured
    column: Tensor
    on_host: Tensor


class DecodeGraphs:
    """All that the decode steps of one engine share, one ask after the other."""

    def __init__(self, model: Model, capture: Capture | None) -> None:
        self.model = model
        self.capture = capture
        self.device = model.device
        self._on_gpu = self.device.type == "cuda"
        self._emitted: Tensor
        self._arrived: torch.cuda.Event | None = None
        if self._on_gpu:
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        seq = roomy(1, model.shape.context)
        self.cache = StaticCache(model.shape, 1, seq, dtype=model.dtype, device=self.device)
        self._make_columns(1)

    def _make_columns(self, rows: int) -> None:
        device = self.device
        self._ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._forced = torch.full((rows,), NOT_FORCED, dtype=torch.int64, device=device)
        self._logits = torch.zeros(rows, self.model.shape.vocab_size, device=device)
        self._temperatures = torch.ones(rows, 1, device=device)
        self._top_ks = torch.ones(rows, 1, dtype=torch.int64, device=device)
        self._draws = torch.zeros(rows, DRAWS, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._forced_on_host = self._pinned(rows, dtype=torch.int64)
        self._draws_on_host = self._pinned(rows, DRAWS)
        self._forget()

    def _forget(self) -> None:
        """What has been captured holds on to tensors that are no longer in use."""
        if self._on_gpu:
            torch.cuda.synchronize(self.device)  # a graph must not go while it runs
        self._emissions: dict[tuple[int, Sampling], _Emission] = {}
        self._advances: dict[int, Captured] = {}

    def _pinned(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """On the host, where the device can copy from and to while both go on."""
        return torch.zeros(shape, dtype=dtype, pin_memory=self._on_gpu)

    def fit(self, rows: int, seq: int) -> None:
        """Make room for `rows` rows of `seq` positions."""
        moves = self.cache.moves
        self.cache.fit(rows, seq, self.model.shape.context)
        if rows > len(self._ids):
            self._make_columns(rows)
        elif self.cache.moves > moves:
            self._forget()

    @torch.inference_mode()
    def begin(self, params: SamplingParams, rows: int) -> Sampling:
        """Set how the rows of an ask are sampled. Waits for the device, which has nothing to do
        yet."""
        temperatures = per_row(params.temperatures, rows)
        vocab_size = self.model.shape.vocab_size
        kept = Kept.of(per_row(params.top_ks, rows), vocab_size, self.device)
        self._temperatures[:rows, 0] = torch.tensor(temperatures)
        self._top_ks[:rows] = kept.most if kept.of_row is None else kept.of_row
        self._forced.fill_(NOT_FORCED)
        return Sampling(
            greedy=not any(temperatures),
            most=kept.most,
            uneven=kept.of_row is not None,
            alternatives=params.alternatives,
        )

    @torch.inference_mode()
    def start_from(self, logits: Tensor, rows: int) -> None:
        """Every row goes on behind the same logits (1, vocab_size)."""
        self._logits[:rows] = logits

    @torch.inference_mode()
    def spread(self, rows: int) -> None:
        """Give the prompt in row 0 of the cache to all rows."""
        self.cache.spread(rows)

    @torch.inference_mode()
    def draw(self, numbers: Sequence[Sequence[float]]) -> None:
        """The next `DRAWS` random numbers of each row. The numbers before have been used up."""
        rows = len(numbers)
        self._draws_on_host[:rows] = torch.tensor(numbers)
        self._draws[:rows].copy_(self._draws_on_host[:rows], non_blocking=True)
        self._step.zero_()

    @torch.inference_mode()
    def force(self, ids: Mapping[int, int], rows: int) -> None:
        """The rows' next ids, whatever they sample, by their places. The `column` before must have
        been waited for: until then the device may still read what was forced on that."""
        self._forced_on_host[:rows] = torch.tensor(
            [ids.get(place, NOT_FORCED) for place in range(rows)]
        )
        self._forced[:rows].copy_(self._forced_on_host[:rows], non_blocking=True)

    @torch.inference_mode()
    def emit(self, rows: int, sampling: Sampling) -> None:
        """Launch the choice of the next id of each row; `column` has them when it is done."""
        emission = self._emissions.get((rows, sampling))
        if emission is None:
            alternatives = sampling.alternatives
            cells = 1
            if alternatives is not None:
                cells += 4 + 2 * min(alternatives, self.model.shape.vocab_size)
            column = torch.zeros(rows, cells, dtype=torch.float64, device=self.device)
            run = Captured(partial(self._emit, rows, sampling, column), self.capture)
            on_host = self._pinned(rows, cells, dtype=torch.float64)
            emission = self._emissions[rows, sampling] = _Emission(run, column, on_host)
        emission.run()
        emission.on_host.copy_(emission.column, non_blocking=True)
        self._emitted = emission.on_host
        if self._arrived is not None:
            self._arrived.record(torch.cuda.current_stream(self.device))

    def column(self) -> list[list[float]]:
        """Wait for what was last emitted, and for nothing that was launched behind it: for each row
        its id and, where that was asked for, its scores."""
        if self._arrived is not None:
            self._arrived.synchronize()
        cells: list[list[float]] = self._emitted.tolist()
        return cells

    def _emit(self, rows: int, sampling: Sampling, column: Tensor) -> None:
        logits, temperatures = self._logits[:rows], self._temperatures[:rows]
        kept = Kept(sampling.most, self._top_ks[:rows] if sampling.uneven else None)
        if sampling.greedy:
            sampled = logits.argmax(-1)
        else:
            draws = self._draws[:rows].index_select(1, self._step)
            sampled = choose(logits, temperatures, draws, kept)
            self._step += 1
        forced, ids = self._forced[:rows], self._ids[:rows]
        ids.copy_(torch.where(forced == NOT_FORCED, sampled, forced))
        forced.fill_(NOT_FORCED)
        column[:, 0] = ids
        if sampling.alternatives is not None:
            scale = None
            if not sampling.greedy:
                scale = temperatures.masked_fill(temperatures == 0, 1)
            column[:, 1:] = measure(logits, ids, sampling.alternatives, scale, kept)

    @torch.inference_mode()
    def advance(self) -> None:
        """Launch the network on what was last emitted, for all rows of the cache."""
        rows, length = self.cache.batch, self.cache.length
        moves = self.cache.moves
        self.cache.reserve(1, self.model.shape.context)
        if self.cache.moves > moves:
            self._forget()
        step = self._advances.get(rows)
        if step is None:
            step = self._advances[rows] = Captured(partial(self._advance, rows), self.capture)
        step()
        self.cache.stepped_to(length + 1)

    def _advance(self, rows: int) -> None:
        logits = self.model.forward(self._ids[:rows, None], self.cache)
        self._logits[:rows].copy_(logits)

    @torch.inference_mode()
    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these, which are in ascending order."""
        self.cache.keep(rows)
        for place, row in enumerate(rows):
            if place != row:
                for value in (self._logits, self._temperatures, self._top_ks, self._draws):
                    value[place].copy_(value[row])
