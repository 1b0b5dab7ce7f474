"""Chunks as servers send them, and as they should not."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chat_tui.backends.chunks import MalformedError, Usage, parse
from chat_tui.backends.server_row import Row
from engine.messages import NO_ID

NAMES = [
    "choices",
    "delta",
    "index",
    "content",
    "text",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "id",
    "logprobs",
    "content",
    "bytes",
    "token",
    "logprob",
    "top_logprobs",
    "tokens",
    "token_logprobs",
    "token_ids",
    "usage",
    "error",
    "message",
    "finish_reason",
    "prompt_token_ids",
    "reasoning_content",
]
WORDS = st.sampled_from(NAMES)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


# The machine may be busy, which is no fault of what is tested.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.fixed_dictionaries({"choices": st.lists(ANYTHING, max_size=2)}), max_size=5))
def test_nothing_that_is_json_breaks_a_row(documents: list[dict]) -> None:
    row, said = Row(0, 0.7, None), ""
    for document in documents:
        for piece in parse(json.dumps(document)).pieces:
            for unit in row.take(piece):
                said += unit.text
                if unit.call is not None:
                    assert 0 <= unit.call[1].start <= unit.call[1].end <= len(said)
    if row.calling:
        said += "".join(unit.text for unit in row.end_round())


@pytest.mark.parametrize("data", ["", "null", "[1]", "nonsense", '{"choices": [', "[" * 100_000])
def test_what_is_no_object_is_refused(data: str) -> None:
    with pytest.raises(MalformedError):
        parse(data)


def test_vllm_gives_ids_beside_the_text() -> None:
    choice = {
        "index": 1,
        "text": " two",
        "token_ids": [17, 18],
        "logprobs": {
            "tokens": [" t", "wo"],
            "token_logprobs": [-0.25, -1.5],
            "top_logprobs": [{" t": -0.25, " a": -2.0}, {"en": -0.5, "wo": -1.5}],
        },
    }
    chunk = parse(json.dumps({"prompt_token_ids": [1, 2], "choices": [choice]}))
    assert chunk.prompt == (1, 2)
    (piece,) = chunk.pieces
    first, second = Row(1, 0.7, None).take(piece)
    assert (first.token, first.text, second.token, second.text) == (17, " t", 18, "wo")
    assert second.score is not None
    assert second.score.rank == 1
    # Of the alternatives the texts are known; one of them is the token itself.
    assert [other.token for other in second.score.alternatives] == [NO_ID, 18]
    assert math.isnan(second.score.entropy)


def test_llama_server_gives_ids_with_the_log_probabilities() -> None:
    entry = {"id": 5, "token": "a", "bytes": [97], "logprob": -0.5}
    entry["top_logprobs"] = [dict(entry), {"id": 6, "token": "b", "bytes": [98], "logprob": -1.0}]
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [entry]}}
    (piece,) = parse(json.dumps({"choices": [choice]})).pieces
    assert piece.tokens == (5,)
    assert [other.token for other in piece.scores[0].alternatives] == [5, 6]


def test_usage_is_read_where_it_is_given() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": "x", "prompt_tokens_details": None}
    assert parse(json.dumps({"choices": [], "usage": usage})).usage == Usage(9, None, None)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"error": {"message": "a"}}, "a"),
        ({"error": "b"}, "b"),
        ({"object": "error", "message": "c"}, "c"),
        ({"detail": [{"msg": "d"}]}, '[{"msg": "d"}]'),
        ({"error": {}}, "an error without a message"),
    ],
)
def test_an_error_is_told_in_the_words_of_the_server(document: dict, said: str) -> None:
    assert parse(json.dumps(document)).error == said
