"""A server's tokenizer and chat template, over HTTP: vLLM's pages and llama-server's.

    text = ServedTokenizer(http, where, model.name, "vLLM")
    ids = await text.rendered([{"role": "user", "content": "Hi"}], tools=False)
    ids += await text.encoded("I think that")

What a user types is ordinary text, also where it is the name of a special token: `encoded` is for
that, `literal` for text of the template's own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import httpx

from chat_tui.backends import endpoint
from chat_tui.backends.dialogue import CALCULATOR, Message
from chat_tui.backends.endpoint import Endpoint
from chat_tui.backends.faults import ServerError

Ids = tuple[int, ...]

_NAME = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]{2,40}\]")
"""What special tokens are called: `<|im_end|>`, `</s>`, `[INST]`."""

_AT_A_TIME = 4
"""Requests; each has a connection of its own, and servers take only so many at once."""


class ServedTokenizer:
    """Each call asks the server, and raises ServerError where it fails.

    Attributes:
        kind: "vLLM" or "llama-server".
    """

    def __init__(self, http: httpx.AsyncClient, where: Endpoint, model: str, kind: str) -> None:
        self.kind = kind
        self._http, self._where, self._model = http, where, model
        self._names: dict[str, bool] = {}  # to whether it is one token
        self._pieces: dict[int, str] = {}
        self._few = asyncio.Semaphore(_AT_A_TIME)

    async def encoded(self, text: str) -> Ids:
        """Ordinary text as it continues a list; the name of a special token is the characters it
        is written with."""
        # These servers take such a name for the token, but not in two pieces.
        names = await self._special_names(text)
        pieces, at = [], 0
        for name in _NAME.finditer(text):
            if name[0] in names:
                pieces.append(text[at : name.start() + 1])
                at = name.start() + 1
        encoded = await asyncio.gather(
            *(self._encoded(piece, special=False) for piece in (*pieces, text[at:]))
        )
        return tuple(id for ids in encoded for id in ids)

    async def literal(self, text: str) -> Ids:
        """Text of the template's: the names of special tokens are these tokens."""
        return await self._encoded(text, special=True)

    async def _encoded(self, text: str, *, special: bool) -> Ids:
        if self.kind == "llama-server":
            return _ids(await self._ask("tokenize", {"content": text, "parse_special": special}))
        body: dict[str, Any] = {"prompt": text, "add_special_tokens": False}
        return _ids(await self._ask("tokenize", {"model": self._model, **body}))

    async def decoded(self, ids: Ids) -> str:
        document = await self._ask("detokenize", {"model": self._model, "tokens": list(ids)})
        return _field(document, "prompt" if self.kind == "vLLM" else "content")

    async def texts(self, ids: Ids, text: str) -> list[str]:
        """`text`, which `ids` make, in a part for each: all at the last one where a character
        stands in several."""
        new = [id for id in dict.fromkeys(ids) if id not in self._pieces]
        pieces = await asyncio.gather(*(self.decoded((id,)) for id in new))
        self._pieces |= zip(new, pieces, strict=True)
        parts = [self._pieces[id] for id in ids]
        return parts if "".join(parts) == text else [""] * (len(ids) - 1) + [text]

    async def has_names(self, text: str) -> bool:
        """Whether some of it could be taken for special tokens."""
        return bool(await self._special_names(text))

    async def _special_names(self, text: str) -> set[str]:
        """What in `text` is one token as it stands; some of them may be no special ones."""
        found = set(_NAME.findall(text))
        new = [name for name in found if name not in self._names]
        sizes = await asyncio.gather(*(self.literal(name) for name in new))
        self._names |= {name: len(ids) == 1 for name, ids in zip(new, sizes, strict=True)}
        return {name for name in found if self._names[name]}

    async def rendered_text(self, messages: Sequence[Message], tools: bool) -> str:
        """What `rendered` gives, as text."""
        return (
            await self._template(messages, tools)
            if self.kind == "llama-server"
            else await self.decoded(await self.rendered(messages, tools=tools))
        )

    async def rendered(self, messages: Sequence[Message], *, tools: bool) -> Ids:
        """A conversation as the template has it, up to where the answer begins."""
        if self.kind == "llama-server":
            text = await self._template(messages, tools)
            body = {"content": text, "add_special": True, "parse_special": True}
            return _ids(await self._ask("tokenize", body))
        body = {"model": self._model, **_conversation(messages, tools)}
        return _ids(await self._ask("tokenize", body))

    async def _template(self, messages: Sequence[Message], tools: bool) -> str:
        return _field(await self._ask("apply-template", _conversation(messages, tools)), "prompt")

    async def _ask(self, page: str, body: object) -> object:
        async with self._few:
            return await endpoint.ask(self._http, self._where, f"{self._where.root}/{page}", body)


def _conversation(messages: Sequence[Message], tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": True}
    return body | ({"tools": [CALCULATOR]} if tools else {})


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
