"""Token for token over a server: against one that tokenises and takes ids, as vLLM and llama-server
do, with a vocabulary that anyone can read: a character's id is its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from chat_tui.backends.server import ServerBackend
from chat_tui.chat import Chat
from chat_tui.effects import Noted
from chat_tui.settings import Settings, Source
from engine.messages import (
    NO_ID,
    Ask,
    Cancel,
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
    Started,
    Stepped,
)
from tests.chat_tui.asked import PLAIN, ask
from tests.chat_tui.sse_server import Asked, SseServer, Wire
from tests.chat_tui.talking import converse
from tests.chat_tui.token_server import (
    ASSISTANT,
    END,
    LLAMA,
    ROLES,
    SYSTEM,
    USER,
    VLLM,
    YES,
    Tokenising,
    codes,
    rendered,
)
from tests.events import of, texts, until


@pytest.fixture(params=["vllm", "llamacpp"])
def tokenising(request: pytest.FixtureRequest) -> Tokenising:
    return Tokenising(request.param)


@pytest.fixture
def server(tokenising: Tokenising) -> Iterator[SseServer]:
    models = VLLM if tokenising.kind == "vllm" else LLAMA
    with SseServer(tokenising, models) as server:
        server.pages["/props"] = {"default_generation_settings": {"n_ctx": 400}}
        yield server


@pytest.fixture
def backend(server: SseServer) -> Iterator[ServerBackend]:
    backend = ServerBackend()
    backend.send(Load("", server=server.url))
    until(backend, Ready)
    yield backend
    backend.close()


def test_the_prompt_is_the_list_of_ids(backend: ServerBackend, tokenising: Tokenising) -> None:
    events = ask(backend, "Hi?", samples=2)
    prompt = [USER, *codes("Hi?"), END, ord("\n"), ASSISTANT]
    assert tokenising.prompts == [prompt]
    assert tokenising.bodies[0]["n"] == 2
    assert tokenising.bodies[0]["max_tokens"] == 400 - len(prompt)
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
    events = ask(backend, "x" * 350, history=(Exchange("y" * 50, tuple(codes("z" * 50)), ""),))
    (overflowed,) = of(Overflowed, events)
    assert overflowed.limit == 400
    assert overflowed.prompt_tokens == sum(overflowed.sizes) == 50 + 50 + 350 + 10
    assert not tokenising.prompts


def test_a_conversation_over_a_server_is_one_growing_list(
    server: SseServer, tokenising: Tokenising
) -> None:
    backend = ServerBackend()
    chat = Chat(backend, Settings(models=(Source("", server.url),), samples=1, tools=False))

    converse(chat, backend, "Hi?", "And?", "Then?")
    chat.close()
    first, second, third = tokenising.prompts
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    tokens = chat.conversation.tokens
    assert tokens[: len(third)] == third
    assert tokens[len(third) :] == [*codes("Yes"), END, ord("\n")]
    assert chat.conversation.mask.count(1) == 3 * len("Yes.")


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


def test_what_a_user_types_is_no_special_token(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    ask(backend, "Hi<|end|> you", history=(Exchange("<|end|>", None, "<|end|>"),))
    first = [USER, *codes("<|end|>"), END, ord("\n"), ASSISTANT, *codes("<|end|>"), END, ord("\n")]
    then = [USER, *codes("Hi<|end|> you"), END, ord("\n"), ASSISTANT]
    assert tokenising.prompts == [[*first, *then]]


def test_a_name_that_is_typed_into_an_answer_is_text(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    ask(backend, "Hi?", answer=(ord("O"),), answer_text="<|end|>")
    assert tokenising.prompts[0][-7:] == codes("<|end|>")


def test_the_token_that_ends_an_answer_is_known_by_id_and_name(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    """vLLM gives ids of what was sampled, and of alternatives the texts; llama-server gives special
    tokens without a text."""
    tokenising.logprobs = {"Y": -0.5, "<|end|>": -1.5, "N": -3.0}
    params = replace(PLAIN, alternatives=3)
    scores = [step.scores[0] for step in of(Stepped, ask(backend, "Hi?", params=params))]
    assert (scores[-1].token, scores[-1].piece) == (END, b"<|end|>")
    others = [other.token for other in scores[0].alternatives]
    assert others == ([ord("Y"), END, NO_ID] if tokenising.kind == "vllm" else [])


# The calculator.


SUM = "What is 12*7?"
CALLS = codes("It is <<12*7=")


def told(events: list[Event], row: int = 0) -> tuple[str, str]:
    """What was sampled, and what was forced."""
    steps = [step for step in of(Stepped, events) if step.tokens[row] is not None]
    assert all(step.tokens[row] >= 0 for step in steps)
    sampled, forced = (
        "".join(step.texts[row] for step in steps if step.masks[row] == mask) for mask in (1, 0)
    )
    return sampled, forced


def test_a_call_is_answered_in_the_list_of_ids(
    backend: ServerBackend, server: SseServer, tokenising: Tokenising
) -> None:
    tokenising.says = {chr(ASSISTANT): [*CALLS, *codes("99>>99")], "84>>": [*codes("84."), END]}
    events = ask(backend, SUM, tools=True)
    assert told(events) == ("It is <<12*7=84.", "84>>")
    assert texts(events) == ["It is <<12*7=84>>84."]
    calls = [call for step in of(Stepped, events) for *_, call in step.calls]
    assert (calls[-1].expression, calls[-1].result, calls[-1].done) == ("12*7", "84", True)
    assert texts(events)[0][calls[-1].start : calls[-1].end] == "<<12*7=84>>"
    first, second = tokenising.prompts
    assert second == [*first, *CALLS, *codes("84>>")]
    assert "".join(map(chr, first)).count("<<") == 5, "taught by examples"
    assert server.hung_up.wait(5), "what the server went on with is stopped"
    assert [event.reason for event in of(RowFinished, events)] == ["stop"]


def test_answers_that_may_call_are_requests_of_their_own(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    tokenising.says = {chr(ASSISTANT): CALLS, "84>>": YES}
    events = ask(backend, SUM, tools=True, samples=2)
    assert texts(events, 2) == ["It is <<12*7=84>>Yes"] * 2
    assert [body.get("n") for body in tokenising.bodies] == [None] * 4
    tokenising.says = {}
    ask(backend, "Hi?", tools=True, samples=2)
    assert tokenising.bodies[-1]["n"] == 2, "where none is expected, they share one"


def test_a_call_out_of_a_shared_request_leaves_the_others_in_it(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    tokenising.says = {chr(ASSISTANT): CALLS, "84>>": YES}
    events = ask(backend, "Hi?", tools=True, samples=2)
    assert texts(events, 2) == ["It is <<12*7=84>>Yes", "Yes"]
    assert [body.get("n") for body in tokenising.bodies] == [2, None]
    assert tokenising.bodies[1]["seed"] == 1


def test_no_call_is_looked_for_without_tools(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    tokenising.says = {chr(ASSISTANT): [*CALLS, *codes("85>>"), END]}
    events = ask(backend, SUM)
    assert texts(events) == ["It is <<12*7=85>>"]
    assert len(tokenising.prompts) == 1


@pytest.mark.parametrize("begun", ["It is <<12*", "It is <<12*7=", "It is <<12*7=8"])
def test_an_answer_that_begins_inside_a_call_goes_on_in_it(
    backend: ServerBackend, tokenising: Tokenising, begun: str
) -> None:
    tokenising.says = {"<<12*": codes("7="), "84>>": YES}
    events = ask(backend, SUM, tools=True, answer=tuple(codes(begun)))
    assert begun + texts(events)[0] == "It is <<12*7=84>>Yes"
    calls = [call for step in of(Stepped, events) for *_, call in step.calls]
    assert (calls[-1].start, calls[-1].end, calls[-1].done) == (6, 17, True)


def test_no_more_is_forced_than_may_be_said(backend: ServerBackend, tokenising: Tokenising) -> None:
    tokenising.says = {chr(ASSISTANT): CALLS}
    params = replace(PLAIN, max_tokens=len(CALLS) + 1)
    events = ask(backend, SUM, tools=True, params=params)
    assert told(events) == ("It is <<12*7=", "8")
    assert [event.reason for event in of(RowFinished, events)] == ["length"]


@pytest.mark.parametrize("tokenising", ["vllm"], indirect=True)  # llama-server always tells them
def test_without_ids_an_answer_ends_at_its_call_and_says_so(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    tokenising.says, tokenising.tells_ids = {chr(ASSISTANT): CALLS}, False
    events = ask(backend, SUM, tools=True)
    assert texts(events) == ["It is <<12*7=84>>"]
    (failed,) = of(Failed, events)
    assert "does not tell token ids" in failed.message


def test_cancelling_while_a_result_is_put_in(
    backend: ServerBackend, tokenising: Tokenising
) -> None:
    tokenising.says = {chr(ASSISTANT): CALLS, "84>>": codes("So")}
    backend.send(Ask(1, SUM, params=PLAIN, tools=True))
    events = until(backend, Stepped)
    while not texts(events)[0].endswith("So"):
        events += until(backend, Stepped)
    backend.send(Cancel(1))
    events += until(backend, Finished)
    assert [event.reason for event in of(RowFinished, events)] == ["cancelled"]


def test_examples_before_one_message_do_not_change_the_list(
    server: SseServer, tokenising: Tokenising
) -> None:
    backend = ServerBackend()
    chat = Chat(backend, Settings(models=(Source("", server.url),), samples=1))
    converse(chat, backend, "Hi?", SUM, "Thanks.")
    chat.close()
    assert not [effect for effect in chat.effects() if isinstance(effect, Noted)]
    before, taught, after = tokenising.prompts
    line = ord("\n")
    common = [*before, *YES, line, USER, *codes(SUM), END, line, ASSISTANT]
    assert after[: len(common)] == common
    assert taught[-len(common) :] == common
    assert len(taught) > len(common)
    assert chat.conversation.tokens[: len(after)] == after


@pytest.fixture(params=["vllm", "llamacpp"])
def declaring(request: pytest.FixtureRequest) -> Iterator[tuple[Tokenising, SseServer]]:
    tokenising = Tokenising(request.param, declare="tool_call")
    with SseServer(tokenising, VLLM if request.param == "vllm" else LLAMA) as server:
        server.pages["/props"] = {"default_generation_settings": {"n_ctx": 400}}
        yield tokenising, server


def test_a_template_that_declares_tools_is_given_the_calculator(
    declaring: tuple[Tokenising, SseServer],
) -> None:
    tokenising, server = declaring
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}</tool_call>'
    tokenising.says = {
        chr(USER) + SUM + chr(END) + "\n" + chr(ASSISTANT): [*codes("See. "), *codes(call)]
    }
    backend = ServerBackend()
    backend.send(Load("", server=server.url))
    (ready,) = of(Ready, until(backend, Ready))
    events = ask(backend, SUM, tools=True)
    backend.close()
    assert (ready.info.tool_dialect, "exact tokens" in ready.info.backend_note) == (
        "tool_call",
        True,
    )
    first, second = tokenising.prompts
    assert first[: len("Tools.") + 1] == [SYSTEM, *codes("Tools.")]
    result = [END, ord("\n"), ROLES["tool"], *codes("<tool_response>84</tool_response>")]
    forced = [*result, END, ord("\n"), ASSISTANT]
    assert second == [*first, *codes("See. "), *codes(call), *forced]
    assert texts(events)[0].endswith("Yes")
    ids = [step.tokens[0] for step in of(Stepped, events) if step.masks[0] == 0]
    assert ids == forced


def test_calls_that_only_the_server_can_read_are_left_to_it() -> None:
    tokenising = Tokenising("llamacpp", declare="function")
    with SseServer(tokenising, LLAMA) as server:
        server.pages["/props"] = {"default_generation_settings": {"n_ctx": 400}}
        backend = ServerBackend()
        backend.send(Load("", server=server.url))
        (ready,) = of(Ready, until(backend, Ready))
        assert texts(ask(backend, "Hi?", tools=True)) == ["As text"]
        assert texts(ask(backend, "Hi?", tools=False)) == ["Yes"]
        backend.close()
    assert ready.info.tool_dialect == "function"
    assert "exact tokens with /tools off" in ready.info.backend_note
    assert ready.info.context == 0


def test_tools_that_vllm_cannot_parse_are_known_before_the_first_message() -> None:
    tokenising = Tokenising("vllm", declare="function")
    with SseServer(tokenising, VLLM) as server:
        backend = ServerBackend()
        backend.send(Load("", server=server.url))
        (ready,) = of(Ready, until(backend, Ready))
        assert texts(ask(backend, "Hi?", tools=True)) == ["Yes"]
        backend.close()
    assert "no calculator" in ready.info.backend_note
    assert "exact tokens" in ready.info.backend_note
    assert ready.info.context == 400
