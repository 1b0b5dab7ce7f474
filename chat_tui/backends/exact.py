"""Prompts as token ids, for servers that take them: vLLM and llama-server.

A chat endpoint is sent text and encodes it anew each time, with answers cut into other tokens than
they were generated in. Here the list that the model has seen and written is sent itself, so that a
picked answer is continued token for token, and another answer can begin with any part of it.

The server's own chat template says what stands around the turns. It is asked once per system text,
with the turns "x" and "y" as probes; what it puts behind an answer and before the next message is
then known as ids. A template that does not only append (because it drops earlier reasoning, for
one) cannot be followed like this: `Exact.prompt` gives None, and the chat endpoint has to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import httpx

from chat_tui.backends import endpoint
from chat_tui.backends.dialogue import Message
from chat_tui.backends.endpoint import Endpoint, Served
from chat_tui.backends.faults import ServerError
from engine.messages import NO_ID, Ask

Ids = tuple[int, ...]


class Prompt(NamedTuple):
    """What is sent for an ask.

    Attributes:
        ids: all of it.
        preface: how many of them stand before the conversation's own turns.
        answer: the end of it that every answer begins with, and `answer_text` its text.
        closing: what the template puts behind an answer.
        sizes: tokens of each exchange, and of the new message.
    """

    ids: Ids
    preface: int
    answer: Ids
    answer_text: str
    closing: Ids
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Frame:
    """What the template does around turns: `before` a conversation, and behind an answer."""

    before: Ids
    answered: Ids
    closing: Ids


class Exact:
    """A server's tokenizer and chat template, over HTTP."""

    def __init__(
        self, http: httpx.AsyncClient, where: Endpoint, model: str, kind: str, context: int
    ) -> None:
        self.context = context
        self.kind = kind
        self._http, self._where, self._model = http, where, model
        self._frames: dict[str | None, _Frame | None] = {}

    @classmethod
    async def of(cls, http: httpx.AsyncClient, where: Endpoint, model: Served) -> Exact | None:
        """None where the server has no such pages, or its context is not known."""
        if model.kind not in ("vLLM", "llama-server"):
            return None
        try:
            context = model.context or await _slot_context(http, where)
            exact = cls(http, where, model.name, model.kind, context)
            return exact if context and await exact._frame(None) is not None else None
        except ServerError:
            return None

    async def prompt(self, ask: Ask) -> Prompt | None:
        """Raises ServerError where the server fails on the way."""
        frame = await self._frame(ask.system)
        if frame is None:
            return None
        ids: Ids = ()
        sizes: list[int] = []
        for number, exchange in enumerate(ask.history):
            turn = await self._turn(frame, ask.system, exchange.user, first=number == 0)
            if turn is None:
                return None
            known = exchange.tokens is not None and NO_ID not in exchange.tokens
            answer = exchange.tokens if known else await self.encoded(exchange.text)
            assert answer is not None
            turn += answer + behind(answer, frame.closing)
            ids += turn
            sizes.append(len(turn))
        turn = await self._turn(frame, ask.system, ask.text, first=not ask.history)
        if turn is None or NO_ID in ask.answer:
            return None
        begun = ask.answer + (await self.encoded(ask.answer_text) if ask.answer_text else ())
        ids += turn + begun
        sizes.append(len(turn) + len(begun))
        return Prompt(
            ids,
            len(frame.before),
            begun,
            await self.decoded(begun) if begun else "",
            frame.closing,
            tuple(sizes),
        )

    async def _turn(
        self, frame: _Frame, system: str | None, user: str, *, first: bool
    ) -> Ids | None:
        """A message of the user, from where the one before it was closed to where the answer
        begins."""
        said = {"role": "user", "content": user}
        if first:
            return await self._rendered([*_system(system), said])
        whole = await self._rendered([*_system(system), *_PROBE, said])
        count = len(frame.answered)
        return whole[count:] if whole[:count] == frame.answered else None

    async def _frame(self, system: str | None) -> _Frame | None:
        if system not in self._frames:
            lead = _system(system)
            opened, other, answered, answer = await asyncio.gather(
                self._rendered([*lead, _PROBE[0]]),
                self._rendered([*lead, {"role": "user", "content": "z"}]),
                self._rendered([*lead, *_PROBE], generate=False),
                self.encoded("y"),
            )
            place = len(opened) + len(answer)
            appends = answered[:place] == opened + answer
            same = takewhile(lambda pair: pair[0] == pair[1], zip(opened, other, strict=False))
            before = tuple(token for token, _ in same)
            self._frames[system] = _Frame(before, answered, answered[place:]) if appends else None
        return self._frames[system]

    # The server's pages.

    async def _rendered(self, messages: Sequence[Message], *, generate: bool = True) -> Ids:
        body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": generate}
        if self.kind == "vLLM":
            return _ids(await self._ask("tokenize", {"model": self._model, **body}))
        text = _field(await self._ask("apply-template", body), "prompt")
        special = {"add_special": True, "parse_special": True}
        return _ids(await self._ask("tokenize", {"content": text, **special}))

    async def encoded(self, text: str) -> Ids:
        """Text as it continues a list: without special tokens."""
        if self.kind == "vLLM":
            body: dict[str, Any] = {"prompt": text, "add_special_tokens": False}
            return _ids(await self._ask("tokenize", {"model": self._model, **body}))
        return _ids(await self._ask("tokenize", {"content": text, "parse_special": False}))

    async def decoded(self, ids: Ids) -> str:
        document = await self._ask("detokenize", {"model": self._model, "tokens": list(ids)})
        return _field(document, "prompt" if self.kind == "vLLM" else "content")

    async def _ask(self, page: str, body: object) -> object:
        return await endpoint.ask(self._http, self._where, f"{self._where.root}/{page}", body)


_PROBE: tuple[Message, Message] = (
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y"},
)


def behind(answer: Sequence[int], closing: Ids) -> Ids:
    """What must follow an answer: the stop token only where it did not generate that itself."""
    return closing[1:] if closing and answer and answer[-1] == closing[0] else closing


def _system(system: str | None) -> list[Message]:
    return [] if system is None else [{"role": "system", "content": system}]


async def _slot_context(http: httpx.AsyncClient, where: Endpoint) -> int:
    """llama-server's context, as one answer has it."""
    document = await endpoint.ask(http, where, f"{where.root}/props")
    settings = document.get("default_generation_settings") if isinstance(document, dict) else None
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return context if isinstance(context, int) else 0


def _ids(document: object) -> Ids:
    ids = document.get("tokens") if isinstance(document, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        raise ServerError("The server's tokenizer gives no ids.")
    return tuple(ids)


def _field(document: object, name: str) -> str:
    text = document.get(name) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise ServerError("The server's tokenizer gives no text.")
    return text
