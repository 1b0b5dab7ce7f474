"""The engine's loop: nanochat's scripted cases, rows that come and go, and equality with a plain
loop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from engine import Cancellation, Engine, LoadedModel, SamplingParams, Step
from engine.errors import ContextOverflowError, EngineError
from engine.kv_cache import KVCache
from engine.load import load_model
from engine.models.base import Shape
from engine.tokenizer import Tokenizer
from engine.tools import dialect_for

DATA = Path(__file__).parent.parent / "data" / "nanochat"
SCRIPTS = json.loads((DATA / "head" / "engine_scripts.json").read_text())


class SilentModel:
    """Computes nothing: the scripted sampler says what each row 'samples'."""

    shape = Shape(1, 1, 1, 1, 1, 384, 8192)
    device = torch.device("cpu")
    dtype = torch.float32
    native = None

    def __init__(self) -> None:
        self.batches: list[int] = []

    def new_cache(self, batch: int, seq: int) -> KVCache:
        return KVCache(1, batch, seq, 1, 1)

    def forward(self, ids: Tensor, cache, *, all_positions: bool = False) -> Tensor:
        self.batches.append(ids.size(0))
        cache.advance(ids.size(1))
        return torch.zeros(ids.size(0), 384)


class ScriptedEngine(Engine):
    """Row r samples rows[r][i] at its position i, and '.' past the end."""

    def __init__(self, rows: list[list[int]]) -> None:
        tokenizer = Tokenizer.from_nanochat_pickle(DATA / "V6" / "tokenizer" / "tokenizer.pkl")
        special = tokenizer.special_tokens
        stop = frozenset({special["<|assistant_end|>"], special["<|bos|>"]})
        self.rows = rows
        self.position = -1
        super().__init__(
            LoadedModel(
                SilentModel(),
                tokenizer,
                SimpleNamespace(stop_tokens=stop),
                dialect_for(tokenizer),
                None,
            )
        )

    def _sampler(self, params, seed, num_samples):
        def sample(logits: Tensor, rows: Sequence[int]) -> list[int]:
            self.position += 1
            scripts = [self.rows[row] for row in rows]
            return [s[self.position] if self.position < len(s) else ord(".") for s in scripts]

        return sample


def up_to_end(column: list, stop: set[int]) -> list:
    """nanochat's finished rows keep emitting: a row up to and with its stop token."""
    ends = [i for i, (token, mask) in enumerate(column) if token in stop and mask]
    return column[: ends[0] + 1] if ends else column


CASES = [case for case in SCRIPTS["cases"] if "error" not in case]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_token_and_mask_columns_are_nanochats(case):
    engine = ScriptedEngine(case["rows"])
    steps = list(
        engine.generate(
            case["prompt"], case["num_samples"], SamplingParams(max_tokens=case["max_tokens"])
        )
    )
    stop = {SCRIPTS["special_tokens"]["assistant_end"], SCRIPTS["special_tokens"]["bos"]}
    for row in range(case["num_samples"]):
        ours = [(step.tokens[row], step.masks[row]) for step in steps]
        ours = [cell for cell in ours if cell[0] is not None]
        theirs = [
            (tokens[row], masks[row])
            for tokens, masks in zip(case["token_columns"], case["token_masks"], strict=True)
        ]
        assert ours == up_to_end(theirs, stop)


def test_a_result_too_long_to_write_out_forces_nothing():
    """nanochat's engine dies on a product of more than 4,300 digits."""
    special = SCRIPTS["special_tokens"]
    start, end, stop = (special[name] for name in ("python_start", "python_end", "assistant_end"))
    number = [ord("9")] * 2200
    row = [start, *number, ord("*"), *number, end, 66, stop]
    steps = list(ScriptedEngine([row]).generate([1], 1, SamplingParams(max_tokens=4500)))
    assert [step.tokens[0] for step in steps] == row
    assert all(step.masks == (1,) for step in steps)


def test_finished_rows_leave_the_batch():
    end = SCRIPTS["special_tokens"]["assistant_end"]
    engine = ScriptedEngine([[65, end], [65, 66, 67, end], [65, 66, end]])
    steps = list(engine.generate([1, 2, 3], 3))
    assert [step.tokens for step in steps] == [
        (65, 65, 65),
        (end, 66, 66),
        (None, 67, end),
        (None, end, None),
    ]
    assert [step.finished for step in steps] == [
        (),
        ((0, "stop", ""),),
        ((2, "stop", ""),),
        ((1, "stop", ""),),
    ]
    assert engine.model.batches == [1, 3, 2, 1]


def test_the_prompt_is_run_once_at_batch_one_in_chunks():
    engine = ScriptedEngine([[65]] * 4)
    progress = []
    steps = engine.generate(
        [1] * 1200,
        4,
        SamplingParams(max_tokens=2),
        on_prefill=lambda done, total: progress.append((done, total)),
    )
    assert len(list(steps)) == 2
    assert progress == [(0, 1200), (512, 1200), (1024, 1200), (1200, 1200)]
    assert engine.model.batches == [1, 1, 1, 4]


def test_one_row_or_all_can_be_cancelled_between_steps():
    cancellation = Cancellation()
    engine = ScriptedEngine([[65] * 50] * 3)
    seen: list[Step] = []
    for step in engine.generate([1], 3, cancellation=cancellation):
        seen.append(step)
        if len(seen) == 2:
            cancellation.cancel(1)
        if len(seen) == 4:
            cancellation.cancel()
    assert [step.tokens for step in seen] == [
        (65, 65, 65),
        (65, 65, 65),
        (65, None, 65),
        (65, None, 65),
        (None, None, None),
    ]
    assert seen[2].finished == ((1, "cancelled", ""),)
    assert seen[4].finished == ((0, "cancelled", ""), (2, "cancelled", ""))


def test_a_prefill_can_be_cancelled():
    cancellation = Cancellation()
    engine = ScriptedEngine([[65]] * 2)
    steps = list(
        engine.generate(
            [1] * 2000,
            2,
            cancellation=cancellation,
            on_prefill=lambda done, total: done and cancellation.cancel(),
        )
    )
    assert engine.model.batches == [1]
    assert [step.finished for step in steps] == [((0, "cancelled", ""), (1, "cancelled", ""))]


def test_a_row_ends_where_the_context_ends():
    engine = ScriptedEngine([[65] * 9000])
    steps = list(engine.generate([1] * 8186, 1))
    assert len(steps) == 6
    assert steps[-1].finished == ((0, "context", ""),)


def test_a_prompt_that_does_not_fit_is_refused_with_its_sizes():
    with pytest.raises(ContextOverflowError) as caught:
        next(ScriptedEngine([[]]).generate([1] * 8192, 1))
    assert (caught.value.prompt_tokens, caught.value.limit) == (8192, 8192)


@pytest.mark.parametrize(
    ("tokens", "samples", "params", "message"),
    [
        ([], 1, SamplingParams(), "prompt is empty"),
        ([384], 1, SamplingParams(), "outside the vocabulary of 384"),
        ([-1], 1, SamplingParams(), "outside the vocabulary"),
        ([1], 0, SamplingParams(), "At least one sample"),
        ([1], 1, SamplingParams((-0.5,)), "Temperatures are numbers from 0 up"),
        ([1], 1, SamplingParams((float("nan"),)), "Temperatures"),
        ([1], 1, SamplingParams(()), "Temperatures"),
        ([1], 1, SamplingParams(top_ks=(0,)), "top-k is at least 1"),
        ([1], 1, SamplingParams(max_tokens=-1), "max-tokens is at least 0"),
    ],
)
def test_senseless_parameters_are_refused_in_one_sentence(tokens, samples, params, message):
    with pytest.raises(EngineError, match=message):
        next(ScriptedEngine([[]]).generate(tokens, samples, params))


def test_characters_are_never_split_over_two_steps():
    engine = ScriptedEngine([list("né 😀".encode())])
    texts = [step.texts[0] for step in engine.generate([1], 1, SamplingParams(max_tokens=8))]
    assert texts == ["n", "", "é", " ", "", "", "", "😀"]


def test_an_incomplete_character_at_the_end_is_kept():
    engine = ScriptedEngine([list("é".encode())[:1]])
    (step,) = engine.generate([1], 1, SamplingParams(max_tokens=1))
    assert step.finished == ((0, "length", "\ufffd"),)


# With real weights: a nanochat model of noise (V6: grouped-query attention, windows, smear).


@pytest.fixture(scope="module")
def noise() -> LoadedModel:
    return load_model(str(DATA / "V6" / "chatsft_checkpoints" / "d4"), dtype="float32")


def rows_of(steps: list[Step], samples: int) -> list[list[int]]:
    return [[s.tokens[r] for s in steps if s.tokens[r] is not None] for r in range(samples)]


PROMPT = [375, 376, 72, 101, 289, 111, 369, 44, 332, 279, 320, 328, 272, 287, 63, 377, 378]


def test_greedy_rows_are_nanochats(noise):
    greedy = json.loads((DATA / "V6" / "greedy.json").read_text())
    for name in ("long_prompt", "chat_prompt"):
        run = greedy[name]
        params = SamplingParams((0.0,), max_tokens=run["max_tokens"])
        steps = list(Engine(noise).generate(run["prompt"], run["num_samples"], params))
        expected = [list(row) for row in zip(*run["engine_token_columns"], strict=True)]
        assert rows_of(steps, run["num_samples"]) == expected


def test_greedy_rows_are_those_of_a_plain_loop_without_a_cache(noise):
    tokens = list(PROMPT)
    for _ in range(24):
        tokens.append(int(noise.logits(tokens)[-1].argmax()))
    params = SamplingParams((0.0,), max_tokens=24)
    for samples in (1, 3):
        steps = list(Engine(noise).generate(PROMPT, samples, params, tools=False))
        for row in rows_of(steps, samples):
            assert row == tokens[len(PROMPT) :][: len(row)]


def test_row_zero_is_the_same_alone_and_among_eight(noise):
    params = SamplingParams((1.0,), top_ks=(50,), max_tokens=60, seed=1234)
    alone = rows_of(list(Engine(noise).generate(PROMPT, 1, params)), 1)
    among = rows_of(list(Engine(noise).generate(PROMPT, 8, params)), 8)
    assert alone[0] == among[0]
    assert len({tuple(row) for row in among}) == 8
    third = replace(params, seed=1234 + 3)
    assert rows_of(list(Engine(noise).generate(PROMPT, 1, third)), 1)[0] == among[3]


def test_a_seed_repeats_and_no_seed_does_not(noise):
    def row(seed: int | None) -> list[int]:
        params = SamplingParams((1.0,), max_tokens=30, seed=seed)
        return rows_of(list(Engine(noise).generate(PROMPT, 1, params)), 1)[0]

    assert row(5) == row(5)
    assert row(None) != row(None)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("picked", [0, -1])
def test_reusing_the_cache_gives_the_tokens_of_prefilling_again(noise, samples, picked):
    """Over a conversation in which one row is picked each turn; V6 has state beside K and V."""
    engine, conversation, held = Engine(noise), list(PROMPT), 0
    for turn in range(4):
        params = SamplingParams((1.0,), top_ks=(20,), max_tokens=10 + turn, seed=turn)
        starts: list[int] = []
        again = list(Engine(noise).generate(conversation, samples, params))
        steps = list(
            engine.generate(
                conversation,
                samples,
                params,
                reuse_cache=True,
                on_prefill=lambda done, total, starts=starts: starts.append(done),
            )
        )
        assert rows_of(steps, samples) == rows_of(again, samples)
        assert starts[0] == held
        answer = rows_of(steps, samples)[picked]
        held = len(conversation) + len(answer) - 1  # the last token has not been run
        conversation += [*answer, 379, 376, 72, 105, 377, 378]


def test_a_prompt_that_goes_another_way_reuses_what_it_shares(exact):
    engine = Engine(exact)
    first = exact.tokenizer.encode("One two three four five six seven eight nine ten.")
    other = [*first[:6], *exact.tokenizer.encode(" and then something else")]
    greedy = SamplingParams((0.0,), max_tokens=5)
    starts: list[int] = []
    list(engine.generate(first, 2, greedy, reuse_cache=True))
    steps = engine.generate(
        other, 1, greedy, reuse_cache=True, on_prefill=lambda done, total: starts.append(done)
    )
    again = Engine(exact).generate(other, 1, greedy)
    assert rows_of(list(steps), 1) == rows_of(list(again), 1)
    assert starts[0] == 6


def test_the_same_prompt_again_runs_its_last_token_again(exact):
    engine, prompt = Engine(exact), exact.tokenizer.encode("The sea is")
    params = SamplingParams((0.0,), max_tokens=6)
    runs = [rows_of(list(engine.generate(prompt, 2, params, reuse_cache=True)), 2) for _ in "ab"]
    assert runs[0] == runs[1]


# Scores, and answers whose beginning is given.


def test_scores_are_those_of_the_full_distribution(noise):
    temperatures, top_ks = (0.0, 0.8, 1.5), (5, 5, 300)
    params = SamplingParams(temperatures, top_ks, max_tokens=12, seed=3, alternatives=4)
    steps = list(Engine(noise).generate(PROMPT, 3, params, tools=False))
    for row, (temperature, top_k) in enumerate(zip(temperatures, top_ks, strict=True)):
        tokens = rows_of(steps, 3)[row]
        logits = noise.logits([*PROMPT, *tokens])[len(PROMPT) - 1 :]
        for place, token in enumerate(tokens):
            score = steps[place].scores[row]
            logprobs = logits[place].log_softmax(-1)
            assert score.token == token
            assert score.piece == noise.tokenizer.token_bytes(token)
            assert score.logprob == pytest.approx(float(logprobs[token]), abs=1e-4)
            assert score.rank == int((logprobs > logprobs[token]).sum())
            entropy = -float((logprobs.exp() * logprobs).sum())
            assert score.entropy == pytest.approx(entropy, abs=1e-4)
            best = logprobs.topk(4)
            assert [other.token for other in score.alternatives] == best.indices.tolist()
            assert [other.logprob for other in score.alternatives] == pytest.approx(
                best.values.tolist(), abs=1e-4
            )
            if temperature:
                kept = logits[place].topk(top_k)
                drawn = (kept.values / temperature).log_softmax(-1)
                at = kept.indices.tolist().index(token)
                assert score.sampled_logprob == pytest.approx(float(drawn[at]), abs=1e-4)
            else:
                assert score.sampled_logprob == 0.0


def test_nothing_is_scored_unless_asked_for(noise):
    steps = Engine(noise).generate(PROMPT, 2, SamplingParams(max_tokens=2))
    assert [step.scores for step in steps] == [(), ()]


def test_forced_tokens_are_scored_but_were_not_sampled():
    case = script_case("valid")
    params = SamplingParams((1.0,), max_tokens=64, alternatives=2)
    steps = list(ScriptedEngine(case["rows"]).generate(case["prompt"], 1, params))
    for step in steps:
        assert step.scores[0].logprob < 0
        assert (step.scores[0].sampled_logprob is None) == (step.masks == (0,))


def script_case(name: str) -> dict:
    return next(case for case in SCRIPTS["cases"] if case["name"] == name)


def test_given_tokens_are_scored_in_one_pass(noise, monkeypatch):
    monkeypatch.setattr("engine.generate.PREFILL_CHUNK", 64)
    tokens = [*PROMPT, *([65, 66, 67] * 60)]
    scores = Engine(noise).score(tokens, start=5, alternatives=3)
    logprobs = noise.logits(tokens).log_softmax(-1)
    assert [score.token for score in scores] == tokens[5:]
    for place in (5, 6, 63, 64, 65, 128, len(tokens) - 1):
        expected = float(logprobs[place - 1, tokens[place]])
        assert scores[place - 5].logprob == pytest.approx(expected, abs=1e-4)


def test_an_answer_that_is_scored_afterwards_gets_the_scores_of_when_it_was_generated(noise):
    params = SamplingParams((0.8,), (5,), max_tokens=12, seed=3, alternatives=4)
    steps = list(Engine(noise).generate(PROMPT, 1, params, tools=False))
    tokens = rows_of(steps, 1)[0]
    scores = Engine(noise).score([*PROMPT, *tokens], len(PROMPT), 4, temperature=0.8, top_k=5)
    for step, score in zip(steps, scores, strict=True):
        (then,) = step.scores
        assert (score.token, score.rank) == (then.token, then.rank)
        assert score.logprob == pytest.approx(then.logprob, abs=1e-4)
        assert score.sampled_logprob == pytest.approx(then.sampled_logprob, abs=1e-4)


def test_an_answer_goes_on_from_a_given_beginning(noise):
    greedy = SamplingParams((0.0,), max_tokens=20)
    (whole,) = rows_of(list(Engine(noise).generate(PROMPT, 1, greedy, tools=False)), 1)
    begun = [*PROMPT, *whole[:8]]
    rest = SamplingParams((0.0,), max_tokens=12)
    steps = list(Engine(noise).generate(begun, 3, rest, given=8, tools=False))
    assert rows_of(steps, 3) == [whole[8:]] * 3


def test_a_tool_call_that_a_given_beginning_leaves_open_goes_on():
    special = SCRIPTS["special_tokens"]
    start, end = special["python_start"], special["python_end"]
    opened, closed = special["output_start"], special["output_end"]
    # Cut inside the expression: the end of it still forces the result.
    engine = ScriptedEngine([[ord("7"), end]])
    begun = [65, start, ord("2"), ord("*")]
    steps = list(engine.generate([1, *begun], 1, SamplingParams(max_tokens=6), given=4))
    assert [(s.tokens[0], s.masks[0]) for s in steps] == [
        (ord("7"), 1),
        (end, 1),
        (opened, 0),
        (ord("1"), 0),
        (ord("4"), 0),
        (closed, 0),
    ]
    # The call covers the whole answer's characters, those of the beginning included.
    (row, index, call) = steps[-1].calls[-1]
    assert (row, index, call.start, call.expression, call.result) == (0, 0, 1, "2*7", "14")
    # Cut inside the result: the rest of it is forced.
    begun = [start, ord("2"), ord("*"), ord("7"), end, opened, ord("1")]
    steps = list(
        ScriptedEngine([[66]]).generate([1, *begun], 1, SamplingParams(max_tokens=3), given=7)
    )
    assert [s.tokens[0] for s in steps] == [ord("4"), closed, ord(".")]
    # Another token in the place of the result: nothing more is forced.
    begun[-1] = ord("9")
    steps = list(
        ScriptedEngine([[66]]).generate([1, *begun], 1, SamplingParams(max_tokens=2), given=7)
    )
    assert [s.masks[0] for s in steps] == [1, 1]
