"""Whether the engine computes on this machine what it should, before it is asked how fast.

    for check in checks(torch.device("cuda")):
        print(check.what, check.passed, check.detail)

Attention against PyTorch's in float32; then small models of every kind whose state a captured step
has to carry, with forced ids, stops at different steps, sampling, scores and reuse. What graphs
emit is what one step after the other emits: in float64, where kernels that add up in another order
still come to the same ids, and greedily in float32. In bfloat16 it is what the same steps emit when
they are not captured. On a CPU nothing is captured, and one kind of model will do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.attention import UNLIMITED, Window, attend, flash_attn_with_kvcache
from engine.bench.plan import Tell, silent
from engine.bench.random_models import as_loaded, random_llama, random_nanochat
from engine.bench.report import Check
from engine.bench.suite import any_tokens
from engine.flash import LIBRARIES, AttentionBackend, among
from engine.generate import Decoding, Engine, Step
from engine.load import LoadedModel
from engine.messages import SamplingParams, ToolCall
from engine.models.base import Model, Shape
from engine.models.nanochat_variants import Config
from engine.static_cache import SHORTEST
from engine.tools import Example, ToolReader

VOCABULARY = 512
PROMPT = 150
"""Tokens; longer than the windows of attention."""

NANOCHAT = Config(
    sequence_len=512,
    vocab_size=VOCABULARY,
    n_layer=3,
    n_head=4,
    n_kv_head=2,
    n_embd=128,
    window_pattern="SSL",
    vocab_rows=VOCABULARY,
)
LLAMA = Shape(
    n_layer=3,
    n_head=4,
    n_kv_head=2,
    head_dim=32,
    n_embd=128,
    vocab_size=VOCABULARY,
    context=2 * SHORTEST,
)
STOPS = tuple(range(7, VOCABULARY, 40))
"""So many that sampled rows end at different steps."""

SAMPLED = SamplingParams((1.0, 0.0, 0.7), (None, 40), max_tokens=16, seed=5)
GREEDY = SamplingParams((0.0,), max_tokens=16)

BF16_TOLERANCE = 0.03
"""Between attention in bfloat16 and in float32, for values around 1."""

CLOSE = 1e-3
"""Between logarithms of probabilities, which are float32 whatever the model is."""


def checks(
    device: torch.device, *, tell: Tell = silent, decoding: Decoding | None = None
) -> list[Check]:
    """Run all; a failure or an error is told and does not keep the others from running. `decoding`
    is what is checked; None is the device's best."""
    decoding = decoding or ("graphs" if device.type == "cuda" else "pipelined")
    done = []
    for what, run in (*_of_attention(device), *_of_decoding(device, decoding)):
        try:
            passed, detail = run()
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            passed, detail = False, f"{type(error).__name__}: {first}"
        done.append(Check(what, passed, detail))
        tell(f"{'ok    ' if passed else 'FAILED'}  {what}: {detail}")
    return done


Outcome = tuple[bool, str]
Named = tuple[str, Callable[[], Outcome]]


def _of_attention(device: torch.device) -> Iterator[Named]:
    backends = [AttentionBackend("sdpa")]
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        found = [among([one], capability, device, torch.bfloat16, 128) for one in LIBRARIES]
        backends += [backend for backend in found if backend.function is not None]
    for backend in backends:
        for window in (UNLIMITED, (100, 0)):
            which = "all keys" if window == UNLIMITED else "a window"
            yield (
                f"attention by {backend.name}, {which}",
                functools.partial(_attention, device, backend, window),
            )


def _attention(device: torch.device, backend: AttentionBackend, window: Window) -> Outcome:
    """A step of rows of different lengths, and a chunk of a prompt, at d20's sizes and with grouped
    heads."""
    source = torch.Generator().manual_seed(0)
    worst = 0.0
    for heads, kv_heads, dim in ((10, 10, 128), (6, 2, 64)):
        for lengths, time in (([5, 700, 1023], 1), ([0], 300), ([600], 300)):
            rows = len(lengths)

            def noise(*shape: int, rows: int = rows, dim: int = dim) -> Tensor:
                values = torch.randn(rows, *shape, dim, generator=source)
                return values.to(device, torch.bfloat16)

            q, k, v = noise(time, heads), noise(time, kv_heads), noise(time, kv_heads)
            keys, values = noise(1024, kv_heads), noise(1024, kv_heads)
            out = flash_attn_with_kvcache(
                q,
                keys,
                values,
                k,
                v,
                cache_seqlens=torch.tensor(lengths, dtype=torch.int32, device=device),
                window_size=window,
                backend=backend,
                on_device=time == 1,
            )
            for row, length in enumerate(lengths):
                one = slice(row, row + 1)
                if not torch.equal(keys[row, length : length + time], k[row]):
                    return False, f"{rows} rows of {time}: the keys were not appended"
                expected = attend(
                    q[one].float(),
                    keys[one].float(),
                    values[one].float(),
                    length + time,
                    window_size=window,
                )
                worst = max(worst, (out[one].float() - expected).abs().max().item())
    return worst <= BF16_TOLERANCE, f"differs from float32 by at most {worst:.4f}"


def _of_decoding(device: torch.device, decoding: Decoding) -> Iterator[Named]:
    def nanochat(variant: str, dtype: torch.dtype) -> Model:
        return random_nanochat(NANOCHAT, device, dtype, variant)

    def llama(dtype: torch.dtype) -> Model:
        return random_llama(LLAMA, device, dtype, window=100)

    kinds: dict[str, Callable[[torch.dtype], Model]] = {
        "Llama": llama,
        "nanochat V0": functools.partial(nanochat, "V0"),
        "nanochat V6": functools.partial(nanochat, "V6"),
    }
    if device.type != "cuda":  # the one with the most state will do
        kinds = {"nanochat V6": kinds["nanochat V6"]}
    for kind, build in kinds.items():

        @functools.cache
        def model(dtype: torch.dtype, build: Callable[..., Model] = build) -> LoadedModel:
            return as_loaded(build(dtype), "", family="", stops=STOPS, tools=_ForcesOften())

        for name, run in _cases(model, decoding):
            yield f"{kind}, {name}", run


def _cases(model: Callable[[torch.dtype], LoadedModel], decoding: Decoding) -> Iterator[Named]:
    exact = torch.float64

    def same(
        dtype: torch.dtype,
        rows: int,
        params: SamplingParams,
        other: Decoding,
        prompt: int = PROMPT,
    ) -> Outcome:
        loaded = model(dtype)
        engine = Engine(loaded, decoding)
        asked = any_tokens(prompt, VOCABULARY)
        for _ in range(2):  # the second from what has been captured
            ours = list(engine.generate(asked, rows, params))
        if failure := engine.info.backend_note.partition("no CUDA graphs: ")[2]:
            return False, f"nothing was captured: {failure}"
        theirs = list(Engine(loaded, other).generate(asked, rows, params))
        return _compared(ours, theirs)

    def alone() -> Outcome:
        engine = Engine(model(exact), decoding)
        asked = any_tokens(PROMPT, VOCABULARY)
        for row in (0, 5):
            seed = (SAMPLED.seed or 0) + row
            one = replace(SAMPLED, seed=seed, temperatures=(0.8,), top_ks=(40,))
            among_eight = list(engine.generate(asked, 8, replace(one, seed=SAMPLED.seed)))
            by_itself = list(engine.generate(asked, 1, one))
            ids = [step.tokens[row] for step in among_eight if step.tokens[row] is not None]
            if ids != [step.tokens[0] for step in by_itself]:
                return False, f"row {row} is another among eight"
        return True, "rows 0 and 5 of eight are what they are alone"

    def reuse() -> Outcome:
        keeping, anew = Engine(model(exact), decoding), Engine(model(exact), decoding)
        talk = any_tokens(PROMPT, VOCABULARY)
        for turn in range(3):
            params = replace(SAMPLED, seed=turn, max_tokens=12)
            ours = list(keeping.generate(talk, 3, params, reuse_cache=True))
            theirs = list(anew.generate(talk, 3, params))
            passed, detail = _compared(ours, theirs)
            if not passed:
                return False, f"turn {turn + 1}: {detail}"
            talk += [token for step in ours if (token := step.tokens[1]) is not None]
            talk += any_tokens(20 + turn, VOCABULARY)
        return True, "three turns are what they are without"

    for rows in (1, 8):
        greedy = functools.partial(same, torch.float32, rows, GREEDY, "eager")
        yield f"greedy, {_rows(rows)}", greedy
    yield "sampled, 8 rows", functools.partial(same, exact, 8, SAMPLED, "eager")
    scored = replace(SAMPLED, alternatives=5)
    yield "sampled, with scores", functools.partial(same, exact, 3, scored, "eager")
    yield "rows alone and together", alone
    yield "reuse of the cache", reuse
    if model(exact).model.shape.context > SHORTEST:
        unstopped = functools.partial(same, exact, 2, SAMPLED, "eager", prompt=SHORTEST - 4)
        yield "a cache that grows", unstopped
    if decoding == "graphs":
        for rows in (1, 8):
            name = f"bfloat16, {_rows(rows)}, captured or not"
            yield name, functools.partial(same, torch.bfloat16, rows, SAMPLED, "pipelined")


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count > 1)}"


def _compared(ours: Sequence[Step], theirs: Sequence[Step]) -> Outcome:
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if replace(a, scores=()) != replace(b, scores=()):
            return False, f"step {number + 1} emits {a.tokens} and should {b.tokens}"
        for x, y in zip(a.scores, b.scores, strict=True):
            if x is not None and y is not None and abs(x.logprob - y.logprob) > CLOSE:
                return False, f"step {number + 1}: scores of {x.logprob} and {y.logprob}"
    if len(ours) != len(theirs):
        return False, f"{len(ours)} steps, and should be {len(theirs)}"
    forced = sum(mask == 0 for step in ours for mask in step.masks)
    return True, f"{len(ours)} steps are the same, with {forced} forced ids"


class _ForcesOften:
    """A tool dialect that answers every ninth id with some forced ones."""

    name = "often"
    declared = False

    def reader(self) -> ToolReader:
        return _ForcingReader()

    def examples(self, text: str) -> Sequence[Example]:
        return ()


class _ForcingReader:
    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._draining = 0

    def push(self, token: int, start: int, text: str) -> Sequence[int]:
        if self._draining:
            self._draining -= 1
        elif token % 9 == 0:
            self._draining = 1 + token % 3
            return [200 + place for place in range(self._draining)]
        return ()

    def interrupt(self) -> None:
        self._draining = 0
