"""Token for token over a server: against one that tokenises and takes ids, as vLLM and llama-server
do, with a vocabulary that anyone can read: a character's id is its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from chat_tui.backends.server import ServerBackend
from chat_tui.chat import Chat
from chat_tui.settings import Settings
from engine.messages import (
    Ask,
    Count,
    Counted,
    Event,
    Exchange,
    Failed,
    Finished,
    Load,
    Overflowed,
    Ready,
    RowFinished,
    SamplingParams,
    Started,
    Stepped,
)
from tests.chat_tui.sse_server import Asked, SseServer, Wire, talk
from tests.events import of, texts, until

USER, END, ASSISTANT, SYSTEM = 1, 2, 3, 4
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
VLLM = {"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 200}]}
LLAMA = {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {"n_ctx_train": 9999}}]}
PLAIN = SamplingParams((0.7,), top_ks=(None,), seed=1)


def codes(text: str) -> list[int]:
    return [ord(char) for char in text]


def rendered(messages: list[dict], *, generate: bool) -> list[int]:
    ids: list[int] = []
    for message in messages:
        ids += [ROLES[message["role"]], *codes(message["content"]), END, ord("\n")]
    return [*ids, ASSISTANT] if generate else ids


class Tokenising:
    """A server that answers "Yes" and its stop token, to whatever ids it is given.

    Attributes:
        prompts: the ids that it was asked to go on from.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.prompts: list[list[int]] = []
        self.bodies: list[dict] = []

    def __call__(self, asked: Asked, wire: Wire) -> None:
        body = asked.body
        match asked.path:
            case "/apply-template":
                ids = rendered(body["messages"], generate=body["add_generation_prompt"])
                wire.json(200, {"prompt": "".join(map(chr, ids))})
            case "/tokenize" if "messages" in body:
                ids = rendered(body["messages"], generate=body["add_generation_prompt"])
                wire.json(200, {"tokens": ids, "count": len(ids)})
            case "/tokenize":
                wire.json(200, {"tokens": codes(body.get("prompt") or body["content"])})
            case "/detokenize":
                text = "".join(map(chr, body["tokens"]))
                wire.json(200, {"prompt" if self.kind == "vllm" else "content": text})
            case "/v1/completions":
                self.prompts.append(body["prompt"])
                self.bodies.append(body)
                self._complete(body, wire)
            case _ if "tools" in body and self.kind == "vllm":
                wire.json(400, {"error": {"message": '"auto" tool choice needs a parser'}})
            case _:
                talk("As text")(asked, wire)

    def _complete(self, body: dict, wire: Wire) -> None:
        wire.start()
        for token in (*codes("Yes"), END):
            for index in range(body.get("n", 1)):
                text = chr(token) if token != END else ""
                choice: dict = {"index": index, "text": text}
                choice["finish_reason"] = "stop" if token == END else None
                if self.kind == "vllm":
                    assert body["return_token_ids"] is True
                    choice["token_ids"] = [token]
                else:
                    entry = {"id": token, "token": text, "bytes": codes(text), "logprob": -0.1}
                    choice["logprobs"] = {"content": [entry]}
                wire.event({"choices": [choice]})
        wire.done()


@pytest.fixture(params=["vllm", "llamacpp"])
def tokenising(request: pytest.FixtureRequest) -> Tokenising:
    return Tokenising(request.param)


@pytest.fixture
def server(tokenising: Tokenising) -> Iterator[SseServer]:
    models = VLLM if tokenising.kind == "vllm" else LLAMA
    with SseServer(tokenising, models) as server:
        server.pages["/props"] = {"default_generation_settings": {"n_ctx": 200}}
        yield server


@pytest.fixture
def backend(server: SseServer) -> Iterator[ServerBackend]:
    backend = ServerBackend()
    backend.send(Load("", server=server.url))
    until(backend, Ready)
    yield backend
    backend.close()


def ask(backend: ServerBackend, text: str, **fields: object) -> list[Event]:
    fields = {"params": PLAIN, "tools": False, **fields}
    backend.send(Ask(1, text, **fields))  # type: ignore[arg-type]
    return until(backend, Finished, Failed, Overflowed)


def test_the_prompt_is_the_list_of_ids(backend: ServerBackend, tokenising: Tokenising) -> None:
    events = ask(backend, "Hi?", samples=2)
    prompt = [USER, *codes("Hi?"), END, ord("\n"), ASSISTANT]
    assert tokenising.prompts == [prompt]
    assert tokenising.bodies[0]["n"] == 2
    assert tokenising.bodies[0]["max_tokens"] == 200 - len(prompt)
    (started,) = of(Started, events)
    assert list(started.prompt_tokens) == prompt
    assert texts(events, 2) == ["Yes", "Yes"]
    ids = [step.tokens[1] for step in of(Stepped, events) if step.tokens[1] is not None]
    assert ids == [*codes("Yes"), END]
    assert [event.closing for event in of(RowFinished, events)] == [(ord("\n"),)] * 2


def test_a_picked_answer_is_continued_token_for_token(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    odd = (ord("N"), 999, END)  # no text is encoded like this
    ask(backend, "And?", history=(Exchange("Hi?", odd, "No"),), system="Brief.")
    before = rendered([{"role": "system", "content": "Brief."}], generate=False)
    first = rendered([{"role": "user", "content": "Hi?"}], generate=True)
    then = rendered([{"role": "user", "content": "And?"}], generate=True)
    assert tokenising.prompts == [[*before, *first, *odd, ord("\n"), *then]]


def test_an_answer_begins_with_what_it_is_given(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    events = ask(backend, "Hi?", answer=(ord("O"), 998), answer_text="h ", tools=True)
    (started,) = of(Started, events)
    assert started.answer == (ord("O"), 998, *codes("h "))
    assert started.answer_text == f"O{chr(998)}h "
    assert tokenising.prompts[0][-4:] == list(started.answer)


def test_what_does_not_fit_is_known_beforehand(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    events = ask(backend, "x" * 150, history=(Exchange("y" * 50, tuple(codes("z" * 50)), ""),))
    (overflowed,) = of(Overflowed, events)
    assert overflowed.limit == 200
    assert overflowed.prompt_tokens == sum(overflowed.sizes) == 50 + 50 + 150 + 10
    assert not tokenising.prompts


def test_a_conversation_over_a_server_is_one_growing_list(
    server: SseServer, tokenising: Tokenising
) -> None:
    backend = ServerBackend()
    chat = Chat(backend, replace(Settings(), server=server.url, samples=1, tools=False))

    def settle() -> None:
        for event in until(backend, Finished, Failed):
            chat.take(event)

    for event in until(backend, Ready):
        chat.take(event)
    for text in ("Hi?", "And?", "Then?"):
        chat.send(text)
        settle()
    backend.close()
    first, second, third = tokenising.prompts
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    tokens = chat.conversation.tokens
    assert tokens[: len(third)] == third
    assert tokens[len(third) :] == [*codes("Yes"), END, ord("\n")]
    assert chat.conversation.mask.count(1) == 3 * len("Yes.")


def test_tools_that_vllm_refuses_are_known_before_the_first_message() -> None:
    tokenising = Tokenising("vllm")
    with SseServer(tokenising, VLLM) as server:
        backend = ServerBackend()
        backend.send(Load("", server=server.url))
        (ready,) = of(Ready, until(backend, Ready))
        ask(backend, "Hi?", tools=True)
        backend.close()
    assert "no calculator" in ready.info.backend_note
    assert "exact tokens" in ready.info.backend_note
    assert ready.info.context == 200
    assert len(tokenising.prompts) == 1


def test_a_template_that_does_more_than_append_is_not_followed() -> None:
    tokenising = Tokenising("vllm")

    def script(asked: Asked, wire: Wire) -> None:
        messages = asked.body.get("messages", [])
        if asked.path == "/tokenize" and len(messages) > 1:  # drops what was said before
            wire.json(200, {"tokens": rendered(messages[-1:], generate=True)})
        else:
            tokenising(asked, wire)

    with SseServer(script, VLLM) as server:
        backend = ServerBackend()
        backend.send(Load("", server=server.url))
        until(backend, Ready)
        assert texts(ask(backend, "Hi?")) == ["As text"]
        (failed,) = of(Failed, ask(backend, "Hi?", answer_text="Oh"))
        backend.close()
    assert "cannot go on from the middle" in failed.message


def test_the_server_counts_what_is_being_written(backend: ServerBackend) -> None:
    backend.send(Count(9, ("four", "漢字")))
    assert of(Counted, until(backend, Counted)) == [Counted(9, (4, 2))]
