"""One ask, put to a server: the requests it takes, and the events that come of them.

N answers are one request with `n` where the server takes that, so that their prefix is shared
there; else N requests at a time. Answers that are sampled otherwise part the request: `n` knows
one way.
What a server refuses by name (`top_k`, `logprobs`, ...) is left out from then on, and said
(`Traits.note`). A request is repeated only while nothing of its answer has been shown, so nothing
is ever shown twice.

Where the server takes token ids (`Exact`), the request is the conversation's own list of ids, on
`/completions`; else, and where a tool is offered that ids cannot give, it is messages, on
`/chat/completions`. A call of the calculator ends the request, which stops the server; its result
is put behind it, and the next request goes on from there. So answers that may well call are
requests of their own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from itertools import groupby
from operator import attrgetter
from typing import Any

import httpx

from chat_tui.backends.bodies import MOST_ROUNDS, Bodies
from chat_tui.backends.chunks import Usage
from chat_tui.backends.endpoint import Endpoint, body_of
from chat_tui.backends.exact import Exact, Prompt, behind
from chat_tui.backends.faults import (
    ContextError,
    RefusedError,
    ServerError,
    of_status,
    of_transport,
)
from chat_tui.backends.server_row import Row, Unit
from chat_tui.backends.stream import END, Limits, chunks
from chat_tui.backends.traits import Traits
from engine.messages import (
    Ask,
    Event,
    Failed,
    Finished,
    FinishReason,
    Overflowed,
    RowFinished,
    Started,
    Stats,
    Stepped,
    per_row,
)

_PATIENCE_S = 15.0
"""A server that wants to be asked again within this time is; a longer wait is the user's affair."""
_TRIES = 3


class Answering:
    """Runs one `Ask`; `say` is given its events."""

    def __init__(
        self,
        ask: Ask,
        http: httpx.AsyncClient,
        where: Endpoint,
        traits: Traits,
        exact: Exact | None,
        limits: Limits,
        say: Callable[[Event], None],
    ) -> None:
        self._ask, self._http, self._where = ask, http, where
        self._traits, self._exact, self._limits, self._say = traits, exact, limits, say
        sampling = zip(
            per_row(ask.params.temperatures, ask.samples),
            per_row(ask.params.top_ks, ask.samples),
            strict=True,
        )
        self._rows = [Row(index, *how) for index, how in enumerate(sampling)]
        seed = random.getrandbits(31) if ask.params.seed is None else ask.params.seed
        self._bodies = Bodies(ask, traits, exact, seed)
        self._running: dict[asyncio.Task[None], tuple[Row, ...]] = {}
        self._started = False
        self._error: ServerError | None = None
        self._usage = Usage()
        self._began = time.monotonic()
        self._first_at: float | None = None
        self._last_at = self._began

    async def run(self) -> None:
        """From the first request to `Finished`, `Failed` or `Overflowed`."""
        if (event := await self._prepare()) is not None:
            return self._say(event)
        sampling = attrgetter("temperature", "top_k")
        for (temperature, _), group in groupby(self._rows, key=sampling):
            rows = tuple(row for row in group if not row.ended)
            # vLLM refuses several greedy samples, which says nothing about others.
            together = rows and temperature > 0 and self._traits.takes("n") and not self._calls
            for part in [rows] if together else [(row,) for row in rows]:
                self._spawn(self._round(part), part)
        try:
            while self._running:
                done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del self._running[task]
                    if not task.cancelled():
                        task.result()  # what is raised here is a fault of ours
        finally:
            for task in self._running:
                task.cancel()
            for row in self._rows:  # for one that misses it, as `asyncio.wait_for` lets them
                row.ended = True
            await asyncio.gather(*self._running, return_exceptions=True)
        return self._say(self._end())

    async def _prepare(self) -> Failed | Overflowed | None:
        """Make the prompt's ids, where that is possible; an event where nothing is to be asked."""
        ask, exact = self._ask, self._exact
        begun = bool(ask.answer or ask.answer_text)
        by_ids = exact is not None and (
            begun or not ask.tools or exact.tools is not None or not self._traits.takes("tools")
        )
        if exact is not None and by_ids:
            try:
                prompt = self._bodies.prompt = await exact.prompt(ask)
            except ServerError as error:
                return Failed(ask.ask, self._where.redact(str(error)))
            if prompt is not None and len(prompt.ids) >= exact.context:
                return Overflowed(ask.ask, len(prompt.ids), exact.context, prompt.sizes)
            if prompt is not None:
                for row in self._rows:
                    row.names = exact.names
                    if ask.tools and exact.tools is not None:
                        row.follow(exact.tools.follower(), prompt.answer_text)
        if begun and self._prompt is None:
            return Failed(ask.ask, f"{self._where.host} cannot go on from the middle of an answer.")
        return None

    @property
    def _prompt(self) -> Prompt | None:
        """The ids that are sent; None where messages are."""
        return self._bodies.prompt

    @property
    def _calls(self) -> bool:
        """Whether answers are likely to call the calculator, and to leave their request there."""
        forced = any(row.forced for row in self._rows)
        return forced or (self._prompt is not None and self._prompt.calls)

    def cancel(self, index: int | None) -> None:
        """End one row, or all; a request that nobody waits for any more is closed."""
        for row in self._rows if index is None else self._rows[index : index + 1]:
            self._end_row(row, "cancelled")
        for task, rows in self._running.items():
            if all(row.ended for row in rows):
                task.cancel()

    # Requests.

    def _spawn(self, work: Coroutine[Any, Any, None], rows: tuple[Row, ...]) -> None:
        self._running[asyncio.create_task(work)] = rows

    def _part(self, row: Row) -> None:
        """Let a row of the request that runs go on in one of its own."""
        task = asyncio.current_task()
        if task in self._running:
            self._running[task] = tuple(each for each in self._running[task] if each is not row)
        self._spawn(self._round((row,)), (row,))

    async def _round(self, rows: tuple[Row, ...]) -> None:
        """One request for `rows`; whatever goes wrong is kept for the end of the ask."""
        try:
            if rows[0].forced and not rows[0].ended:
                await self._force(rows[0])
            if rows[0].ended:
                return
            async with aclosing(await self._open(rows)) as response:
                alone = rows if self._traits.takes("n") else rows[:1]
                for row in rows[len(alone) :]:
                    self._part(row)
                self._start()
                await self._read(response, alone)
        except ServerError as error:
            self._error = self._error or error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._error = self._error or of_transport(error, self._where.host)

    async def _force(self, row: Row) -> None:
        """Put behind a call what it came to."""
        assert self._exact is not None
        assert self._prompt is not None
        text = self._exact.text
        ids = await text.literal(row.forced)
        room = self._exact.context - len(self._prompt.ids) - len(row.ids)
        if self._ask.params.max_tokens is not None:
            room = min(room, self._ask.params.max_tokens - len(row.ids))
        texts = await text.texts(ids, row.forced)
        self._start()
        self._step(row.force(ids[:room], texts[:room]), row)
        if room <= len(ids):
            row.finish = "length"
            self._end_row(row, row.reason(self._ask.params.max_tokens))

    async def _open(self, rows: Sequence[Row]) -> httpx.Response:
        """The response that streams; left out is what the server refuses by name."""
        tried = 0
        refused: set[str] = set()
        while True:
            tried += 1
            body = self._bodies.of(rows, refused)
            page = "completions" if "prompt" in body else "chat/completions"
            request = self._http.build_request("POST", f"{self._where.base}/{page}", json=body)
            try:
                response = await asyncio.wait_for(
                    self._http.send(request, stream=True), self._limits.first_s
                )
            except asyncio.TimeoutError:
                raise ServerError(
                    f"{self._where.host} does not answer within {self._limits.first_s:.0f} s."
                ) from None
            if response.status_code == 200:
                if refused:
                    self._traits.learn(refused, tools=self._ask.tools)
                return response
            async with aclosing(response):
                error = of_status(
                    response.status_code,
                    response.headers,
                    await body_of(response),
                    self._where.host,
                    has_key=bool(self._where.key),
                )
            if not isinstance(error, RefusedError):
                raise error
            name = self._traits.refused(error, body)
            if name:
                refused.add(name)
            elif error.wait_s is not None and error.wait_s <= _PATIENCE_S and tried < _TRIES:
                await asyncio.sleep(error.wait_s)
            else:
                raise error

    # What comes back.

    async def _read(self, response: httpx.Response, rows: tuple[Row, ...]) -> None:
        begun: set[int] = set()
        ended: set[int] = set()
        goes_on = bool(rows[0].ids)
        parted: set[int] = set()
        complete = False
        async with aclosing(chunks(response, self._where.host, self._limits)) as stream:
            async for chunk in stream:
                if chunk is END:
                    complete = True
                    break
                if chunk.error:
                    raise ServerError(
                        f"{self._where.host} failed in the middle: {chunk.error[:300]}"
                    )
                if chunk.usage is not None and not goes_on:
                    self._count(chunk.usage)
                for piece in chunk.pieces:
                    if piece.index >= len(rows) or piece.index in ended:
                        continue
                    row = rows[piece.index]
                    begun.add(piece.index)
                    if not row.ended:
                        self._step(row.take(piece), row)
                    if row.forced:
                        ended.add(piece.index)
                        parted.add(piece.index)
                        self._part(row)
                    elif piece.finish:
                        ended.add(piece.index)
                        self._finish_round(row)
                everybody = range(len(rows))
                if all(rows[index].ended or index in parted for index in everybody) and (
                    parted or not ended.issuperset(everybody)
                ):
                    return  # nobody waits for the rest: the request is closed, and it ends there
        if not complete and (begun > ended or not begun):
            raise ServerError(f"{self._where.host} ended the stream in the middle of the answer.")
        for index, row in enumerate(rows):
            if index in begun or not begun:
                if index not in ended:  # the end of the stream has to do as a reason
                    self._finish_round(row)
            elif not row.ended:  # `n` was taken, and ignored
                self._traits.learn({"n"}, tools=self._ask.tools)
                self._part(row)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            prompt = self._prompt or Prompt()
            self._say(
                Started(
                    ask=self._ask.ask,
                    prompt_tokens=prompt.ids,
                    preface_tokens=prompt.preface,
                    seed=self._bodies.seed,
                    temperatures=tuple(row.temperature for row in self._rows),
                    max_tokens=self._ask.params.max_tokens or 0,
                    answer=prompt.answer,
                    answer_text=prompt.answer_text,
                )
            )

    def _step(self, units: Iterable[Unit], row: Row) -> None:
        before, after = row.index, len(self._rows) - row.index - 1
        for unit in units:
            self._last_at = time.monotonic()
            self._first_at = self._first_at or self._last_at
            self._say(
                Stepped(
                    ask=self._ask.ask,
                    tokens=(*[None] * before, unit.token, *[None] * after),
                    masks=(*[None] * before, unit.mask, *[None] * after),
                    texts=(*[""] * before, unit.text, *[""] * after),
                    calls=() if unit.call is None else ((row.index, *unit.call),),
                    scores=()
                    if unit.score is None
                    else (*[None] * before, unit.score, *[None] * after),
                )
            )

    def _finish_round(self, row: Row) -> None:
        """A row's part of a stream is over: it goes on behind its tool calls, or has ended."""
        limit = self._ask.params.max_tokens
        if row.ended:
            return
        cut = row.finish == "length" or row.filtered
        if row.calling and not cut and row.rounds < MOST_ROUNDS:
            self._step(row.end_round(), row)
            if limit is None or len(row.ids) < limit:
                self._spawn(self._round((row,)), (row,))
                return
            row.finish = "length"
        self._end_row(row, row.reason(limit))

    def _end_row(self, row: Row, reason: FinishReason) -> None:
        if not row.ended:
            row.ended = True
            self._start()  # it may have been cancelled before
            closing = () if self._prompt is None else behind(row.ids[-1:], self._prompt.closing)
            self._say(RowFinished(self._ask.ask, row.index, reason, closing))

    # The end.

    def _end(self) -> Event:
        ask, error = self._ask.ask, self._error
        if isinstance(error, ContextError) and error.limit and not self._started:
            return Overflowed(ask, error.prompt_tokens, error.limit, self._sizes(error))
        if error is not None:
            return Failed(ask, self._where.redact(str(error)))
        return Finished(ask, self._stats())

    def _sizes(self, error: ContextError) -> tuple[int, ...]:
        """The server counts the whole; its parts are taken to have tokens as they have letters."""
        parts = [len(each.user) + len(each.text) for each in self._ask.history]
        parts.append(len(self._ask.text) + len(self._ask.system or ""))
        whole = sum(parts) or 1
        return tuple(round(error.prompt_tokens * part / whole) for part in parts)

    def _count(self, usage: Usage) -> None:
        """Answers to several samples are counted in as many ways as there are servers: only a
        single answer's count is believed."""
        before = self._usage
        self._usage = Usage(
            before.prompt if usage.prompt is None else usage.prompt,
            usage.completion if len(self._rows) == 1 else None,
            before.cached if usage.cached is None else usage.cached,
        )

    def _stats(self) -> Stats:
        first = self._last_at if self._first_at is None else self._first_at
        decode_s = self._last_at - first
        counts = [len(row.ids) for row in self._rows]
        counted = self._usage.completion
        if counted is not None and self._prompt is None and not self._rows[0].rounds:
            counts = [counted]
        new = sum(counts) - len(counts)
        return Stats(
            ttft_s=first - self._began,
            prefill_s=0.0,
            decode_s=decode_s,
            tokens_per_s=new / decode_s if decode_s > 0 and new > 0 else 0.0,
            row_tokens=tuple(counts),
            saved_s=0.0,
            backend=self._traits.kind,
            reused_tokens=self._usage.cached or 0,
            prompt_tokens=self._usage.prompt,
        )
