"""The parser of server-sent events, fed in every cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_tui.backends.sse import EventStream, TooLongError


def events(*chunks: bytes) -> list[str]:
    stream = EventStream()
    found = [event for chunk in chunks for event in stream.feed(chunk)]
    return found + list(stream.close())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    assert events(b"data: a" + end + end + b"data:b" + end + end) == ["a", "b"]


def test_the_lines_of_an_event_are_joined() -> None:
    assert events(b"data: a\ndata:  b\ndata\n\n") == ["a\n b\n"]


def test_what_is_no_data_is_skipped() -> None:
    assert events(b"\xef\xbb\xbf: ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n\n: x\n\n") == ["a"]


def test_the_last_event_needs_no_empty_line() -> None:
    assert events(b"data: a\n\ndata: [DONE]") == ["a", "[DONE]"]


def test_other_line_breaks_are_text() -> None:
    text = "a\x0b\x0c\x1c\x85\u2028b"
    assert events(f"data: {text}\n\n".encode()) == [text]


WHOLE = "data: Grüße\r\n\r\n: x\r\rdata: 日本\ndata: \U0001f600\n\ndata: [DONE]\n\n".encode()


@settings(deadline=None)
@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_the_cuts_make_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in pairwise(edges)]
    assert events(*pieces) == events(WHOLE) == ["Grüße", "日本\n\U0001f600", "[DONE]"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_break_it(chunks: list[bytes]) -> None:
    events(*chunks)


def test_a_line_and_an_event_are_bounded() -> None:
    stream = EventStream(max_line=100)
    assert not list(stream.feed(b"x" * 100))
    with pytest.raises(TooLongError):
        list(stream.feed(b"x"))
    stream = EventStream(max_line=100)
    assert not list(stream.feed(b"data: xxxxxxxxx\n" * 9))
    with pytest.raises(TooLongError):
        list(stream.feed(b"data: xxxxxxxxx\n"))
