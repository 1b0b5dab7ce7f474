"""Tool dialects: what opens a call, what is forced back, and what only looks like a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import ToolCall
from engine.tokenizer import Tokenizer
from engine.tools import NanochatTools, NotationTools, asks_for_arithmetic, calculate, dialect_for

PICKLE = Path(__file__).parent.parent / "data" / "nanochat" / "V6" / "tokenizer" / "tokenizer.pkl"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """nanochat's test vocabulary: every byte is a token, so any text can be emitted."""
    return Tokenizer.from_nanochat_pickle(PICKLE)


def follow(reader, tokenizer: Tokenizer, pieces: list[str | int]) -> tuple[str, list[ToolCall]]:
    """Emit `pieces` token by token, forced ids first as the engine does; the row's text and
    calls."""
    text, forced, seen = "", [], []

    def emit(token: int) -> None:
        nonlocal text
        piece = tokenizer.decode([token])
        forced.extend(reader.push(token, len(text), piece))
        text += piece
        seen.extend(reader.calls[-1:])

    for piece in pieces:
        for token in [piece] if isinstance(piece, int) else list(piece.encode()):
            emit(token)
            while forced:
                emit(forced.pop(0))
    return text, reader.calls


def test_notation_is_forced_when_the_equals_sign_is_written(tokenizer):
    reader = NotationTools(tokenizer).reader()
    text, calls = follow(reader, tokenizer, ["It is <<123*456=", "56088."])
    assert text == "It is <<123*456=56088>>56088."
    assert calls == [ToolCall(6, 23, "123*456", "56088", True)]
    assert text[calls[0].start : calls[0].end] == "<<123*456=56088>>"


def test_a_call_shows_its_result_only_when_it_is_known_and_is_done_when_it_has_drained(tokenizer):
    reader = NotationTools(tokenizer).reader()
    states = []
    forced: list[int] = []
    at = 0
    for token in list(b"<<9/3="):
        forced.extend(reader.push(token, at, chr(token)))
        states.append(reader.calls[-1:])
        at += 1
    assert states[0] == []  # one `<` is no call
    assert states[1] == [ToolCall(0, 2, "", None, False)]
    assert states[4] == [ToolCall(0, 5, "9/3", None, False)]
    assert states[5] == [ToolCall(0, 6, "9/3", "3", False)]
    for token in forced:
        reader.push(token, at, tokenizer.decode([token]))
        at += len(tokenizer.decode([token]))
    assert reader.calls == [ToolCall(0, 9, "9/3", "3", True)]


@pytest.mark.parametrize(
    "text",
    [
        "std::cout << x << endl;",
        "a << b",
        "1 << 3 = 8",
        "x <<= 2",
        "<<EOF\ncat\n",
        "<<12*7>>",
        "<<=",
        "<<12 apples=",
        "<<1/0=",
        "<<" + "1+" * 200 + "1=",
        "heredoc <<-END",
    ],
)
def test_text_that_only_looks_like_a_call_stays_text(tokenizer, text):
    reader = NotationTools(tokenizer).reader()
    written, calls = follow(reader, tokenizer, [text, " and on"])
    assert written == text + " and on"
    assert all(call.result is None and call.start == call.end for call in calls)


def test_several_calls_follow_each_other(tokenizer):
    reader = NotationTools(tokenizer).reader()
    text, calls = follow(reader, tokenizer, ["<<1+1=", "2, <<2*3=", "6"])
    assert text == "<<1+1=2>>2, <<2*3=6>>6"
    assert [(call.expression, call.result) for call in calls] == [("1+1", "2"), ("2*3", "6")]


def test_nanochats_markers_force_its_output_block(tokenizer):
    special = tokenizer.special_tokens
    reader = NanochatTools(tokenizer).reader()
    start, end = special["<|python_start|>"], special["<|python_end|>"]
    text, calls = follow(reader, tokenizer, ["is ", start, "12*7", end, "."])
    assert text == "is <|python_start|>12*7<|python_end|><|output_start|>84<|output_end|>."
    assert [(call.expression, call.result, call.done) for call in calls] == [("12*7", "84", True)]
    assert text[calls[0].end :] == "."


def test_a_call_without_an_answer_is_done_and_has_no_result(tokenizer):
    special = tokenizer.special_tokens
    reader = NanochatTools(tokenizer).reader()
    start, end = special["<|python_start|>"], special["<|python_end|>"]
    _, calls = follow(reader, tokenizer, [start, "1/0", end, "so"])
    assert [(call.expression, call.result, call.done) for call in calls] == [("1/0", None, True)]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("4821-977", "3844"),
        ("15%*640", "96"),
        ("2.5% * 400", "10"),
        ("1,234 + 1", "1235"),
        ("$5 × 3", "15"),
        ("12 x 3", "36"),
        ("10 ÷ 4", "2.5"),
        ("0.1+0.2", "0.3"),
        ("10/3", "3.33333333333"),
        ("96/8", "12"),
        ('"strawberry".count("r")', "3"),
        ("7", None),
        ("-7", None),
        ("1/0", None),
        ("", None),
        ("two*3", None),
        ("9" * 3000 + "*" + "9" * 3000, None),
    ],
)
def test_values_are_written_as_a_person_would(expression, result):
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "text",
    [
        "What is 4821 - 977?",
        "36*17",
        "15% of 640",
        "Divide 1001 by 7",
        "seven times eight",
        "(2+3)*4",
    ],
)
def test_arithmetic_is_recognised(text):
    assert asks_for_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "What happened in 1969?",
        "Name 3 fruits.",
        "Add a joke.",
        "Python 3 or Python 2?",
    ],
)
def test_ordinary_messages_are_left_alone(text):
    assert not asks_for_arithmetic(text)


def test_the_dialect_follows_the_vocabulary(tokenizer):
    assert dialect_for(tokenizer).name == "nanochat"
