"""A backend that says what a test tells it to say, and remembers what it was asked.

`FakeBackend` answers nothing by itself: a test calls `ready()`, `start()`, `step()`, `finish()`.
Its tokenizer is one token per character; every exchange is closed by `CLOSE`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from engine.messages import (
    Ask,
    Cancel,
    Event,
    Exchange,
    Finished,
    FinishReason,
    Load,
    Loading,
    ModelInfo,
    Prefilling,
    Ready,
    Request,
    RowFinished,
    Started,
    Stats,
    Stepped,
    ToolCall,
)

OPEN, USER, ASSISTANT, CLOSE = 1, 2, 3, 4
PREFACE = (OPEN, 90, 91, 92)

INFO = ModelInfo(
    name="SmolLM2-135M-Instruct",
    family="llama",
    path="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
    parameters=134_515_008,
    weight_bytes=98_000_000,
    kv_bytes_per_token=23_040,
    n_layer=30,
    n_head=9,
    n_kv_head=3,
    head_dim=64,
    vocab_size=49_152,
    context=2048,
    dtype="bfloat16",
    device="cpu",
    backend="SDPA",
    backend_note="FA3 and FA2 need an NVIDIA GPU",
)


TEXTS: dict[int, str] = {}
"""The texts of the tokens that were generated."""


def encode(text: str) -> list[int]:
    return [1000 + ord(char) for char in text]


def decode(tokens: Sequence[int]) -> list[str]:
    """What `step` was told that these tokens say; a single character where nobody said so."""
    return [TEXTS.get(token, chr(max(token - 1000, 0))) for token in tokens]


def prompt_of(history: Sequence[Exchange], text: str) -> list[int]:
    """What the fake engine prefills."""
    tokens = list(PREFACE)
    for exchange in history:
        answer = encode(exchange.text) if exchange.tokens is None else exchange.tokens
        tokens += [USER, *encode(exchange.user), ASSISTANT, *answer, CLOSE]
    return [*tokens, USER, *encode(text), ASSISTANT]


class FakeBackend:
    """Implements `chat_tui.backends.base.Backend`."""

    def __init__(self, *, context: int = INFO.context) -> None:
        self.requests: list[Request] = []
        self.closed = False
        self._events: deque[Event] = deque()
        self._info = ModelInfo(**{**INFO.__dict__, "context": context})
        self._about: int | None = None
        self._counts: list[int] = []
        self._open: set[int] = set()

    # The protocol.

    def send(self, request: Request) -> None:
        self.requests.append(request)

    def drain(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        self.closed = True

    # What was asked.

    @property
    def asks(self) -> list[Ask]:
        return [request for request in self.requests if isinstance(request, Ask)]

    @property
    def ask(self) -> Ask:
        """What is spoken about: the last ask, unless `about` named another."""
        return next((ask for ask in self.asks if ask.ask == self._about), self.asks[-1])

    def about(self, ask: Ask) -> FakeBackend:
        """Speak about this ask from now on."""
        self._about = ask.ask
        return self

    @property
    def loads(self) -> list[Load]:
        return [request for request in self.requests if isinstance(request, Load)]

    @property
    def cancels(self) -> list[int | None]:
        """Rows of the cancellations of the last ask."""
        return [
            request.row
            for request in self.requests
            if isinstance(request, Cancel) and request.ask == self.ask.ask
        ]

    # What is said.

    def say(self, *events: Event) -> None:
        self._events.extend(events)

    def loading(self, what: str, done: int = 0, total: int = 0) -> None:
        self.say(Loading(what, done, total))

    def ready(self, name: str = INFO.name) -> None:
        self.say(Ready(ModelInfo(**{**self._info.__dict__, "name": name})))

    def start(self, prompt: Sequence[int] | None = None) -> None:
        ask = self.ask
        tokens = prompt_of(ask.history, ask.text) if prompt is None else list(prompt)
        self._counts = [0] * ask.samples
        self._open = set(range(ask.samples))
        temperatures = ask.params.temperatures
        given = [*ask.answer, *encode(ask.answer_text)]
        tokens += given
        self.say(
            Started(
                ask=ask.ask,
                prompt_tokens=tuple(tokens),
                preface_tokens=len(PREFACE),
                seed=ask.params.seed if ask.params.seed is not None else 81_234,
                temperatures=tuple(temperatures[i % len(temperatures)] for i in range(ask.samples)),
                max_tokens=ask.params.max_tokens or self._info.context - len(tokens),
                answer=tuple(given),
                answer_text="".join(decode(given)),
                answer_ends=tuple(accumulate(map(len, decode(given)))),
            ),
            Prefilling(ask.ask, len(tokens), len(tokens)),
        )

    def step(
        self,
        *texts: str,
        forced: Sequence[int] = (),
        calls: Sequence[tuple[int, int, ToolCall]] = (),
    ) -> None:
        """One token per row that still runs; `forced` are the rows where it was forced."""
        rows = range(self.ask.samples)
        running = [row in self._open for row in rows]
        for row in self._open:
            self._counts[row] += 1
            TEXTS[1000 + sum(map(ord, texts[row]))] = texts[row]
        self.say(
            Stepped(
                ask=self.ask.ask,
                tokens=tuple(
                    1000 + sum(map(ord, texts[row])) if running[row] else None for row in rows
                ),
                masks=tuple(int(row not in forced) if running[row] else None for row in rows),
                texts=tuple(texts[row] if running[row] else "" for row in rows),
                calls=tuple(calls),
            )
        )

    def end_row(self, row: int, reason: FinishReason = "stop", text: str = "") -> None:
        self._open.discard(row)
        self.say(RowFinished(self.ask.ask, row, reason, (CLOSE,), text))

    def finish(self, reason: FinishReason = "stop", *, reused: int = 0) -> None:
        """End the rows that still run, and the ask."""
        for row in sorted(self._open):
            self.end_row(row, reason)
        counts = tuple(self._counts)
        self.say(
            Finished(
                self.ask.ask,
                Stats(
                    ttft_s=0.21,
                    prefill_s=0.19,
                    decode_s=2.0,
                    tokens_per_s=(sum(counts) - len(counts)) / 2.0,
                    row_tokens=counts,
                    saved_s=0.19 * (len(counts) - 1),
                    backend="SDPA",
                    reused_tokens=reused,
                ),
            )
        )

    def answer(self, *texts: str) -> None:
        """The whole of an answer, word by word."""
        self.start()
        words = [text.split(" ") for text in texts]
        for place in range(max(map(len, words))):
            for row, row_words in enumerate(words):
                if place == len(row_words):
                    self.end_row(row)
            self.step(
                *(
                    (" " if place else "") + row_words[place] if place < len(row_words) else ""
                    for row_words in words
                )
            )
        self.finish()


class FakeBackends:
    """A fake backend for each model: `backend` is that of the first, `backends` are all that were
    made, in their order."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        self.backends = [self.backend]

    def make(self, load: Load) -> FakeBackend:
        self.backends.append(FakeBackend())
        return self.backends[-1]
