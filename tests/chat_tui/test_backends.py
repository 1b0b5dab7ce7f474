"""What the screen relies on, whatever answers: the same cases for the local engine and a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chat_tui.backends.base import WaitingBackend
from chat_tui.backends.local import LocalBackend
from chat_tui.backends.server import ServerBackend
from engine.messages import (
    Ask,
    Cancel,
    Event,
    Exchange,
    Failed,
    Finished,
    Load,
    Loading,
    Prefilling,
    Ready,
    RowFinished,
    SamplingParams,
    Started,
    Stepped,
)
from tests.chat_tui.sse_server import MODELS, Script, SseServer, talk
from tests.chat_tui.token_server import VLLM, Tokenising
from tests.events import of, until

TINY = Path(__file__).parents[1] / "data" / "nanochat" / "V6" / "chatsft_checkpoints" / "d4"
PARAMS = SamplingParams((0.7,), max_tokens=24, seed=3)


@dataclass
class Side:
    """One kind of backend, with a model that it can load, and one that it can not."""

    make: Callable[[], WaitingBackend]
    good: Load
    bad: Load


@pytest.fixture(scope="module", params=["local", "server", "server that takes ids"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    with ExitStack() as stack:
        if request.param == "local":
            good = Load(str(TINY), device="cpu")
            yield Side(LocalBackend, good, Load("/nowhere/model.gguf"))
        else:
            script: Script = talk("Red and green and blue and much more", "No", pause=0.02)
            if "ids" in request.param:
                script = Tokenising("vllm", pause=0.02)
            models = VLLM if "ids" in request.param else MODELS
            server = stack.enter_context(SseServer(script, models))
            good = Load("", server=server.url)
            yield Side(ServerBackend, good, replace(good, server="http://127.0.0.1:9"))


@pytest.fixture(scope="module")
def backend(side: Side) -> Iterator[WaitingBackend]:
    backend = side.make()
    backend.send(side.good)
    until(backend, Ready)
    yield backend
    backend.close()


def finished(backend: WaitingBackend, ask: Ask) -> list[Event]:
    """The events of an ask, without what backends may say or not."""
    backend.send(ask)
    events = until(backend, Finished, Failed)
    return [event for event in events if not isinstance(event, (Prefilling, Loading, Ready))]


def test_an_ask_starts_steps_and_finishes_in_this_order(backend: WaitingBackend) -> None:
    events = finished(backend, Ask(7, "Name some colours.", samples=2, params=PARAMS))
    kinds = [type(event) for event in events]
    assert kinds[0] is Started
    assert kinds[-1] is Finished
    assert kinds.count(RowFinished) == 2
    assert set(kinds) == {Started, Stepped, RowFinished, Finished}
    assert {event.ask for event in events} == {7}
    started, stats = events[0], events[-1].stats
    assert started.seed == 3
    assert started.temperatures == (0.7, 0.7)
    assert 0 < stats.ttft_s < 120
    assert len(stats.row_tokens) == 2
    assert not backend.drain()


def test_each_step_has_a_place_for_every_row(backend: WaitingBackend) -> None:
    events = finished(backend, Ask(1, "Hello!", samples=3, params=PARAMS))
    ended: set[int] = set()
    for event in events:
        if isinstance(event, RowFinished):
            assert event.row not in ended
            ended.add(event.row)
        if isinstance(event, Stepped):
            assert len(event.tokens) == len(event.masks) == len(event.texts) == 3
            for row in range(3):
                assert (event.tokens[row] is None) == (event.masks[row] is None)
                if event.tokens[row] is None:
                    assert event.texts[row] == ""
                else:
                    assert row not in ended, "nothing follows a row's end"
    assert ended == {0, 1, 2}


def test_cancelling_ends_all_rows_and_the_ask(backend: WaitingBackend) -> None:
    backend.send(Ask(2, "Tell me a long story.", samples=2, params=replace(PARAMS, max_tokens=400)))
    events = until(backend, Stepped)
    backend.send(Cancel(2))
    events += until(backend, Finished)
    reasons = {event.row: event.reason for event in of(RowFinished, events)}
    assert set(reasons) == {0, 1}
    assert "cancelled" in reasons.values()


def test_cancelling_one_row_leaves_the_other(backend: WaitingBackend) -> None:
    backend.send(Ask(3, "Tell me a long story.", samples=2, params=replace(PARAMS, max_tokens=60)))
    events = until(backend, Stepped)
    backend.send(Cancel(3, 0))
    events += until(backend, Finished)
    reasons = {event.row: event.reason for event in of(RowFinished, events)}
    assert reasons[0] == "cancelled"
    assert reasons[1] in ("stop", "length")


def test_cancelling_what_does_not_run_does_nothing(backend: WaitingBackend) -> None:
    backend.send(Cancel(99))
    backend.send(Cancel(99, 5))
    assert finished(backend, Ask(4, "Hello!", params=PARAMS))


def test_a_history_of_another_model_is_taken_by_its_text(backend: WaitingBackend) -> None:
    history = (Exchange("I am Ada.", None, "Hello, Ada!"),)
    assert of(Finished, finished(backend, Ask(5, "Who am I?", history, params=PARAMS)))


def test_a_model_that_cannot_be_had_leaves_the_backend_usable(
    side: Side, backend: WaitingBackend
) -> None:
    backend.send(side.bad)
    (failed,) = of(Failed, until(backend, Failed))
    assert failed.ask is None
    assert failed.message
    assert "\n" not in failed.message
    backend.send(side.good)
    until(backend, Ready)
    assert of(Finished, finished(backend, Ask(6, "Hello!", params=PARAMS)))


def test_closing_is_final_until_something_is_sent(side: Side) -> None:
    backend = side.make()
    backend.close()
    for _ in "ab":
        backend.send(side.bad)
        until(backend, Failed)
        backend.close()
        backend.close()
        backend.drain()
        time.sleep(0.1)
        assert not backend.drain()


def test_closing_while_an_answer_grows_is_final_too(side: Side, backend: WaitingBackend) -> None:
    backend.send(Ask(8, "Tell me a long story.", params=replace(PARAMS, max_tokens=400)))
    until(backend, Stepped)
    backend.close()
    backend.drain()
    time.sleep(0.1)
    assert not backend.drain()
    backend.send(side.good)
    until(backend, Ready)
