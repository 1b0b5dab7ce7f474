"""A server as a backend: what it is asked, and what its answers become."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from engine.messages import (
    NO_ID,
    Ask,
    Cancel,
    Exchange,
    Finished,
    Ready,
    RowFinished,
    SamplingParams,
    Started,
    Stepped,
)
from tests.chat_tui.asked import PLAIN, ask, talking
from tests.chat_tui.sse_server import Asked, Script, Wire, endless, talk
from tests.events import of, texts, until

# Answers.


def test_an_answer_arrives_chunk_by_chunk() -> None:
    with talking(talk("Red and blue")) as (_, backend):
        events = ask(backend)
    assert texts(events) == ["Red and blue"]
    assert [type(event) for event in events] == [Started, *[Stepped] * 3, RowFinished, Finished]
    assert {event.tokens for event in of(Stepped, events)} == {(NO_ID,)}, "ids are not invented"
    (finished,) = of(Finished, events)
    assert finished.stats.prompt_tokens == 11
    assert finished.stats.row_tokens == (3,)


def test_several_answers_are_one_request_and_keep_apart() -> None:
    with talking(talk("One two", "Three four five", "Six")) as (server, backend):
        events = ask(backend, samples=3)
    assert texts(events, 3) == ["One two", "Three four five", "Six"]
    assert [post["n"] for post in server.posts] == [3]
    assert sorted(event.row for event in of(RowFinished, events)) == [0, 1, 2]


def test_answers_that_are_sampled_otherwise_are_other_requests() -> None:
    with talking(talk("Yes")) as (server, backend):
        params = SamplingParams((0.2, 0.9), top_ks=(None,), seed=5)
        events = ask(backend, samples=2, params=params)
        ask(backend, samples=3, params=SamplingParams((0.7,), top_ks=(5, 5, 9), seed=7))
    assert texts(events, 2) == ["Yes", "Yes"]
    asked = sorted((post["temperature"], post["seed"]) for post in server.posts)
    assert asked == [(0.2, 5), (0.7, 7), (0.7, 9), (0.9, 6)]
    shared = [(post["top_k"], post.get("n")) for post in server.posts if post["seed"] > 6]
    assert sorted(shared) == [(5, 2), (9, None)]


def test_greedy_answers_are_requests_of_their_own() -> None:
    """As vLLM has it: "n must be 1 when using greedy sampling"."""
    with talking(talk("Yes")) as (server, backend):
        events = ask(backend, samples=2, params=SamplingParams((0.0,), top_ks=(None,)))
        ask(backend, samples=2)
    assert texts(events, 2) == ["Yes", "Yes"]
    assert [post.get("n") for post in server.posts] == [None, None, 2]


def test_a_server_that_ignores_n_is_asked_for_each_answer() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        talk(f"Seed {asked.body['seed']}")(Asked(asked.path, {}, {}), wire)

    with talking(script) as (server, backend):
        events = ask(backend, samples=3)
        assert texts(events, 3) == ["Seed 1", "Seed 2", "Seed 3"]
        assert len(server.posts) == 3
        (ready,) = of(Ready, events)
        assert "a request for each answer" in ready.info.backend_note
        ask(backend, samples=3)
    assert len(server.posts) == 6
    assert all("n" not in post for post in server.posts[3:]), "found out once"


def test_a_server_that_refuses_n_is_asked_for_each_answer() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        if "n" in asked.body:
            wire.json(400, {"error": {"message": "Only one completion choice is allowed"}})
        else:
            talk("Fine")(asked, wire)

    with talking(script) as (server, backend):
        assert texts(ask(backend, samples=2), 2) == ["Fine", "Fine"]
    assert ["n" in post for post in server.posts] == [True, False, False]


def test_what_a_server_refuses_by_name_is_left_out_and_said() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        for name in ("top_k", "stream_options", "max_tokens"):
            if name in asked.body:
                said = f"Unsupported parameter: '{name}' is not supported with this model."
                return wire.json(400, {"error": {"message": said}})
        return talk("Fine")(asked, wire)

    with talking(script) as (server, backend):
        params = SamplingParams((0.7,), top_ks=(50,), max_tokens=7)
        events = ask(backend, params=params)
        ready = of(Ready, events)[-1]
        before = len(server.posts)
        ask(backend, params=params)
    assert texts(events) == ["Fine"]
    assert "no top-k" in ready.info.backend_note
    assert len(server.posts) == before + 1
    assert server.posts[-1]["max_completion_tokens"] == 7


def test_history_is_sent_as_messages() -> None:
    with talking(talk("Yes")) as (server, backend):
        history = (Exchange("Hi", (NO_ID, NO_ID), "<think>\nGreet.\n</think>\n\nHello!"),)
        ask(backend, "And?", history=history, system="Be brief.")
    assert server.posts[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "And?"},
    ]


def test_reasoning_stands_in_the_answer_and_is_told_from_it() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        for thought in ("They ", "greet."):
            wire.event({"choices": [{"index": 0, "delta": {"reasoning_content": thought}}]})
        wire.say("Hello!")
        wire.end()
        wire.done()

    with talking(script) as (_, backend):
        events = ask(backend)
    assert texts(events) == ["<think>\nThey greet.\n</think>\n\nHello!"]


def test_log_probabilities_become_scores() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        assert asked.body["logprobs"] is True
        assert asked.body["top_logprobs"] == 2
        wire.start()
        for token, octets in (("caf", [99, 97, 102]), ("\\xc3", [195]), ("\\xa9", [169])):
            entry = {"token": token, "bytes": octets, "logprob": -0.5, "id": octets[0]}
            top = [{"token": "x", "bytes": [120], "logprob": -0.1}, entry]
            wire.say(
                {"caf": "caf", "\\xa9": "é"}.get(token, ""),
                logprobs={"content": [{**entry, "top_logprobs": top}]},
            )
        wire.end()
        wire.done()

    with talking(script) as (_, backend):
        params = SamplingParams((0.7,), top_ks=(None,), alternatives=2)
        steps = of(Stepped, ask(backend, params=params))
    assert [step.texts[0] for step in steps] == ["caf", "", "é"]
    assert [step.tokens[0] for step in steps] == [99, 195, 169]
    score = steps[0].scores[0]
    assert (score.logprob, score.rank, score.sampled_logprob) == (-0.5, 1, None)
    assert [other.piece for other in score.alternatives] == [b"x", b"caf"]


# The calculator.


def calling(*parts: dict, then: str = "It is 84.") -> Script:
    """Calls the calculator in `parts`, then, told the result, answers."""

    def script(asked: Asked, wire: Wire) -> None:
        if asked.body["messages"][-1]["role"] == "tool":
            return talk(then)(asked, wire)
        wire.start()
        for index in range(asked.body.get("n", 1)):
            wire.say("Let me see. ", index)
            for part in parts:
                wire.event({"choices": [{"index": index, "delta": {"tool_calls": [part]}}]})
            wire.end(index, "tool_calls")
        return wire.done()

    return script


def call(place: int, arguments: str, name: str = "") -> dict:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": place, "function": function} | ({"id": f"id{place}"} if name else {})


def test_a_calculator_call_is_answered_and_the_answer_goes_on() -> None:
    parts = (call(0, "", "calculator"), call(0, '{"expres'), call(0, 'sion": "12*7"}'))
    with talking(calling(*parts)) as (server, backend):
        events = ask(backend, tools=True, samples=2)
    said = (
        'Let me see. <tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}'
        "</tool_call><tool_response>84</tool_response>It is 84."
    )
    assert texts(events, 2) == [said, said]
    calls = [call for step in of(Stepped, events) for row, _, call in step.calls if row == 1]
    assert (calls[-1].expression, calls[-1].result, calls[-1].done) == ("12*7", "84", True)
    assert said[calls[-1].start : calls[-1].end].startswith("<tool_call>")
    assert said[calls[-1].end :] == "It is 84."
    assert len(server.posts) == 3, "one request, and one behind the call of each answer"
    called, told = server.posts[1]["messages"][-2:]
    assert called["tool_calls"][0]["function"]["name"] == "calculator"
    assert told == {"role": "tool", "tool_call_id": "id0", "content": "84"}


def test_calls_that_arrive_interleaved_are_told_apart() -> None:
    parts = (
        call(0, '{"expression": "1', "calculator"),
        call(1, '{"expression": "2', "calculator"),
        call(0, '+1"}'),
        call(1, '+2"}'),
    )
    with talking(calling(*parts)) as (server, backend):
        (said,) = texts(ask(backend, tools=True))
    assert said.index("<tool_response>2<") < said.index('"2+2"') < said.index("<tool_response>4<")
    assert [message["content"] for message in server.posts[1]["messages"][-2:]] == ["2", "4"]


def test_a_call_of_something_else_is_answered_that_there_is_none() -> None:
    with talking(calling(call(0, "{broken", "search"), then="Sorry.")) as (server, backend):
        events = ask(backend, tools=True)
    assert texts(events)[0].endswith("Sorry.")
    assert "error" in server.posts[1]["messages"][-1]["content"]
    json.loads(server.posts[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"])


def test_calling_for_ever_has_an_end() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        part = call(0, '{"expression": "1+1"}', "calculator")
        wire.event({"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]})
        wire.end(0, "tool_calls")
        wire.done()

    with talking(script) as (server, backend):
        events = ask(backend, tools=True)
    assert of(Finished, events)
    assert len(server.posts) == 9
    assert server.posts[-1]["tool_choice"] == "none"


def test_calls_in_the_history_are_sent_as_calls() -> None:
    with talking(calling(call(0, '{"expression": "12*7"}', "calculator"))) as (server, backend):
        (said,) = texts(ask(backend, "12*7?", tools=True))
        ask(backend, "Again?", tools=True, history=(Exchange("12*7?", None, said),))
    roles = [message["role"] for message in server.posts[2]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("word", "limit", "reason"),
    [
        ("stop", None, "stop"),
        ("eos_token", None, "stop"),  # TGI's
        ("length", 7, "length"),
        ("length", None, "context"),
        ("abort", None, "cancelled"),
        ("content_filter", None, "content_filter"),
        ("content_filter: RECITATION", 7, "content_filter"),
    ],
)
def test_why_an_answer_ended_is_told_from_the_servers_word(word, limit, reason) -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("So")
        wire.end(0, word)
        wire.done()

    with talking(script) as (_, backend):
        events = ask(backend, params=replace(PLAIN, max_tokens=limit))
    assert [event.reason for event in of(RowFinished, events)] == [reason]


def test_what_a_filter_ended_calls_nothing_any_more() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        part = {"index": 0, "id": "a", "function": {"name": "calculator", "arguments": '{"ex'}}
        wire.start()
        wire.event({"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]})
        wire.end(0, "content_filter")
        wire.done()

    with talking(script) as (server, backend):
        events = ask(backend, tools=True)
    assert [event.reason for event in of(RowFinished, events)] == ["content_filter"]
    assert len(server.posts) == 1


# Cancelling.


def test_cancelling_closes_the_request() -> None:
    with talking(endless) as (server, backend):
        backend.send(Ask(1, "Hello?", samples=2, params=PLAIN, tools=False))
        events = until(backend, Stepped)
        while len(of(Stepped, events)) < 2:
            events += until(backend, Stepped)
        backend.send(Cancel(1))
        events += until(backend, Finished)
        assert server.hung_up.wait(5), "the server has to hear of it"
    assert [event.reason for event in of(RowFinished, events)] == ["cancelled"] * 2
    assert texts(events, 2) == ["So ", "So "]


def test_cancelling_one_answer_leaves_the_others() -> None:
    go_on = threading.Event()

    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        for index in range(2):
            wire.say("So", index)
        go_on.wait(10)
        for index in range(2):
            wire.say(" it goes", index)
            wire.end(index)
        wire.done()

    with talking(script) as (_, backend):
        backend.send(Ask(1, "Hello?", samples=2, params=PLAIN, tools=False))
        events = until(backend, Stepped)
        backend.send(Cancel(1, 0))
        events += until(backend, RowFinished)
        go_on.set()
        events += until(backend, Finished)
    assert texts(events, 2) == ["So", "So it goes"]
    assert [event.reason for event in of(RowFinished, events)] == ["cancelled", "stop"]


def test_what_is_cancelled_at_once_still_starts_and_finishes() -> None:
    with talking(endless) as (_, backend):
        backend.send(Ask(1, "Hello?", params=PLAIN, tools=False))
        backend.send(Cancel(1))
        kinds = [type(event) for event in until(backend, Finished)]
    assert kinds[-3:] == [Started, RowFinished, Finished]


# Models.


def test_the_first_model_is_taken_where_none_is_named() -> None:
    models = {"data": [{"id": "b", "owned_by": "vllm", "max_model_len": 4096}, {"id": "a"}]}
    with talking(talk("Hi"), models=models) as (server, backend):
        ask(backend)
        assert server.posts[0]["model"] == "b"
    with talking(talk("Hi"), models=models, name="a") as (server, backend):
        ask(backend)
        assert server.posts[0]["model"] == "a"


def test_closing_while_answers_run(caplog: pytest.LogCaptureFixture) -> None:
    with talking(talk("word " * 999, pause=0.002)) as (server, backend):
        params = SamplingParams((0.2, 0.3, 0.4, 0.5))
        backend.send(Ask(1, "Hello?", params=params, samples=4, tools=False))
        until(backend, Stepped)
        backend.close()
        assert server.hung_up.wait(5)
        backend.close()
    # What is logged as an error stands in the user's terminal.
    assert [each.getMessage() for each in caplog.records] == []
