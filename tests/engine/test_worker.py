"""The engine's process with the real model: what is asked, what comes back, and what happens when
it dies."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from chat_tui.backends.local import LocalBackend
from engine.loading.gguf import read_gguf
from engine.messages import (
    Ask,
    Cancel,
    Count,
    Counted,
    Died,
    Event,
    Exchange,
    Failed,
    Finished,
    Load,
    Overflowed,
    Ready,
    RowFinished,
    SamplingParams,
    Score,
    Scored,
    Started,
    Stepped,
)
from engine.tokenizer import Tokenizer
from tests.events import of, until

GREEDY = SamplingParams((0.0,), max_tokens=40, seed=1)


@pytest.fixture(scope="module")
def backend(engine_process: LocalBackend) -> LocalBackend:
    return engine_process


@pytest.fixture(scope="module")
def calculation(backend: LocalBackend) -> list[Event]:
    """What comes of a question that is answered with the calculator."""
    backend.send(Ask(1, "What is 4821 - 977?", params=GREEDY))
    return until(backend, Finished)


def answer(events: list[Event], row: int = 0) -> tuple[list[int], list[int], str]:
    steps = of(Stepped, events)
    tokens = [step.tokens[row] for step in steps if step.tokens[row] is not None]
    masks = [step.masks[row] for step in steps if step.masks[row] is not None]
    tail = next(event.text for event in of(RowFinished, events) if event.row == row)
    return tokens, masks, "".join(step.texts[row] for step in steps) + tail


def test_a_calculation_is_forced_inline(calculation):
    tokens, masks, text = answer(calculation)
    assert text == "4821 - 977 = <<4821-977=3844>>3844"
    calls = [call for step in of(Stepped, calculation) for _, _, call in step.calls]
    assert (calls[-1].expression, calls[-1].result, calls[-1].done) == ("4821-977", "3844", True)
    assert masks.count(0) == len("3844>>") - 1  # digits are tokens, `>>` is one
    (stats,) = of(Finished, calculation)
    assert stats.stats.row_tokens == (len(tokens),)
    assert 0 < stats.stats.prefill_s <= stats.stats.ttft_s


def test_texts_are_counted_while_an_answer_grows(backend, smollm2_path):
    encode = Tokenizer.from_gguf(read_gguf(smollm2_path).metadata).encode
    texts = ("What is 4821 - 977?", "", "<|im_end|> 漢字 \ud800", "word " * 500)
    backend.send(Ask(5, "Tell me a long story.", params=replace(GREEDY, max_tokens=60)))
    until(backend, Stepped)
    backend.send(Count(6, texts))
    events = until(backend, Counted)
    assert not of(Finished, events)
    assert of(Counted, events) == [Counted(6, tuple(len(encode(text)) for text in texts))]
    until(backend, Finished)


def test_the_history_only_grows_by_appended_tokens(backend):
    history: list[Exchange] = []
    known: list[int] = []
    for number, text in enumerate(("Hello there!", "Name a fruit.", "And one more?")):
        backend.send(Ask(10 + number, text, tuple(history), params=GREEDY))
        events = until(backend, Finished)
        (started,) = of(Started, events)
        assert list(started.prompt_tokens[: len(known)]) == known
        tokens, _, said = answer(events)
        (finished,) = of(RowFinished, events)
        known = [*started.prompt_tokens, *tokens, *finished.closing]
        history.append(Exchange(text, tuple(tokens), said))


def test_direct_questions_go_through_the_calculator(backend):
    """At temperature 0; none of these was among the questions that the examples were chosen by."""
    questions = {
        "What is 6042 - 1885?": "4157",
        "Compute 73*29.": "2117",
        "What is 35% of 520?": "182",
        "Divide 1539 by 9": "171",
        "Add 2718 and 3141.": "5859",
        "How much is 84 times 17?": "1428",
        "Subtract 468 from 902.": "434",
        "Calculate 8% of 1250": "100",
        "what is 4096 / 64?": "64",
        "Multiply 215 by 14.": "3010",
    }
    right = 0
    for number, (question, value) in enumerate(questions.items()):
        # What they are taught by is the same for all.
        backend.send(Ask(30 + number, question, params=GREEDY, reuse_cache=True))
        events = until(backend, Finished)
        calls = [call for step in of(Stepped, events) for _, _, call in step.calls]
        right += bool(calls) and calls[-1].result == value
    assert right >= 8


def test_ordinary_questions_do_not_call_it(backend):
    for number, text in enumerate(("What is the capital of France?", "Name 3 fruits.")):
        backend.send(Ask(50 + number, text, params=GREEDY))
        events = until(backend, Finished)
        assert not any(step.calls for step in of(Stepped, events))
        assert "<<" not in answer(events)[2]


def test_without_tools_nothing_is_taught_or_forced(backend, calculation):
    backend.send(Ask(60, "What is 4821 - 977?", tools=False, params=GREEDY))
    events = until(backend, Finished)
    assert "<<" not in answer(events)[2]
    (without,), (with_tools,) = of(Started, events), of(Started, calculation)
    more = len(with_tools.prompt_tokens) - len(without.prompt_tokens)
    assert more > 100
    assert with_tools.preface_tokens - without.preface_tokens == more


def test_rows_have_their_own_temperatures_and_reproducible_seeds(backend):
    params = SamplingParams((0.0, 1.2), top_ks=(50,), max_tokens=12, seed=77)
    backend.send(Ask(70, "Tell me something.", samples=4, params=params))
    events = until(backend, Finished)
    (started,) = of(Started, events)
    assert (started.seed, started.temperatures) == (77, (0.0, 1.2, 0.0, 1.2))
    assert answer(events, 0)[0] == answer(events, 2)[0]
    backend.send(Ask(71, "Tell me something.", samples=4, params=params))
    again = until(backend, Finished)
    assert [answer(again, row) for row in range(4)] == [answer(events, row) for row in range(4)]


def test_a_fresh_seed_is_taken_and_told_where_none_is_given(backend):
    seeds = set()
    for number in range(2):
        backend.send(Ask(80 + number, "Hi", params=SamplingParams(max_tokens=1)))
        (started,) = of(Started, until(backend, Finished))
        seeds.add(started.seed)
    assert len(seeds) == 2


def test_cancelling_keeps_what_is_there(backend):
    backend.send(Ask(90, "Write a long story about the sea.", samples=2))
    until(backend, Stepped)
    backend.send(Cancel(90, row=0))
    events = until(backend, RowFinished)
    (ended,) = of(RowFinished, events)
    assert (ended.row, ended.reason) == (0, "cancelled")
    assert ended.closing  # the row can be gone on with
    backend.send(Cancel(90))
    events = until(backend, Finished)
    assert [(event.row, event.reason) for event in of(RowFinished, events)] == [(1, "cancelled")]


def test_an_ask_can_be_cancelled_before_it_starts(backend):
    backend.send(Ask(100, "Write a long story about the sea.", params=SamplingParams(max_tokens=9)))
    backend.send(Ask(101, "Another."))
    backend.send(Cancel(101))
    events = until(backend, Finished)
    if not any(event.ask == 101 for event in of(Finished, events)):
        events += until(backend, Finished)
    assert not [event for event in of(Stepped, events) if event.ask == 101]
    assert len(of(Finished, events)) == 2


def test_reusing_the_cache_prefills_only_what_is_new(backend):
    history: tuple[Exchange, ...] = ()
    for number, text in enumerate(("Hello there!", "Name a fruit.")):
        ask = Ask(105 + number, text, history, samples=2, params=GREEDY, reuse_cache=True)
        backend.send(ask)
        events = until(backend, Finished)
        tokens, _, said = answer(events)
        (finished,) = of(Finished, events)
        (started,) = of(Started, events)
        history += (Exchange(text, tuple(tokens), said),)
        if number == 0:  # others may have left something of the same beginning
            assert finished.stats.reused_tokens < len(started.prompt_tokens)
            held = len(started.prompt_tokens) + len(tokens) - 1
    assert finished.stats.reused_tokens == held


def test_an_answer_is_begun_with_ids_and_text(backend, calculation):
    tokens, _, text = answer(calculation)
    begun = Ask(121, "What is 4821 - 977?", answer=tuple(tokens[:3]), answer_text=" <<2*3=")
    backend.send(begun._replace(params=GREEDY))
    events = until(backend, Finished)
    (started,) = of(Started, events)
    assert started.answer[:3] == tuple(tokens[:3])
    assert started.prompt_tokens[-len(started.answer) :] == started.answer
    assert started.answer_text.endswith(" <<2*3=")
    ends = started.answer_ends
    assert len(ends) == len(started.answer)
    assert ends[-1] == len(started.answer_text)
    assert started.answer_text[ends[-2] :] == "="
    assert text.startswith(started.answer_text.removesuffix(" <<2*3="))
    assert answer(events)[2].startswith("6>>")


def test_given_tokens_are_scored(backend):
    backend.send(Ask(130, "Hello there!", params=replace(GREEDY, alternatives=3)))
    events = until(backend, Finished)
    assert all(
        step.scores[0].alternatives[0].token == step.tokens[0] for step in of(Stepped, events)
    )
    (started,) = of(Started, events)
    backend.send(Score(131, started.prompt_tokens, start=started.preface_tokens, alternatives=2))
    (scored,) = of(Scored, until(backend, Scored))
    own = started.prompt_tokens[started.preface_tokens :]
    assert tuple(score.token for score in scored.scores) == own
    assert b"Hello" in [score.piece for score in scored.scores]
    backend.send(Score(132, (1,), start=5))
    (failed,) = of(Failed, until(backend, Failed))
    assert failed.ask == 132


def test_a_prompt_that_does_not_fit_is_told_before_anything_runs(backend):
    history = tuple(Exchange("word " * 1500, None, "ok " * 1500) for _ in range(3))
    backend.send(Ask(110, "And now?", history))
    events = until(backend, Overflowed)
    (overflowed,) = of(Overflowed, events)
    assert overflowed.limit == 8192
    assert overflowed.prompt_tokens > 8192
    assert len(overflowed.sizes) == 4
    assert not of(Started, events)


def test_a_model_that_does_not_exist_is_one_line(smollm2_path):
    backend = LocalBackend()
    try:
        backend.send(Load("no-such-model"))
        (failed,) = of(Failed, until(backend, Failed))
        assert "no-such-model" in failed.message
        assert "\n" not in failed.message
        backend.send(Ask(1, "Hello?"))
        (failed,) = of(Failed, until(backend, Failed))
        assert failed.ask == 1
    finally:
        backend.close()


def test_a_load_that_fails_leaves_the_model_that_was_there(backend, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    backend.send(Load(str(broken)))
    (failed,) = of(Failed, until(backend, Failed))
    assert "broken.gguf" in failed.message
    assert failed.kept
    backend.send(Ask(140, "Hi", params=GREEDY))
    assert answer(until(backend, Finished))[0]


def test_the_same_model_with_other_threads_is_there_at_once(backend):
    backend.send(Load("smollm2", device="cpu"))
    until(backend, Ready)
    backend.send(Load("smollm2", device="cpu", threads=1, beside=True))
    events = until(backend, Ready)
    assert [type(event) for event in events] == [Ready]
    backend.send(Load("smollm2", device="cpu"))
    until(backend, Ready)


def test_killing_the_process_mid_answer_costs_that_answer_only(backend):
    backend.send(Ask(150, "Write a long story about the sea."))
    until(backend, Stepped)
    os.kill(backend.pid, signal.SIGKILL)
    (died,) = of(Died, until(backend, Died))
    assert "killed" in died.reason
    backend.send(Load("smollm2", device="cpu"))
    until(backend, Ready)
    backend.send(Ask(151, "Hi", params=GREEDY))
    assert answer(until(backend, Finished))[0]


def test_the_process_ends_with_the_screen(smollm2_path):
    backend = LocalBackend()
    backend.send(Load("no-such-model"))
    until(backend, Failed)
    pid = backend.pid
    backend.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
