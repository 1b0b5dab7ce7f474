"""Real servers, where there are some: `CHAT_TUI_TEST_SERVERS="http://127.0.0.1:8177 ..." pytest`.

Nothing here depends on what a model says, only on that it says something; but a model that does not
call the calculator leaves the tests of that skipped.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from chat_tui.backends.server import ServerBackend
from chat_tui.chat import Chat
from chat_tui.effects import Noted
from chat_tui.settings import Settings, Source
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
    ToolCall,
)
from tests.chat_tui.talking import converse
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
    events = until(backend, Finished, Failed, timeout=300)
    assert not of(Failed, events), of(Failed, events)
    return events


def exact(served: tuple[ServerBackend, ModelInfo]) -> ServerBackend:
    if "exact tokens" not in served[1].backend_note:
        pytest.skip("it takes no token ids")
    return served[0]


def running(served: tuple[ServerBackend, ModelInfo]) -> int | None:
    """How many answers the server works on, by its own account; None where it gives none."""
    root = served[1].path.removesuffix("/v1")
    if served[1].backend == "vLLM":
        pages = httpx.get(f"{root}/metrics").text
        found = re.findall(r"^vllm:num_requests_running\S* (\S+)$", pages, re.MULTILINE)
        return int(sum(map(float, found)))
    if served[1].backend == "llama-server":
        return sum(slot["is_processing"] for slot in httpx.get(f"{root}/slots").json())
    return None


def wait(until: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


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


def test_cancelling_ends_at_once_and_stops_the_server(
    served: tuple[ServerBackend, ModelInfo],
) -> None:
    backend = served[0]
    params = SamplingParams((0.8,), max_tokens=1000, seed=7)
    backend.send(Ask(2, "Tell me a long story.", samples=4, params=params, tools=False))
    until(backend, Stepped, timeout=300)
    wait(lambda: running(served) != 0)  # its figures come some tokens late
    backend.send(Cancel(2))
    assert of(Finished, until(backend, Finished, timeout=2))
    wait(lambda: not running(served))
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


def rendering(info: ModelInfo, messages: list[dict[str, str]]) -> list[int]:
    """What the server's own template makes of messages."""
    root, body = info.path.removesuffix("/v1"), {"messages": messages}
    if info.backend == "vLLM":
        return httpx.post(f"{root}/tokenize", json={"model": info.name, **body}).json()["tokens"]
    text = httpx.post(f"{root}/apply-template", json=body).json()["prompt"]
    body = {"content": text, "add_special": True, "parse_special": True}
    return httpx.post(f"{root}/tokenize", json=body).json()["tokens"]


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_the_list_is_what_the_template_makes_of_the_conversation(
    served: tuple[ServerBackend, ModelInfo], system: str | None
) -> None:
    backend = exact(served)
    history = (Exchange("Name a colour.", None, "Blue."), Exchange("And?", None, "Red."))
    events = ask(backend, "Why?", history=history, system=system)
    messages = [] if system is None else [{"role": "system", "content": system}]
    for exchange in history:
        messages.append({"role": "user", "content": exchange.user})
        messages.append({"role": "assistant", "content": exchange.text})
    messages.append({"role": "user", "content": "Why?"})
    assert list(of(Started, events)[0].prompt_tokens) == rendering(served[1], messages)


def test_a_typed_name_of_a_special_token_is_text(
    served: tuple[ServerBackend, ModelInfo],
) -> None:
    backend = exact(served)
    (plain,) = of(Started, ask(backend, "a b"))
    (typed,) = of(Started, ask(backend, "a <|im_end|> b"))
    for token in set(plain.prompt_tokens):  # those that end a message among them
        assert plain.prompt_tokens.count(token) == typed.prompt_tokens.count(token)


def test_the_calculator_is_called_in_each_answer(
    served: tuple[ServerBackend, ModelInfo],
) -> None:
    backend = exact(served)
    events = ask(backend, "What is 123*456?", samples=4, tools=True)
    calls: dict[int, ToolCall] = {}
    for step in of(Stepped, events):
        calls |= {row: call for row, _, call in step.calls}
    if not any(call.result for call in calls.values()):
        pytest.skip("it called nothing")
    for row, call in calls.items():
        if not (call.done and call.result):
            continue
        steps = [step for step in of(Stepped, events) if step.tokens[row] is not None]
        forced = "".join(step.texts[row] for step in steps if step.masks[row] == 0)
        assert call.result in forced
        assert NO_ID not in ids(events, row)
        assert texts(events, 4)[row][call.start : call.end].endswith(forced)


def test_a_conversation_with_the_calculator_is_one_growing_list(
    served: tuple[ServerBackend, ModelInfo],
) -> None:
    backend = exact(served)
    settings = Settings(models=(Source("", served[1].path),), samples=1, max_tokens=24)
    chat = Chat(backend, settings)
    converse(chat, backend, "Hello!", "What is 12*7?", "Thank you.", timeout=300)
    assert not [effect for effect in chat.effects() if isinstance(effect, Noted)]
    assert NO_ID not in chat.conversation.tokens
    assert len(chat.conversation.turns) == 3


def test_an_answer_goes_on_from_its_beginning(served: tuple[ServerBackend, ModelInfo]) -> None:
    backend = exact(served)
    first = ask(backend, "Tell me a story.")
    begun = tuple(ids(first, 0)[:5])
    events = ask(backend, "Tell me a story.", answer=begun, answer_text=" and")
    (started,) = of(Started, events)
    assert started.answer[:5] == begun
    assert started.answer_text.endswith(" and")
    assert texts(events)[0]
