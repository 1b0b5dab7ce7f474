"""Decoding on a GPU that never waits for the host: while the network runs on one column, the host
looks at it.

    device   ... advance 1 | emit 2 | advance 2 ......... | emit 3 | advance 3 .........
                                  \\                             \\
    host          launch 2 . wait  column 2: push, show, launch 3 . wait  column 3: push, ...

What `advance k` runs is column k, and that is settled on the device: a row's next id is the one
that it sampled, unless one is forced; and whether one is forced follows from the columns before k,
which the host has seen when it launches k. So nothing that is run has to be taken back. A stop, or
a cancellation, is seen one step late: that row's step has been in vain, and the row leaves before
the next. The ids, the masks and the order of events are those of `EagerDecoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from engine.decoding import RESERVE, Asked
from engine.graphs import DRAWS, DecodeGraphs
from engine.kv_cache import KVCache, RowTail
from engine.rows import RowState
from engine.sampling import generators


class PipelinedDecoder:
    def __init__(self, graphs: DecodeGraphs, asked: Asked) -> None:
        self.graphs = graphs
        self.asked = asked
        self._generators = generators(asked.seed, asked.num_samples)
        self._columns = 0  # emitted so far
        self._cells: list[list[float]] = []
        context = graphs.model.shape.context
        wanted = asked.params.max_tokens
        longest = asked.prompt + (RESERVE if wanted is None else min(RESERVE, wanted))
        graphs.fit(asked.num_samples, min(context, longest))
        self._sampling = graphs.begin(asked.params, asked.num_samples)
        self._draw(range(asked.num_samples))

    def prompt_cache(self, reused: KVCache | None) -> KVCache:
        cache = self.graphs.cache
        if reused is not cache:
            cache.start_over()
        return cache

    def begin(self, prompt: KVCache, logits: Tensor) -> None:
        assert prompt is self.graphs.cache, "the prompt is run where the rows will be"
        self.graphs.start_from(logits, self.asked.num_samples)

    def column(self, active: Sequence[RowState], last: bool) -> list[int]:
        graphs, rows = self.graphs, len(active)
        forced = {
            place: row.forced_tokens[0] for place, row in enumerate(active) if row.forced_tokens
        }
        if forced:
            graphs.force(forced, rows)
        if self._columns and self._columns % DRAWS == 0:
            self._draw([row.index for row in active])
        graphs.emit(rows, self._sampling)
        if not last:
            if self._columns == 0:
                graphs.spread(rows)  # behind `emit`: the first column need not wait for it
            graphs.advance()
        self._columns += 1
        self._cells = graphs.column()
        return [int(cells[0]) for cells in self._cells]

    def _draw(self, rows: Iterable[int]) -> None:
        """The random numbers of the next steps."""
        if not self._sampling.greedy:
            sources = [self._generators[row] for row in rows]
            self.graphs.draw([[source.random() for _ in range(DRAWS)] for source in sources])

    def measured(self, active: Sequence[RowState]) -> list[list[float]]:
        return [cells[1:] for cells in self._cells]

    def tail_of(self, place: int, start: int) -> RowTail:
        cache = self.graphs.cache
        # Rows that end with the first column have never been spread to.
        return cache.tail_of(min(place, cache.batch - 1), start)

    def keep(self, places: list[int]) -> None:
        self.graphs.keep(places)
