"""Real servers, where there are some: `CHAT_TUI_TEST_SERVERS="http://127.0.0.1:8177 ..." pytest`.

Nothing here depends on what a model says, only on that it says something.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from chat_tui.backends.server import ServerBackend
from engine.messages import (
    NO_ID,
    Ask,
    Cancel,
    Event,
    Exchange,
    Failed,
    Finished,
    Load,
    ModelInfo,
    Ready,
    RowFinished,
    SamplingParams,
    Started,
    Stepped,
)
from tests.events import of, texts, until

SERVERS = os.environ.get("CHAT_TUI_TEST_SERVERS", "").split()
PARAMS = SamplingParams((0.8,), top_ks=(50,), max_tokens=24, seed=7, alternatives=5)

pytestmark = pytest.mark.skipif(not SERVERS, reason="CHAT_TUI_TEST_SERVERS names none")


@pytest.fixture(scope="module", params=SERVERS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[ServerBackend, ModelInfo]]:
    backend = ServerBackend()
    backend.send(Load("", server=request.param))
    (ready,) = of(Ready, until(backend, Ready, Failed))
    yield backend, ready.info
    backend.close()


@pytest.fixture
def backend(served: tuple[ServerBackend, ModelInfo]) -> ServerBackend:
    return served[0]


def ask(backend: ServerBackend, text: str, **fields: object) -> list[Event]:
    fields = {"params": PARAMS, "tools": False, **fields}
    backend.send(Ask(1, text, **fields))  # type: ignore[arg-type]
    events = until(backend, Finished, Failed, timeout=120)
    assert not of(Failed, events), of(Failed, events)
    return events


def exact(served: tuple[ServerBackend, ModelInfo]) -> ServerBackend:
    if "exact tokens" not in served[1].backend_note:
        pytest.skip("it takes no token ids")
    return served[0]


def ids(events: list[Event], row: int) -> list[int]:
    steps = of(Stepped, events)
    return [step.tokens[row] for step in steps if step.tokens[row] is not None]


def test_four_answers_differ_and_end(backend: ServerBackend) -> None:
    events = ask(backend, "Tell me a story.", samples=4)
    assert len(set(texts(events, 4))) == 4
    assert len(of(RowFinished, events)) == 4


def test_messages_are_answered_too(backend: ServerBackend) -> None:
    assert texts(ask(backend, "What is 12*7?", tools=True))[0]


def test_log_probabilities_are_given(backend: ServerBackend) -> None:
    scores = [step.scores[0] for step in of(Stepped, ask(backend, "Name a colour.")) if step.scores]
    assert scores
    assert all(score.logprob <= 0 and score.alternatives for score in scores)


def test_cancelling_ends_at_once(backend: ServerBackend) -> None:
    params = SamplingParams((0.8,), max_tokens=1000, seed=7)
    backend.send(Ask(2, "Tell me a long story.", samples=4, params=params, tools=False))
    until(backend, Stepped, timeout=120)
    backend.send(Cancel(2))
    assert of(Finished, until(backend, Finished, timeout=2))
    assert texts(ask(backend, "Name a colour."))[0], "and the next one is answered"


def test_a_picked_answer_is_continued_token_for_token(
    served: tuple[ServerBackend, ModelInfo],
) -> None:
    backend = exact(served)
    first = ask(backend, "Name a colour.", samples=2)
    tokens, said = ids(first, 1), texts(first, 2)[1]
    assert NO_ID not in tokens
    closing = next(event.closing for event in of(RowFinished, first) if event.row == 1)
    events = ask(backend, "Why that?", history=(Exchange("Name a colour.", tuple(tokens), said),))
    known = [*of(Started, first)[0].prompt_tokens, *tokens, *closing]
    assert list(of(Started, events)[0].prompt_tokens[: len(known)]) == known


def test_an_answer_goes_on_from_its_beginning(served: tuple[ServerBackend, ModelInfo]) -> None:
    backend = exact(served)
    first = ask(backend, "Tell me a story.")
    begun = tuple(ids(first, 0)[:5])
    events = ask(backend, "Tell me a story.", answer=begun, answer_text=" and")
    (started,) = of(Started, events)
    assert started.answer[:5] == begun
    assert started.answer_text.endswith(" and")
    assert texts(events)[0]
