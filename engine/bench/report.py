"""What a benchmark found: the tables of `chat-tui bench`, as data.

`Report.document()` is the JSON document. Times are seconds, sizes bytes, rates per second; MBU and
MFU are shares of the measured ceilings (Chowdhery et al. 2022 for MFU; MBU is its counterpart for
bandwidth). Reading this module does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lies, interpolated between neighbours;
    `values` is not empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


@dataclass(frozen=True)
class Machine:
    """The machine and its ceilings.

    Attributes:
        copy_bytes_per_s: copying a buffer beyond every cache, bytes read plus bytes written.
        read_bytes_per_s: summing it up, bytes read: what decoding does with its weights.
        matmul_flops_per_s: square matrices in `dtype`, two FLOPs per multiply-add.
        rounds: how often each case was measured.
    """

    copy_bytes_per_s: float
    read_bytes_per_s: float
    matmul_flops_per_s: float
    dtype: str
    device: str
    processor: str
    cores: int
    threads: int
    omp_wait_policy: str
    torch: str
    rounds: int


@dataclass(frozen=True)
class KVUse:
    """Keys and values of one decode case.

    Attributes:
        stored_bytes: of the positions held at its end.
        copied_bytes: what they would be with the prompt's copied to every row.
        read_bytes_per_step: on average.
        copied_read_bytes_per_step: likewise.
        shared: the prompt's keys and values are held once for all rows.
    """

    rows: int
    prompt_tokens: int
    stored_bytes: int
    copied_bytes: int
    read_bytes_per_step: int
    copied_read_bytes_per_step: int
    shared: bool


@dataclass(frozen=True)
class Subject:
    """The model that was measured; `decoding` as `engine.generate.Decoding`."""

    name: str
    family: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    context: int
    dtype: str
    device: str
    backend: str
    backend_note: str
    decoding: str
    kv: tuple[KVUse, ...] = ()


@dataclass(frozen=True)
class Prefill:
    """One prompt at batch 1, until its first token; `mfu` by `counts.prefill_flops`."""

    prompt_tokens: int
    seconds: float
    tokens_per_s: float
    mfu: float


@dataclass(frozen=True)
class Decode:
    """Steps of `rows` rows after `prompt_tokens`.

    Attributes:
        tpot_median_s, tpot_p95_s: of single steps (time per output token), over all rounds.
        tokens_per_s: of all rows together, median of the rounds.
        mbu: bytes of weights and KV that a step reads / median step / copy_bytes_per_s.
    """

    rows: int
    prompt_tokens: int
    tpot_median_s: float
    tpot_p95_s: float
    tokens_per_s: float
    mbu: float


@dataclass(frozen=True)
class SharedPrefill:
    """The first tokens of all `rows`: after one prefill, and after a prefill for each."""

    prompt_tokens: int
    rows: int
    shared_ttft_s: float
    naive_ttft_s: float

    @property
    def over_one_row(self) -> float:
        """The first tokens of all rows over the first token of one."""
        return self.shared_ttft_s * self.rows / self.naive_ttft_s


@dataclass(frozen=True)
class Turn:
    """One turn of a chat: its first token with the history prefilled again, and with the KV cache
    of the turn before."""

    turn: int
    prompt_tokens: int
    new_tokens: int
    reprefill_ttft_s: float
    reuse_ttft_s: float


@dataclass(frozen=True)
class ScreenLoad:
    """One kind of load on the screen, told in the words of `Screen`."""

    tokens_per_s: float
    lateness_p50_s: float
    lateness_p95_s: float
    cpu_share: float
    key_echo_p95_s: float


@dataclass(frozen=True)
class Start:
    """Seconds from starting the command: `--help` is printed, the first frame is painted, the
    model can be asked."""

    help_s: float
    first_frame_s: float
    ready_s: float


@dataclass(frozen=True)
class Screen:
    """The screen while `panes` answers stream into it.

    Attributes:
        panes, tokens_per_s: the load: tokens of all panes together.
        engine_rate_kept: the engine's tokens/s with the screen painting over those without it.
        lateness_p50_s, lateness_p95_s: how late the event loop comes to a timer.
        cpu_share: of one core, used by the interface's process.
        key_echo_p95_s: from writing a key to the terminal until its character is painted.
        resize_s: until a new size of the terminal is painted, with long answers in the panes.
        long_answer: the same load, panes holding thousands of tokens already.
        with_engine: the load is the real engine's.
    """

    panes: int
    tokens_per_s: float
    engine_rate_kept: float
    lateness_p50_s: float
    lateness_p95_s: float
    cpu_share: float
    key_echo_p95_s: float
    resize_s: float
    long_answer: ScreenLoad
    with_engine: ScreenLoad
    start: Start


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be: at least `goal`, or with `at_most` no more."""

    what: str
    value: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal


@dataclass(frozen=True)
class Check:
    """Whether the engine computes what it should on this machine; `detail` says what was compared,
    or where it differs."""

    what: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Kernel:
    """One kind of kernel in a decode step of one row; `seconds` is all its runs in a step
    together."""

    name: str
    runs: float
    seconds: float


@dataclass(frozen=True)
class Report:
    """Everything that one run measured; what it did not measure is empty or None.

    `eager` are the decodes of nanochat's own loop. The GPU suite alone has them, and `goals`,
    `checks` and `kernels` (of a step, the longest first).
    """

    machine: Machine | None = None
    model: Subject | None = None
    prefill: tuple[Prefill, ...] = ()
    decode: tuple[Decode, ...] = ()
    shared_prefill: tuple[SharedPrefill, ...] = ()
    conversation: tuple[Turn, ...] = ()
    screen: Screen | None = None
    eager: tuple[Decode, ...] = ()
    goals: tuple[Goal, ...] = ()
    checks: tuple[Check, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    def document(self) -> dict[str, object]:
        """As JSON takes it."""
        document = asdict(self)
        for name in ("eager", "goals", "checks", "kernels"):
            if not getattr(self, name):
                del document[name]
        return document
