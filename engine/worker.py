"""The engine in a process of its own: requests in on stdin, events out on stdout.

    python -c 'from engine.worker import main; main()'

Both directions are pickles of the dataclasses in `engine.messages`, one after the other; the two
ends are always the same installation of this program, started by `chat_tui.backends.local`.
Requests are answered in order, except `Cancel` and `Count`, which take effect at once. When stdin
ends, the process ends: an engine never outlives its screen.

Whatever a library prints goes to stderr: the descriptor that carries events is taken away from
stdout first.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

from engine import threads
from engine.errors import EngineError, ModelDoesNotFitError
from engine.messages import (
    Ask,
    Cancel,
    Count,
    Counted,
    Event,
    Failed,
    Finished,
    Load,
    Loading,
    Overflowed,
    Prefilling,
    Ready,
    Request,
    RowFinished,
    SamplingParams,
    Score,
    Scored,
    Started,
    Stats,
    Stepped,
    per_row,
)

if TYPE_CHECKING:
    from engine.generate import Cancellation, Engine
    from engine.load import LoadedModel


def main() -> None:
    """Serve until stdin ends."""
    requests = sys.stdin.buffer
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Worker(events).serve(requests)


NO_MODEL = "No model is loaded: load one first."


class Worker:
    def __init__(self, events: BinaryIO) -> None:
        self._events = events
        self._queue: queue.SimpleQueue[Load | Ask | Score] = queue.SimpleQueue()
        self._cancelled_asks: set[int] = set()
        self._running: tuple[int, Cancellation] | None = None
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._engine: Engine | None = None
        self._held: Load | None = None  # how the engine's model was asked for

    def serve(self, requests: BinaryIO) -> None:
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        while True:
            request = self._queue.get()
            try:
                if isinstance(request, Load):
                    self._load(request)
                elif isinstance(request, Score):
                    self._score(request)
                else:
                    self._ask(request)
            except EngineError as error:
                self._failed(request, str(error))
            except Exception as error:
                kind = type(error).__name__
                if kind in ("MemoryError", "OutOfMemoryError"):  # Python's, or torch's of a GPU
                    self._failed(request, "Out of memory: use fewer samples or a smaller model.")
                    continue
                # A fault of ours: it costs the answer, not the program.
                import traceback

                traceback.print_exc()
                first = (str(error).splitlines() or [""])[0]
                self._failed(request, f"The engine failed: {kind}: {first}")

    def _read(self, requests: BinaryIO) -> None:
        """On a thread of its own, so that a cancellation is seen while the engine computes, and
        what is being written can be counted."""
        try:
            while True:
                request: Request = pickle.load(requests)
                if isinstance(request, Cancel):
                    self._cancel(request)
                elif isinstance(request, Count):
                    self._count(request)
                else:
                    self._queue.put(request)
        except (EOFError, pickle.UnpicklingError, OSError):
            os._exit(0)  # not sys.exit: the main thread is inside a kernel and nothing needs saving

    def _cancel(self, request: Cancel) -> None:
        with self._lock:
            if self._running and self._running[0] == request.ask:
                self._running[1].cancel(request.row)
            elif request.row is None:
                self._cancelled_asks.add(request.ask)

    def _send(self, event: Event) -> None:
        try:
            with self._sending:
                pickle.dump(event, self._events)
                self._events.flush()
        except BrokenPipeError:
            os._exit(0)

    def _failed(self, request: Load | Ask | Score, message: str) -> None:
        if isinstance(request, Load):
            self._send(Failed(None, message, kept=self._engine is not None))
        else:
            self._send(Failed(request.ask, message))

    def _load(self, request: Load) -> None:
        from engine.loading import catalog
        from engine.native import library

        if self._engine is not None and self._held is not None and request.same_model(self._held):
            threads.settle(request.threads)
            self._send(Ready(self._engine.info))
            return
        compiling = threading.Thread(target=library.load, daemon=True)
        compiling.start()  # on the first start of all, seconds beside a download
        catalog.resolve(request.name, lambda *progress: self._send(Loading(*progress)))
        self._send(Loading("Starting torch"))
        _start_torch(request.threads)
        if compiling.is_alive():
            self._send(Loading("Compiling for this machine, once"))
            compiling.join()

        from engine.generate import Engine
        from engine.load import load_model

        self._send(Loading(f"Loading {request.name}"))

        def load() -> LoadedModel:
            return load_model(
                request.name,
                device=request.device,
                dtype=request.dtype,
                assume=request.assume,
                beside=request.beside,
            )

        try:
            loaded = load()
        except ModelDoesNotFitError:
            if self._engine is None:
                raise
            self._engine = None  # it may fit where the old one stands
            loaded = load()
        self._engine, self._held = Engine(loaded), request
        _warm_up(self._engine)
        self._send(Ready(self._engine.info))

    def _count(self, request: Count) -> None:
        engine = self._engine
        if engine is None:
            self._send(Failed(request.ask, NO_MODEL))
            return
        try:
            encode = engine.loaded.tokenizer.encode
            self._send(Counted(request.ask, tuple(len(encode(text)) for text in request.texts)))
        except Exception as error:  # none may end the thread that hears of cancellations
            self._send(Failed(request.ask, f"The text cannot be counted: {error}"))

    def _score(self, request: Score) -> None:
        if self._engine is None:
            self._send(Failed(request.ask, NO_MODEL))
            return
        scores = self._engine.score(
            request.tokens,
            request.start,
            request.alternatives,
            request.temperature,
            request.top_k,
        )
        self._send(Scored(request.ask, tuple(scores)))

    def _ask(self, request: Ask) -> None:
        arrived = time.perf_counter()
        if self._engine is None:
            self._send(Failed(request.ask, NO_MODEL))
            return
        from engine.generate import Cancellation
        from engine.prompt import build_prompt
        from engine.seeds import fresh_seed

        loaded, params = self._engine.loaded, request.params
        context = loaded.model.shape.context
        seed = fresh_seed() if params.seed is None else params.seed
        prompt = build_prompt(
            loaded,
            request.history,
            request.text,
            request.system,
            request.tools,
            request.answer,
            request.answer_text,
        )
        if len(prompt.tokens) >= context:
            self._send(Overflowed(request.ask, len(prompt.tokens), context, prompt.sizes))
            return
        room = context - len(prompt.tokens)
        stream = loaded.tokenizer.stream()
        self._send(
            Started(
                request.ask,
                tuple(prompt.tokens),
                prompt.preface,
                seed,
                per_row(params.temperatures, request.samples),
                room if params.max_tokens is None else min(room, params.max_tokens),
                tuple(prompt.answer),
                loaded.tokenizer.decode(prompt.answer),
                tuple(accumulate(len(stream.push(token)) for token in prompt.answer)),
            )
        )
        cancellation = Cancellation()
        with self._lock:
            self._running = (request.ask, cancellation)
            if request.ask in self._cancelled_asks:
                self._cancelled_asks.discard(request.ask)
                cancellation.cancel()
        timing = _Timing(arrived, request.samples)
        try:
            steps = self._engine.generate(
                prompt.tokens,
                request.samples,
                replace(params, seed=seed),
                given=len(prompt.answer),
                tools=request.tools,
                reuse_cache=request.reuse_cache,
                cancellation=cancellation,
                on_prefill=lambda done, total: self._prefilled(request.ask, done, total, timing),
            )
            answers = [list(prompt.answer) for _ in range(request.samples)]
            for step in steps:
                timing.step(step.tokens)
                for answer, token in zip(answers, step.tokens, strict=True):
                    if token is not None:
                        answer.append(token)
                if any(token is not None for token in step.tokens):
                    self._send(
                        Stepped(
                            request.ask,
                            step.tokens,
                            step.masks,
                            step.texts,
                            step.calls,
                            step.scores,
                        )
                    )
                for row, reason, tail in step.finished:
                    closing = tuple(loaded.chat_format.closing(answers[row]))
                    self._send(RowFinished(request.ask, row, reason, closing, tail))
        finally:
            with self._lock:
                self._running = None
        self._send(Finished(request.ask, timing.stats(loaded.info.backend)))

    def _prefilled(self, ask: int, done: int, total: int, timing: _Timing) -> None:
        timing.prefill(done)
        self._send(Prefilling(ask, done, total))


@dataclass
class _Timing:
    """The clock of one ask."""

    arrived: float
    samples: int
    began: float = 0.0
    prefilled: float = 0.0
    reused: int = 0
    first: float = 0.0
    last: float = 0.0
    row_tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.row_tokens = [0] * self.samples

    def prefill(self, done: int) -> None:
        """`done` tokens of the prompt are in the cache; the first time, before any was run."""
        now = time.perf_counter()
        if not self.began:
            self.began, self.reused = now, done
        self.prefilled = now

    def step(self, tokens: tuple[int | None, ...]) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        for row, token in enumerate(tokens):
            self.row_tokens[row] += token is not None

    def stats(self, backend: str) -> Stats:
        prefill = max(0.0, self.prefilled - self.began)
        decode = self.last - self.first
        later = sum(self.row_tokens) - sum(1 for count in self.row_tokens if count)
        return Stats(
            ttft_s=max(0.0, self.first - self.arrived),
            prefill_s=prefill,
            decode_s=decode,
            tokens_per_s=later / decode if decode > 0 else 0.0,
            row_tokens=tuple(self.row_tokens),
            saved_s=(self.samples - 1) * prefill,
            backend=backend,
            reused_tokens=self.reused,
        )


def _start_torch(count: int | None) -> None:
    """Import torch and what is built on it, without searching all that for garbage: there is none,
    and it takes a tenth of the time, again at each full collection."""
    first = "torch" not in sys.modules
    if first:
        gc.disable()
    threads.settle(count)
    if first:
        import engine.generate
        import engine.load  # noqa: F401

        gc.freeze()
        gc.enable()


def _warm_up(engine: Engine) -> None:
    """Run every kernel once (a short prefill, one shared step; on a GPU three, the second of which
    is captured), so that the first answer does not pay for it."""
    steps = 2 if engine.decoding == "eager" else 4
    for _ in engine.generate([0] * 16, 2, SamplingParams(max_tokens=steps, seed=0)):
        pass
