"""One answer as it grows out of what a server streams.

`Row.take(piece)` and `Row.end_round()` give the columns of tokens and characters that the protocol
wants; what the server sends beside the text (reasoning, tool calls) is written into the text as
`dialogue` says. An answer has several rounds where it calls the calculator: the calls are evaluated
here, and another request goes on behind them. Where ids are sent, calls are in the text, and a
`Follower` finds them.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chat_tui.backends import dialogue
from chat_tui.backends.chunks import CallPart, Piece
from chat_tui.backends.dialogue import Call, Message
from chat_tui.backends.exact_tools import Follower
from engine.messages import NO_ID, Alternative, FinishReason, TokenScore, ToolCall
from engine.tools import NO_VALUE, calculate


class Unit(NamedTuple):
    """One token of one row; where ids are not known, one chunk. `call` is (place, call) of a tool
    call that changed with it."""

    token: int
    mask: int
    text: str
    score: TokenScore | None = None
    call: tuple[int, ToolCall] | None = None


@dataclass
class _Growing:
    """A call that is being written, in this round."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    response: str = ""

    @property
    def whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


class Row:
    """Attributes:
    index: its place among the answers of the ask.
    temperature, top_k: how it is sampled.
    begun: the server has sent something for it.
    ended: no event will follow for it.
    finish: why this round ended, in the server's word; empty while it runs.
    ids: of its units.
    rounds: how many requests went on behind tool calls.
    behind: the messages behind the user's: what was said and called in earlier rounds.
    names: tokens that can be told by their texts.
    """

    def __init__(self, index: int, temperature: float, top_k: int | None) -> None:
        self.index = index
        self.temperature, self.top_k = temperature, top_k
        self.begun = self.ended = False
        self.finish = ""
        self.ids: list[int] = []
        self.rounds = 0
        self.behind: list[Message] = []
        self.names: Mapping[bytes, int] = {}
        self._length = 0
        self._said = ""  # in this round, without reasoning
        self._thinking = False
        self._shown: list[ToolCall] = []
        self._growing: dict[int, _Growing] = {}
        self._writing: int | None = None
        self._closed: set[int] = set()
        self._follower: Follower | None = None

    def follow(self, follower: Follower, begun: str) -> None:
        """Look for calls in its text, which begins with `begun`."""
        self._follower = follower
        self._length = len(begun)
        follower.begin(begun)

    @property
    def forced(self) -> str:
        """What has to stand next, whatever the server sends."""
        return "" if self._follower is None else self._follower.forced

    def force(self, ids: Sequence[int], texts: Sequence[str]) -> Iterator[Unit]:
        """What had to stand next stands there: `ids`, and the text of each."""
        assert self._follower is not None
        start = self._length
        for place, (token, text) in enumerate(zip(ids, texts, strict=True), 1):
            self._length += len(text)
            self.ids.append(token)
            call = self._follower.push(start, "".join(texts)) if place == len(ids) else None
            yield Unit(token, 0, text, None, call)

    def take(self, piece: Piece) -> Iterator[Unit]:
        """What a chunk adds, up to where something is `forced`."""
        self.begun = True
        if piece.reasoning:
            if not self._thinking:
                self._thinking = True
                yield self._forced(dialogue.THINK)
            yield from self._units(piece.reasoning, () if piece.text else piece)
        if piece.text and self._thinking:
            self._thinking = False
            yield self._forced(dialogue.THOUGHT)
        if piece.text or not (piece.reasoning or piece.calls):
            self._said += piece.text
            yield from self._units(piece.text, piece)
        for part in piece.calls:
            yield from self._grow(part)
        if not self.forced:
            self.finish = self.finish or piece.finish

    @property
    def calling(self) -> bool:
        """This round has called tools: another one has to follow."""
        return bool(self._growing)

    def end_round(self) -> Iterator[Unit]:
        """Evaluate the calls; the next round's messages are then in `behind`."""
        for place in sorted(self._growing):
            if place not in self._closed:
                if self._writing != place:
                    yield from self._open(place)
                yield from self._close(place)
        calls = [
            Call(call.id or dialogue.call_id(number), call.name, call.arguments, call.response)
            for number, call in sorted(self._growing.items())
        ]
        self.behind += dialogue.with_calls(self._said, calls)
        self._growing.clear()
        self._closed.clear()
        self._said, self.finish, self.begun = "", "", False
        self.rounds += 1

    def reason(self, max_tokens: int | None) -> FinishReason:
        """Why it ended, in the protocol's word. Without a limit of ours, it was the context's."""
        if self.finish == "length":
            return "context" if max_tokens is None else "length"
        if self.filtered:
            return "content_filter"
        return "cancelled" if self.finish == "abort" else "stop"

    @property
    def filtered(self) -> bool:
        """The server's filter ended it; some say behind the word what it took offence at."""
        return self.finish.startswith("content_filter")

    # Text.

    def _units(self, text: str, of: Piece | tuple[()]) -> Iterator[Unit]:
        """A chunk's characters, dealt out to its tokens where that can be told."""
        tokens: Sequence[int] = of.tokens if of else ()
        scores: Sequence[TokenScore] = of.scores if of else ()
        if not tokens and not scores:
            if text:
                yield self._unit(NO_ID, 1, text)
            return
        tokens = tokens or [NO_ID] * len(scores)
        if len(scores) != len(tokens):
            scores = ()
        texts = _dealt(text, [score.piece for score in scores], len(tokens))
        for place, token in enumerate(tokens):
            score = self._known(scores[place], token) if scores else None
            yield self._unit(token, 1, texts[place], score)
            if self.forced:
                return

    def _known(self, score: TokenScore, token: int) -> TokenScore:
        """The score of `token`, with what else can be told: vLLM gives alternatives by their texts,
        llama-server special tokens by their ids."""
        texts = {id: piece for piece, id in self.names.items()}

        def known(other: Alternative) -> Alternative:
            own = (other.piece, other.logprob) == (score.piece, score.logprob)
            id = other.token
            if id == NO_ID:
                id = token if own else self.names.get(other.piece, NO_ID)
            return other._replace(token=id, piece=other.piece or texts.get(id, b""))

        return score._replace(
            token=token,
            piece=score.piece or texts.get(token, b""),
            alternatives=tuple(map(known, score.alternatives)),
        )

    def _forced(self, text: str) -> Unit:
        return self._unit(NO_ID, 0, text)

    def _unit(self, token: int, mask: int, text: str, score: TokenScore | None = None) -> Unit:
        start = self._length
        self._length += len(text)
        self.ids.append(token)
        call = None if self._follower is None else self._follower.push(start, text)
        return Unit(token, mask, text, score, call)

    # Tool calls.

    def _grow(self, part: CallPart) -> Iterator[Unit]:
        if part.place in self._closed:
            return
        call = self._growing.setdefault(part.place, _Growing())
        call.id = call.id or part.id
        call.name = call.name or part.name
        call.arguments += part.arguments
        if self._writing == part.place:
            if part.arguments:
                yield self._written(part.place, part.arguments)
        elif self._writing is None or self._growing[self._writing].whole:
            if self._writing is not None:
                yield from self._close(self._writing)
            if call.name:
                yield from self._open(part.place)

    def _open(self, place: int) -> Iterator[Unit]:
        if self._thinking:
            self._thinking = False
            yield self._forced(dialogue.THOUGHT)
        call = self._growing[place]
        self._writing = place
        self._shown.append(ToolCall(self._length, self._length, "", None, False))
        yield self._written(place, dialogue.head_of_call(call.name) + call.arguments)

    def _written(self, place: int, text: str) -> Unit:
        unit = self._unit(NO_ID, 1, text)
        expression = dialogue.expression_written(self._growing[place].arguments)
        return unit._replace(call=self._show(expression, None, done=False))

    def _close(self, place: int) -> Iterator[Unit]:
        call = self._growing[place]
        self._writing = None
        self._closed.add(place)
        expression = dialogue.expression_of(call.name, call.arguments)
        result = None if expression is None else calculate(expression)
        call.response = NO_VALUE if result is None else result
        shown = dialogue.expression_written(call.arguments) if expression is None else expression
        unit = self._unit(NO_ID, 1, "}" + dialogue.CALLED)
        yield unit._replace(call=self._show(shown, result, done=False))
        unit = self._forced(dialogue.RESPONSE + call.response + dialogue.RESPONDED)
        yield unit._replace(call=self._show(shown, result, done=True))

    def _show(self, expression: str, result: str | None, *, done: bool) -> tuple[int, ToolCall]:
        start = self._shown[-1].start
        self._shown[-1] = ToolCall(start, self._length, expression, result, done)
        return len(self._shown) - 1, self._shown[-1]


def _dealt(text: str, pieces: Sequence[bytes], count: int) -> list[str]:
    """`text` in `count` parts: as the tokens' bytes complete it, else all of it at the last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = [decoder.decode(piece) for piece in pieces]
    if len(parts) == count and "".join(parts) == text:
        return parts
    return [""] * (count - 1) + [text]
