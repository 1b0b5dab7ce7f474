"""Prompts as token ids, for servers that take them: vLLM and llama-server.

A chat endpoint is sent text and encodes it anew each time, with answers cut into other tokens than
they were generated in. Here the list that the model has seen and written is sent itself, so that a
picked answer is continued token for token, and another answer can begin with any part of it.

The server's own chat template says what stands around the turns: a message is rendered behind the
probe turns "x" and "y", and what comes behind them is what it adds to the list. A template that
does not only append (because it drops earlier reasoning, for one) cannot be followed like this:
`Exact.prompt` gives None, and the chat endpoint has to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import httpx

from chat_tui.backends import endpoint, exact_tools
from chat_tui.backends.dialogue import Message
from chat_tui.backends.endpoint import Endpoint, Served
from chat_tui.backends.exact_tools import ExactTools
from chat_tui.backends.faults import ServerError
from chat_tui.backends.served_tokenizer import Ids, ServedTokenizer
from engine.messages import NO_ID, Ask, Exchange


class Prompt(NamedTuple):
    """What is sent for an ask.

    Attributes:
        ids: all of it.
        preface: how many of them stand before the conversation's own turns.
        answer: the end of it that every answer begins with, and `answer_text` its text.
        closing: what the template puts behind an answer.
        sizes: tokens of each exchange, and of the new message.
        calls: the model has been told of the calculator, so that it may well call it.
    """

    ids: Ids = ()
    preface: int = 0
    answer: Ids = ()
    answer_text: str = ""
    closing: Ids = ()
    sizes: tuple[int, ...] = ()
    calls: bool = False


@dataclass(frozen=True)
class _Frame:
    """What the template does behind the turns "x" and "y": `answered` are the ids up to where the
    next message begins, and `closing` those of them that are behind the answer."""

    answered: Ids
    closing: Ids


class Exact:
    """What a server makes of a conversation.

    Attributes:
        context: tokens that one answer and its prompt have room in.
        kind: "vLLM" or "llama-server".
        tools: how it is given the calculator; None where ids cannot do that.
        names: tokens by their texts: the one that ends an answer.
        text: the server's tokenizer.
    """

    def __init__(self, text: ServedTokenizer, context: int) -> None:
        self.text, self.context, self.kind = text, context, text.kind
        self.tools: ExactTools | None = None
        self.names: dict[bytes, int] = {}
        self._frames: dict[tuple[str | None, bool], _Frame | None] = {}
        self._turns: dict[tuple[str | None, bool, bool, str], Ids | None] = {}

    @classmethod
    async def of(cls, http: httpx.AsyncClient, where: Endpoint, model: Served) -> Exact | None:
        """None where the server has no such pages, or its context is not known."""
        if model.kind not in ("vLLM", "llama-server"):
            return None
        try:
            context = model.context or await _slot_context(http, where)
            text = ServedTokenizer(http, where, model.name, model.kind)
            exact = cls(text, context)
            frame = await exact._frame(None, tools=False) if context else None
            if frame is None:
                return None
            if frame.closing:
                name = await text.decoded(frame.closing[:1])
                exact.names[name.encode("utf-8", "replace")] = frame.closing[0]
            exact.tools = await exact_tools.learn(text.rendered_text)
            return exact
        except ServerError:
            return None

    async def prompt(self, ask: Ask) -> Prompt | None:
        """Raises ServerError where the server fails on the way."""
        tools = self.tools if ask.tools else None
        declared = tools is not None and tools.declared
        frame = await self._frame(ask.system, tools=declared)
        if frame is None or NO_ID in ask.answer:
            return None
        taught = () if tools is None else tools.examples(ask.text)
        past = [*(Exchange(each.user, None, each.answer) for each in taught), *ask.history]
        users = [*(exchange.user for exchange in past), ask.text]
        first, *turns = await asyncio.gather(
            self._turn(frame, ask.system, users[0], tools=declared, first=True),
            *(self._turn(frame, ask.system, user, tools=declared) for user in users),
        )
        answers = await asyncio.gather(*(self._answer(exchange, frame) for exchange in past))
        begun = ask.answer + (await self.text.encoded(ask.answer_text) if ask.answer_text else ())
        known = [turn for turn in turns if turn is not None]
        if first is None or len(known) < len(turns):
            return None
        ids = first
        for turn, answer in zip(known[1:], answers, strict=True):
            ids += answer + turn
        ids += begun
        # A turn is as long as it is behind others; the rest of the first one stands before all.
        sizes = [
            len(turn) + len(answer) for turn, answer in zip(known, (*answers, begun), strict=True)
        ][len(taught) :]
        return Prompt(
            ids,
            max(0, len(ids) - sum(sizes)),
            begun,
            await self.text.decoded(begun) if begun else "",
            frame.closing,
            tuple(sizes),
            calls=declared or bool(taught),
        )

    async def _answer(self, exchange: Exchange, frame: _Frame) -> Ids:
        known = exchange.tokens is not None and NO_ID not in exchange.tokens
        answer = exchange.tokens if known else await self.text.encoded(exchange.text)
        assert answer is not None
        return answer + behind(answer, frame.closing)

    async def _turn(
        self, frame: _Frame, system: str | None, user: str, *, tools: bool, first: bool = False
    ) -> Ids | None:
        """What a message of the user adds, from where the one before it was closed to where the
        answer begins; the first of a conversation has the system text before it."""
        key = (system, tools, first, user)
        if key not in self._turns:
            lead = [*_system(system), *(() if first else _PROBE)]
            if await self.text.has_names(user):
                # Rendered as it is, it would become special tokens.
                one, other = await asyncio.gather(
                    *(
                        self.text.rendered([*lead, _said(probe)], tools=tools)
                        for probe in ("x", "z")
                    )
                )
                before = len(_common(one, other))
                after = len(_common(one[before:][::-1], other[before:][::-1]))
                ids = one[:before] + await self.text.encoded(user) + one[len(one) - after :]
            else:
                ids = await self.text.rendered([*lead, _said(user)], tools=tools)
            count = 0 if first else len(frame.answered)
            appends = first or ids[:count] == frame.answered
            self._turns[key] = ids[count:] if appends else None
        return self._turns[key]

    async def _frame(self, system: str | None, *, tools: bool) -> _Frame | None:
        key = (system, tools)
        if key not in self._frames:
            lead = _system(system)
            opened, whole, answer = await asyncio.gather(
                self.text.rendered([*lead, _PROBE[0]], tools=tools),
                self.text.rendered([*lead, *_PROBE, _said("x")], tools=tools),
                self.text.encoded("y"),
            )
            place = len(opened) + len(answer)
            frame = None
            if whole[:place] == opened + answer:
                closing = await self._closing(whole[place:])
                frame = _Frame(whole[:place] + closing, closing)
            self._frames[key] = frame
        return self._frames[key]

    async def _closing(self, ids: Ids) -> Ids:
        """Of the ids between an answer and the next message, those that belong to the answer: one
        that ends it, and the white space behind that. (Rendered without a message behind it,
        llama-server leaves an answer open.)"""
        end = 1
        while end < len(ids) and (await self.text.decoded(ids[end : end + 1])).isspace():
            end += 1
        return ids[:end]


def _said(text: str) -> Message:
    return {"role": "user", "content": text}


_PROBE: tuple[Message, Message] = (_said("x"), {"role": "assistant", "content": "y"})


def behind(answer: Sequence[int], closing: Ids) -> Ids:
    """What must follow an answer: the stop token only where it did not generate that itself."""
    return closing[1:] if closing and answer and answer[-1] == closing[0] else closing


def _system(system: str | None) -> list[Message]:
    return [] if system is None else [{"role": "system", "content": system}]


def _common(one: Ids, other: Ids) -> Ids:
    """How two lists both begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(id for id, _ in pairs)


async def _slot_context(http: httpx.AsyncClient, where: Endpoint) -> int:
    """llama-server's context, as one answer has it."""
    document = await endpoint.ask(http, where, f"{where.root}/props")
    settings = document.get("default_generation_settings") if isinstance(document, dict) else None
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return context if isinstance(context, int) else 0
