"""What goes between the engine's process and its user: requests in, events out.

Plain tuples with names, and frozen dataclasses where one is kept or changed, without a tensor in
them. Importing this module is cheap (no torch; a dataclass takes seven times as long to make as a
tuple), so that the screen, the one-shot mode and the tests can speak the protocol.
`engine/worker.py` answers it, `chat_tui/backends/` asks.

A conversation is sent as its exchanges: the user's words as text (encoding them is deterministic)
and each answer as the exact token ids that the model generated. `Started.prompt_tokens` is the
whole list that was prefilled; over a conversation it only grows by appended tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar

FinishReason = Literal["stop", "length", "context", "cancelled", "content_filter"]
"""Why a row ended: its stop token, `max_tokens`, the end of the context, or the user; or because a
server took offence at it."""

NO_ID = -2
"""In the place of a token's id where a server does not tell it: then it stands for a chunk of text.
(-1 is "no score" where scores are packed.)"""

DEFAULT_KEY_ENV = "OPENAI_API_KEY"
DEFAULT_TEMPERATURE = 0.7
DEFAULT_TOP_K = 50

_T = TypeVar("_T")


def per_row(values: Sequence[_T], rows: int) -> tuple[_T, ...]:
    """One value for each of `rows`: where there are fewer, they begin again."""
    return tuple(values[row % len(values)] for row in range(rows))


@dataclass(frozen=True)
class SamplingParams:
    """How rows are sampled.

    Attributes:
        temperatures: one for all rows, or one per row (`per_row`); 0 is greedy.
        top_ks: sample among the k likeliest tokens, None is all of them; one for all rows, or one
            per row.
        max_tokens: new tokens per row, forced ones included; None is what the context holds.
        seed: rows are seeded from (seed, row). None: a fresh one, told in `Started.seed`.
        alternatives: likeliest tokens to report with each token (`TokenScore`); None reports no
            scores at all.
    """

    temperatures: tuple[float, ...] = (DEFAULT_TEMPERATURE,)
    top_ks: tuple[int | None, ...] = (DEFAULT_TOP_K,)
    max_tokens: int | None = None
    seed: int | None = None
    alternatives: int | None = None


@dataclass(frozen=True)
class Exchange:
    """One finished turn: what the user said and the answer that was picked.

    `tokens` are the answer's ids as generated, forced ones included, without the closing ids; None
    where they come from another model, in which case `text` is encoded anew.
    """

    user: str
    tokens: tuple[int, ...] | None
    text: str


@dataclass(frozen=True)
class ModelInfo:
    """What the loaded model is, for the status line and `models show`."""

    name: str
    family: str
    path: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    vocab_size: int
    context: int
    dtype: str
    device: str
    backend: str
    backend_note: str = ""
    tool_dialect: str = "none"
    chat_format: str = ""
    variant: str = ""
    variant_reason: str = ""
    stop_tokens: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name where there is little room: llama-server calls a model by the path of its
        file."""
        return self.name.rstrip("/").rpartition("/")[2] if self.name.startswith("/") else self.name


# Requests: to the engine.


@dataclass(frozen=True)
class Load:
    """Load a model by whatever `--model` takes. Answered by `Loading`..., then `Ready` or
    `Failed`.

    With `server` it is a model that runs there (`name` empty: the first that it lists), and
    `key_env` the environment variable that holds the key: the key itself is in no message.

    `beside` says that other models stay loaded in other processes: it is refused where they leave
    too little memory for it and its answers.
    """

    name: str
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    assume: dict[str, object] = field(default_factory=dict)
    server: str | None = None
    key_env: str = DEFAULT_KEY_ENV
    beside: bool = False

    def same_model(self, other: Load) -> bool:
        """Whether the one is there once the other has been loaded."""
        return replace(self, threads=None, beside=False) == replace(
            other, threads=None, beside=False
        )


class Ask(NamedTuple):
    """Answer `text` after `history` with `samples` rows.

    Answered by `Started`, `Prefilling`..., `Stepped`..., one `RowFinished` per row and `Finished`;
    or by `Overflowed` or `Failed` alone. `ask` is the caller's number, repeated in every event that
    belongs to it.

    `answer` begins all rows: ids to go on from, and `answer_text` behind them, which is encoded
    here. They are the end of `Started.prompt_tokens`; the rows' own tokens come after them, and
    the offsets of tool calls count from the beginning of the whole answer.
    """

    ask: int
    text: str
    history: tuple[Exchange, ...] = ()
    system: str | None = None
    tools: bool = True
    samples: int = 1
    params: SamplingParams = SamplingParams()
    reuse_cache: bool = False
    answer: tuple[int, ...] = ()
    answer_text: str = ""


class Score(NamedTuple):
    """How likely was each of `tokens` from place `start` (at least 1) on? Answered by `Scored` or
    `Failed`. `temperature` and `top_k` are those that they were sampled at, where they were."""

    ask: int
    tokens: tuple[int, ...]
    start: int = 1
    alternatives: int = 10
    temperature: float | None = None
    top_k: int | None = None


class Count(NamedTuple):
    """How many tokens is each of `texts`, as ordinary text? Answered by `Counted` or `Failed`; also
    while an ask runs."""

    ask: int
    texts: tuple[str, ...]


class Cancel(NamedTuple):
    """End one row of a running ask between two steps, or all of them (`row` None). What was
    generated stays."""

    ask: int
    row: int | None = None


Request = Load | Ask | Score | Count | Cancel


# Events: from the engine.


class Loading(NamedTuple):
    """Progress before `Ready`. `done` and `total` are bytes while downloading, else 0; `what` is
    one line."""

    what: str
    done: int = 0
    total: int = 0


class Ready(NamedTuple):
    info: ModelInfo


class Started(NamedTuple):
    """The prompt is known (to a server alone, where it is empty) and the prefill begins.
    `preface_tokens` of it stand before the
    conversation's own turns (the system text, the calculator's examples). `answer` is the end of it
    that every answer begins with, where the ask gave such a beginning, and `answer_text` its text;
    `answer_ends` says of each of its ids how many characters are complete behind it, where that is
    known.
    """

    ask: int
    prompt_tokens: tuple[int, ...]
    preface_tokens: int
    seed: int
    temperatures: tuple[float, ...]
    max_tokens: int
    answer: tuple[int, ...] = ()
    answer_text: str = ""
    answer_ends: tuple[int, ...] = ()


class Prefilling(NamedTuple):
    ask: int
    done: int
    total: int


@dataclass(frozen=True)
class ToolCall:
    """One tool call in a row's text, as it stands now.

    Attributes:
        start, end: the characters of the row's text that it covers, markers included; `end` grows
            while it runs.
        expression: what is asked, as far as it has been written.
        result: what is forced back; None while it is being written, and for ever if the tool had no
            answer.
        done: the call is closed and, where there is a result, all of it has been forced.
    """

    start: int
    end: int
    expression: str
    result: str | None
    done: bool


class Alternative(NamedTuple):
    """A token that could have stood there; `piece` are its bytes."""

    token: int
    piece: bytes
    logprob: float


class TokenScore(NamedTuple):
    """What the model thought of one token, forced ones included.

    Attributes:
        piece: the token's bytes; a special token's name.
        logprob: natural logarithm of its probability at temperature 1, before top-k.
        sampled_logprob: the same in the distribution that was sampled from; None where the token
            was forced or lies outside of it.
        entropy: of the distribution at temperature 1, in nats; NaN where it is not known.
        rank: how many tokens were likelier; from a server, how many of `alternatives` are.
        alternatives: the likeliest tokens, likeliest first; probabilities as in `logprob`.
    """

    token: int
    piece: bytes
    logprob: float
    sampled_logprob: float | None
    entropy: float
    rank: int
    alternatives: tuple[Alternative, ...]


class Stepped(NamedTuple):
    """One token for each row that still runs; None in rows that have finished.

    `texts` are the characters that became complete with this token (a token may complete none, or
    several); `calls` maps a row to (index of the call in that row, call) for each call that changed
    with this step. `scores` has one entry per row where `SamplingParams.alternatives` asked for
    them.
    """

    ask: int
    tokens: tuple[int | None, ...]
    masks: tuple[int | None, ...]
    texts: tuple[str, ...]
    calls: tuple[tuple[int, int, ToolCall], ...] = ()
    scores: tuple[TokenScore | None, ...] = ()


class Scored(NamedTuple):
    ask: int
    scores: tuple[TokenScore, ...]


class Counted(NamedTuple):
    ask: int
    tokens: tuple[int, ...]


class RowFinished(NamedTuple):
    """A row ended. `closing` are the ids that must follow its tokens before the next turn (the stop
    token where the row did not generate it, and what the chat format puts behind it). `text` is the
    tail that was held back as an incomplete character."""

    ask: int
    row: int
    reason: FinishReason
    closing: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True)
class Stats:
    """Measured by the engine with a monotonic clock, in seconds from the arrival of the ask. From a
    server, at this end of the line; what cannot be seen from here (the prefill) is 0.

    Attributes:
        ttft_s: until the first token column.
        prefill_s: of it, the forward passes over the prompt.
        decode_s: from the first token column to the last.
        tokens_per_s: of all rows together, after the first column.
        row_tokens: tokens per row.
        saved_s: what N - 1 further prefills would have cost: (N - 1) * prefill_s.
        reused_tokens: of the prompt, held in the cache from the ask before and not prefilled again.
        backend: which attention ran.
        prompt_tokens: of the prompt, as a server counted them; None where the ids are known.
    """

    ttft_s: float
    prefill_s: float
    decode_s: float
    tokens_per_s: float
    row_tokens: tuple[int, ...]
    saved_s: float
    backend: str
    reused_tokens: int = 0
    prompt_tokens: int | None = None


class Finished(NamedTuple):
    ask: int
    stats: Stats


class Overflowed(NamedTuple):
    """The prompt does not fit; nothing was run. `sizes` are the tokens of each exchange, oldest
    first, and of the new message, so that the caller can say how many of the oldest turns must
    go."""

    ask: int
    prompt_tokens: int
    limit: int
    sizes: tuple[int, ...]


class Failed(NamedTuple):
    """A load (`ask` None) or an ask failed; `message` is one line. `kept` says of a load that the
    model that was there before still is."""

    ask: int | None
    message: str
    kept: bool = False


class Died(NamedTuple):
    """The engine's process is gone (made by the client, not sent by the worker). The next `Load`
    starts it anew."""

    reason: str


Event = (
    Loading
    | Ready
    | Started
    | Prefilling
    | Stepped
    | Scored
    | Counted
    | RowFinished
    | Finished
    | Overflowed
    | Failed
    | Died
)
