"""What a server streams, out of its JSON: `parse(data)` is one chunk of an answer, typed.

Servers differ in what they leave out and in what they add. What has another type than it should
have is taken as absent; only what is no JSON object at all is refused. Both endpoints are read:
`/chat/completions` (OpenAI's `delta`) and `/completions` (`text`, and log-probabilities in parallel
lists). Token ids: vLLM gives `token_ids` and `prompt_token_ids`, llama-server an `id` with each
log-probability.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.messages import NO_ID, Alternative, TokenScore

UNKNOWN_ENTROPY = float("nan")
"""Nobody can tell it from the likeliest few alone."""


class MalformedError(Exception):
    """An event's data is no chunk."""


@dataclass(frozen=True)
class CallPart:
    """A piece of a tool call; `place` is the call's place among those of the answer."""

    place: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Piece:
    """What a chunk adds to one answer.

    Attributes:
        index: which of the answers of the request.
        text, reasoning: characters; a chunk may hold several tokens, or none.
        calls: parts of tool calls.
        tokens: the ids of the chunk's tokens; empty where the server does not give them.
        scores: one per token; empty where the server does not give them.
        finish: why the answer ended, in the server's word; empty while it goes on.
    """

    index: int
    text: str = ""
    reasoning: str = ""
    calls: tuple[CallPart, ...] = ()
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenScore, ...] = ()
    finish: str = ""


@dataclass(frozen=True)
class Usage:
    """What the server counted; None where it did not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


@dataclass(frozen=True)
class Chunk:
    """One event of a stream.

    Attributes:
        pieces: what it adds, by answer.
        prompt: the ids that were prefilled; None where they are not given.
        usage: the server's figures; mostly in the last chunk.
        error: what the server says went wrong in the middle of the stream.
    """

    pieces: tuple[Piece, ...] = ()
    prompt: tuple[int, ...] | None = None
    usage: Usage | None = None
    error: str = ""


def parse(data: str) -> Chunk:
    """Raises MalformedError where `data` is not a JSON object."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError(data) from None
    if not isinstance(document, dict):
        raise MalformedError(data)
    choices = _list(document.get("choices"))
    return Chunk(
        pieces=tuple(_piece(choice) for choice in choices if isinstance(choice, dict)),
        prompt=_prompt(document, choices),
        usage=_usage(document.get("usage")),
        error=error_text(document),
    )


def error_text(document: object) -> str:
    """What an error document says, in the server's words: OpenAI's form, vLLM's, FastAPI's."""
    if not isinstance(document, dict):
        return ""
    error = document.get("error")
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or "an error without a message"
    if error is None and document.get("object") == "error":
        error = document.get("message")
    if error is None:
        error = document.get("detail")
    return "" if error is None else error if isinstance(error, str) else json.dumps(error)


def _piece(choice: dict[str, Any]) -> Piece:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = choice.get("message")
    if not isinstance(delta, dict):
        delta = {"content": choice.get("text")}
    scores, ids = _scores(choice.get("logprobs"))
    return Piece(
        index=_int(choice.get("index")) or 0,
        text=_text(delta.get("content")),
        reasoning=_text(delta.get("reasoning_content")) or _text(delta.get("reasoning")),
        calls=tuple(_calls(delta.get("tool_calls"))),
        tokens=_ids(choice.get("token_ids")) or ids,
        scores=scores,
        finish=_text(choice.get("finish_reason")),
    )


def _calls(parts: object) -> Iterator[CallPart]:
    for place, part in enumerate(_list(parts)):
        if isinstance(part, dict):
            function = part.get("function")
            function = function if isinstance(function, dict) else {}
            arguments = function.get("arguments")
            if isinstance(arguments, dict):  # not as OpenAI has it, but said often enough
                arguments = json.dumps(arguments)
            index = _int(part.get("index"))
            yield CallPart(
                place if index is None else index,
                _text(part.get("id")),
                _text(function.get("name")),
                _text(arguments),
            )


def _scores(logprobs: object) -> tuple[tuple[TokenScore, ...], tuple[int, ...]]:
    """Scores, and the ids that stand in them where each has one."""
    if not isinstance(logprobs, dict):
        return (), ()
    entries = _list(logprobs.get("content")) or list(_parallel(logprobs))
    scores = tuple(_score(entry) for entry in entries if isinstance(entry, dict))
    ids = tuple(score.token for score in scores)
    return scores, (() if NO_ID in ids else ids)


def _parallel(logprobs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of `/completions`, where they come as one list per field."""
    tokens, values = _list(logprobs.get("tokens")), _list(logprobs.get("token_logprobs"))
    tops = _list(logprobs.get("top_logprobs"))
    for place, (token, value) in enumerate(zip(tokens, values, strict=False)):
        top = tops[place] if place < len(tops) else None
        others = top.items() if isinstance(top, dict) else ()
        yield {
            "token": token,
            "logprob": value,
            "top_logprobs": [{"token": text, "logprob": other} for text, other in others],
        }


def _score(entry: dict[str, Any]) -> TokenScore:
    own = _alternative(entry)
    others = [_alternative(other) for other in _list(entry.get("top_logprobs")) if other]
    others.sort(key=lambda other: -other.logprob)
    likelier = sum(other.logprob > own.logprob for other in others)
    return TokenScore(
        own.token, own.piece, own.logprob, None, UNKNOWN_ENTROPY, likelier, tuple(others)
    )


_ID_MARK = "token_id:"
"""How vLLM writes a token where it is asked for ids in the place of texts."""


def _alternative(entry: object) -> Alternative:
    entry = entry if isinstance(entry, dict) else {}
    text, token = _text(entry.get("token")), _int(entry.get("id"))
    if token is None and text.startswith(_ID_MARK) and text[len(_ID_MARK) :].isdecimal():
        token, text = int(text[len(_ID_MARK) :]), ""
    octets = entry.get("bytes")
    piece = text.encode("utf-8", "surrogatepass")
    if isinstance(octets, list) and all(isinstance(o, int) and 0 <= o < 256 for o in octets):
        piece = bytes(octets) or piece
    logprob = entry.get("logprob")
    known = isinstance(logprob, (int, float)) and not isinstance(logprob, bool)
    # Servers write -9999 and the like for what lies outside of what they kept.
    value = min(float(logprob), 0.0) if known and logprob == logprob else -9999.0  # type: ignore[arg-type]
    return Alternative(NO_ID if token is None else token, piece, value)


def _prompt(document: dict[str, Any], choices: Sequence[object]) -> tuple[int, ...] | None:
    for holder in (document, *choices):
        ids = _ids(holder.get("prompt_token_ids")) if isinstance(holder, dict) else ()
        if ids:
            return ids
    return None


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    return Usage(
        _int(usage.get("prompt_tokens")),
        _int(usage.get("completion_tokens")),
        _int(details.get("cached_tokens")) if isinstance(details, dict) else None,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int | None:
    ordinary = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if ordinary else None  # type: ignore[return-value]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ids(value: object) -> tuple[int, ...]:
    ids = [_int(each) for each in _list(value)]
    return () if None in ids else tuple(ids)  # type: ignore[arg-type]
