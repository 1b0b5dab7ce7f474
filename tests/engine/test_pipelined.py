"""Decoding that is launched ahead of the host, captured and replayed: it emits what decoding one
step after the other emits. On a CPU a tape stands for the CUDA graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine import Cancellation, Engine, LoadedModel, SamplingParams, Step
from engine.bench.random_models import random_llama
from engine.errors import EngineError
from engine.graphs import DecodeGraphs
from engine.messages import ModelInfo
from engine.models.base import Model, Shape
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS
from engine.rows import RowState
from engine.tokenizer import Tokenizer
from tests.engine.nanochat_noise import noise, small_config
from tests.engine.tape import CaptureError, Tape

PROMPT = [375, 376, 72, 101, 289, 111, 369, 44, 332, 279, 320, 328, 272, 287, 63, 377, 378]
STOPS = frozenset(range(7, 384, 45))
"""So many that sampling rows end at different steps."""

TOKENIZER = (
    Path(__file__).parent.parent / "data" / "nanochat" / "V6" / "tokenizer" / "tokenizer.pkl"
)


class ForcesOften:
    """A tool dialect that answers every fifth id with some forced ones."""

    name = "often"
    declared = False

    def reader(self):
        draining = 0

        def push(token: int, start: int, text: str) -> Sequence[int]:
            nonlocal draining
            if draining:
                draining -= 1
                return ()
            if token % 5:
                return ()
            draining = 1 + token % 3
            return [200 + place for place in range(draining)]

        return SimpleNamespace(calls=[], push=push, interrupt=lambda: None)


SHAPE = Shape(n_layer=4, n_head=4, n_kv_head=2, head_dim=16, n_embd=64, vocab_size=384, context=400)


def nanochat(variant: str, dtype: torch.dtype) -> Model:
    rows = 5 * 384 if variant == "V3e" else 0
    config = small_config(variant, vocab_size=384, vocab_rows=384, bigram_rows=rows)
    return NanochatModel(config, VARIANTS[variant], noise(config, variant), dtype=dtype)


MODELS: dict[str, Callable[[torch.dtype], Model]] = {
    "llama": partial(random_llama, SHAPE, torch.device("cpu"), window=20),
    "V0": partial(nanochat, "V0"),
    "V3e": partial(nanochat, "V3e"),
    "V6": partial(nanochat, "V6"),
}


@pytest.fixture(scope="module", params=list(MODELS))
def loaded(request) -> LoadedModel:
    return with_model(request.param)


@pytest.fixture(scope="module")
def v6() -> LoadedModel:
    return with_model("V6")


def with_model(name: str, dtype: torch.dtype = torch.float64) -> LoadedModel:
    """In float64, where two ways to add up come to the same ids, sampled ones too."""
    tokenizer = Tokenizer.from_nanochat_pickle(TOKENIZER)
    stops = SimpleNamespace(stop_tokens=STOPS)
    return LoadedModel(MODELS[name](dtype), tokenizer, stops, ForcesOften(), None)


def pipelined(loaded: LoadedModel) -> tuple[Engine, Tape]:
    engine, tape = Engine(loaded, "pipelined"), Tape()
    engine._capture = tape
    return engine, tape


def steps_of(engine: Engine, samples: int, params: SamplingParams, **how) -> list[Step]:
    cancels: dict[int, int | None] = how.pop("cancels", {})
    prompt = how.pop("prompt", PROMPT)
    cancellation = Cancellation()
    seen = []
    for step in engine.generate(prompt, samples, params, cancellation=cancellation, **how):
        seen.append(step)
        if len(seen) in cancels:
            cancellation.cancel(cancels[len(seen)])
    return seen


GREEDY = SamplingParams((0.0,), max_tokens=16)
SAMPLED = SamplingParams((1.0, 0.0, 0.7), (None, 30), max_tokens=24, seed=11)


@pytest.mark.parametrize(("samples", "params"), [(1, GREEDY), (3, GREEDY), (8, SAMPLED)])
def test_steps_are_those_of_one_after_the_other(loaded, samples, params):
    """Ids, masks, texts, and when and why rows end: with forced ids and stops throughout."""
    engine, tape = pipelined(loaded)
    steps = steps_of(engine, samples, params)
    assert steps == steps_of(Engine(loaded, "eager"), samples, params)
    assert tape.replayed > tape.captured > 0
    if samples == 8 and params is SAMPLED:
        assert any(0 in step.masks for step in steps)
        assert len({len(step.finished) for step in steps}) > 1
        # Again, all of it from what has been captured.
        before = tape.captured
        assert steps_of(engine, samples, params) == steps
        assert tape.captured - before <= before


@pytest.mark.parametrize("name", MODELS)
def test_greedy_ids_are_those_of_one_after_the_other_in_float32(name):
    loaded = with_model(name, torch.float32)
    steps = steps_of(pipelined(loaded)[0], 3, GREEDY)
    assert steps == steps_of(Engine(loaded, "eager"), 3, GREEDY)


def test_a_step_is_launched_before_its_column_is_looked_at(v6, monkeypatch):
    happened: list[str] = []

    def noting(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def noted(*given, **how):
            happened.append(name)
            return method(*given, **how)

        monkeypatch.setattr(owner, name, noted)

    for name in ("emit", "spread", "advance", "column"):
        noting(DecodeGraphs, name)
    noting(RowState, "push")
    steps_of(pipelined(v6)[0], 2, replace(GREEDY, max_tokens=3), tools=False)
    column = ["column", "push", "push"]
    first = ["emit", "spread", "advance", *column]
    assert happened == [*first, "emit", "advance", *column, "emit", *column]


def test_what_is_replayed_looks_at_no_value(v6):
    engine, _ = pipelined(v6)
    forward = v6.model.forward

    def peeking(ids, cache, **how):
        ids[0, 0].item()
        return forward(ids, cache, **how)

    engine.model = SimpleNamespace(**{name: getattr(v6.model, name) for name in dir(v6.model)})
    engine.model.forward = peeking
    with pytest.raises(CaptureError, match="read on the host"):
        steps_of(engine, 1, GREEDY, tools=False)


def test_rows_are_cancelled_when_they_would_be(loaded):
    params = replace(SAMPLED, max_tokens=8)
    for cancels in ({3: 1, 4: 0, 6: None}, {1: None}, {8: 2}):
        expected = steps_of(Engine(loaded, "eager"), 4, params, cancels=cancels)
        assert steps_of(pipelined(loaded)[0], 4, params, cancels=cancels) == expected


def test_scores_are_those_of_one_after_the_other(v6):
    params = replace(SAMPLED, alternatives=4, max_tokens=12)
    steps = steps_of(pipelined(v6)[0], 3, params)
    expected = steps_of(Engine(v6, "eager"), 3, params)
    assert [step.tokens for step in steps] == [step.tokens for step in expected]
    assert any(0 in step.masks for step in steps)
    for step, other in zip(steps, expected, strict=True):
        for ours, theirs in zip(step.scores, other.scores, strict=True):
            if theirs is None:
                assert ours is None
                continue
            assert (ours.token, ours.piece, ours.rank) == (theirs.token, theirs.piece, theirs.rank)
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
            assert ours.entropy == pytest.approx(theirs.entropy, abs=1e-4)
            assert ours.sampled_logprob == pytest.approx(theirs.sampled_logprob, abs=1e-4)
            assert [a.token for a in ours.alternatives] == [a.token for a in theirs.alternatives]


def test_row_zero_is_the_same_alone_and_among_eight(v6):
    params = replace(SAMPLED, temperatures=(1.0,), top_ks=(50,))
    engine, _ = pipelined(v6)
    among = [step.tokens[0] for step in steps_of(engine, 8, params)]
    alone = [step.tokens[0] for step in steps_of(engine, 1, params)]
    third = steps_of(engine, 1, replace(params, seed=11 + 3))
    assert [token for token in among if token is not None] == alone
    again = [step.tokens[3] for step in steps_of(engine, 8, params)]
    assert [token for token in again if token is not None] == [step.tokens[0] for step in third]


def test_a_cache_that_is_used_up_grows_and_what_was_captured_is_captured_anew(loaded, monkeypatch):
    monkeypatch.setattr("engine.static_cache.SHORTEST", 16)
    monkeypatch.setattr("engine.static_cache.TILE", 16)
    monkeypatch.setattr("engine.pipelined.RESERVE", 4)
    params = replace(SAMPLED, max_tokens=50)
    engine, tape = pipelined(loaded)
    steps = steps_of(engine, 3, params, tools=False)
    assert steps == steps_of(Engine(loaded, "eager"), 3, params, tools=False)
    assert engine._graphs.cache.moves >= 2
    assert steps_of(engine, 3, params, tools=False, reuse_cache=True) == steps
    assert tape.replayed > 20


def test_numbers_that_are_used_up_are_drawn_again(v6, monkeypatch):
    monkeypatch.setattr("engine.graphs.DRAWS", 8)
    monkeypatch.setattr("engine.pipelined.DRAWS", 8)
    expected = steps_of(Engine(v6, "eager"), 4, SAMPLED)
    assert steps_of(pipelined(v6)[0], 4, SAMPLED) == expected


def test_rows_end_where_the_context_ends(loaded):
    prompt = (PROMPT * 30)[: loaded.model.shape.context - 6]
    params = SamplingParams((0.0,))
    quiet = replace(loaded, chat_format=SimpleNamespace(stop_tokens=frozenset()))
    steps = steps_of(pipelined(quiet)[0], 2, params, prompt=prompt, tools=False)
    assert steps == steps_of(Engine(quiet, "eager"), 2, params, prompt=prompt, tools=False)
    assert len(steps) == 6
    assert steps[-1].finished == ((0, "context", ""), (1, "context", ""))


@pytest.mark.parametrize(("samples", "limit"), [(1, 9), (3, 1), (3, 9)])
def test_reusing_the_cache_gives_the_tokens_of_prefilling_again(loaded, samples, limit):
    engine, conversation, reused = pipelined(loaded)[0], list(PROMPT), []
    for turn in range(4):
        params = replace(SAMPLED, max_tokens=limit, seed=turn)
        expected = steps_of(Engine(loaded, "eager"), samples, params, prompt=conversation)
        starts: list[int] = []
        steps = steps_of(
            engine,
            samples,
            params,
            prompt=conversation,
            reuse_cache=True,
            on_prefill=lambda done, total, starts=starts: starts.append(done),
        )
        assert steps == expected
        reused.append((starts[0], len(conversation)))
        picked = turn % samples
        answer = [step.tokens[picked] for step in steps if step.tokens[picked] is not None]
        conversation += [*answer, 379, 376, 72, 105, 377, 378]
    for (_, before), (start, _) in itertools.pairwise(reused):
        assert start >= before


def test_a_call_that_reuses_nothing_leaves_nothing_to_reuse(v6):
    engine = pipelined(v6)[0]
    params = replace(GREEDY, max_tokens=5)
    steps_of(engine, 2, params, reuse_cache=True)
    steps_of(engine, 2, params, prompt=PROMPT[:5])
    starts: list[int] = []
    again = steps_of(
        engine, 2, params, reuse_cache=True, on_prefill=lambda done, total: starts.append(done)
    )
    assert starts[0] == 0
    assert again == steps_of(Engine(v6, "eager"), 2, params)


def test_an_answer_that_is_left_half_way_does_not_disturb_the_next(v6):
    engine = pipelined(v6)[0]
    expected = steps_of(Engine(v6, "eager"), 3, SAMPLED)
    left = engine.generate(PROMPT[:9], 5, SAMPLED)
    for _ in range(3):
        next(left)
    beside = steps_of(engine, 3, SAMPLED)  # while the other still holds the engine's tensors
    left.close()
    assert beside == expected
    assert steps_of(engine, 3, SAMPLED) == expected


def test_a_gpu_that_is_full_says_so_in_one_line_and_goes_on(v6, monkeypatch):
    engine = pipelined(v6)[0]
    steps_of(engine, 1, GREEDY)

    def full(*shape: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")

    with monkeypatch.context() as patched:
        patched.setattr("engine.static_cache.StaticCache.fit", full)
        with pytest.raises(EngineError, match="too little memory left for 64 samples"):
            steps_of(engine, 64, GREEDY)
    assert steps_of(engine, 1, GREEDY) == steps_of(Engine(v6, "eager"), 1, GREEDY)


def test_where_nothing_can_be_captured_steps_are_run_and_it_is_said(v6):
    class NoCapture:
        failure = ""

        def __call__(self, run):
            self.failure = "operation not permitted when stream is capturing"
            return run

    info = ModelInfo("", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, "", "cuda", "fa3", "no fa4")
    engine = Engine(replace(v6, info=info), "pipelined")
    engine._capture = NoCapture()
    assert engine.info is info
    assert steps_of(engine, 2, GREEDY) == steps_of(Engine(v6, "eager"), 2, GREEDY)
    assert engine.info.backend_note == (
        "no fa4; no CUDA graphs: operation not permitted when stream is capturing"
    )


def test_a_cpu_decodes_one_after_the_other(v6):
    assert Engine(v6).decoding == "eager"
