"""Where a server is, and what it has: its address, the key to it, its models.

    endpoint = Endpoint.of("http://gpu-box:8000", key_env="OPENAI_API_KEY")
    async with client(endpoint) as http:
        for served in await served_models(http, endpoint): ...

The key is read from the environment when it is needed and goes into one header; it is in no
dataclass's repr, in no setting, no file and no message (`redact`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from chat_tui.backends.faults import RefusedError, ServerError, of_status, of_transport
from engine.messages import DEFAULT_KEY_ENV

CONNECT_S = 10.0
_ANSWER_S = 30.0
"""For what is no generation: a list of models, a tokenisation."""
_MAX_BODY = 8 << 20

_KINDS = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama-server"}
"""What `owned_by` in a list of models says about who answers."""


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server.

    Attributes:
        base: its address up to and with the version: `http://gpu-box:8000/v1`.
        key: sent as a bearer token; empty where there is none.
    """

    base: str
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, key_env: str = DEFAULT_KEY_ENV) -> Endpoint:
        """From what `--server` takes: with or without scheme, and with or without `/v1`.

        Raises:
            ServerError: it is no address, or the variable that should hold the key is not set.
        """
        text = url.strip()
        try:
            parsed = httpx.URL(text if "://" in text else f"http://{text}")
        except httpx.InvalidURL as error:
            raise of_transport(error, text[:80]) from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ServerError(f"{text[:80]} is no address of a server: http://HOST:PORT is one.")
        if parsed.userinfo:
            raise ServerError("An address with a password in it would be kept: use --api-key-env.")
        path = parsed.path.rstrip("/").removesuffix("/chat/completions")
        key = os.environ.get(key_env, "")
        if not key and key_env != DEFAULT_KEY_ENV:
            raise ServerError(f"{key_env} is not set: it should hold the server's key.")
        if not (key.isascii() and key.isprintable()):
            raise ServerError(f"{key_env} holds characters that no key can have.")
        base = parsed.copy_with(path=path or "/v1", query=None, fragment=None)
        return cls(str(base), key.strip())

    @property
    def root(self) -> str:
        """The address without the version, where vLLM and llama-server have pages of their own."""
        return self.base.removesuffix("/v1")

    @property
    def host(self) -> str:
        """As short as a status line wants it: `gpu-box:8000`."""
        return httpx.URL(self.base).netloc.decode("ascii", "replace")

    def redact(self, text: str) -> str:
        """One line, without the key: servers like to repeat what they were given."""
        line = " ".join(text.split())
        return line.replace(self.key, "…") if self.key else line


def client(endpoint: Endpoint, connect_s: float = CONNECT_S) -> httpx.AsyncClient:
    """Proxies and certificates come from the environment, as for other programs; what is on this
    machine is reached directly."""
    headers = {"Accept-Encoding": "identity"}  # or a few bytes could become gigabytes
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    url = httpx.URL(endpoint.base)
    local = url.host in ("localhost", "127.0.0.1", "::1")
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(None, connect=connect_s),  # the rest is timed where it is awaited
        # The server may close a kept connection just when a request is put on it, and whether it
        # was heard cannot be told; a new one costs little beside an answer.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=not local,
        verify=httpx.create_ssl_context() if local and url.scheme == "https" else True,
    )


async def body_of(response: httpx.Response) -> object:
    """A response's JSON, or its text where it is none; no more than a bounded part of it."""
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > _MAX_BODY:
            raise ServerError(f"{response.url.host} sends more than {_MAX_BODY >> 20} MiB at once.")
    text = raw.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:1000]


async def ask(
    http: httpx.AsyncClient, endpoint: Endpoint, url: str, body: object | None = None
) -> object:
    """The JSON document at `url`: a GET, or a POST of `body`.

    Raises:
        ServerError: there is none.
    """
    import asyncio

    async def answer() -> object:
        request = http.build_request("GET" if body is None else "POST", url, json=body)
        response = await http.send(request, stream=True)
        try:
            document = await body_of(response)
        finally:
            await response.aclose()
        if response.status_code != 200:
            raise of_status(
                response.status_code,
                response.headers,
                document,
                endpoint.host,
                has_key=bool(endpoint.key),
            )
        return document

    try:
        return await asyncio.wait_for(answer(), _ANSWER_S)
    except asyncio.TimeoutError:
        raise ServerError(f"{endpoint.host} does not answer within {_ANSWER_S:.0f} s.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise of_transport(error, endpoint.host) from None


@dataclass(frozen=True)
class Served:
    """A model that a server says it has.

    Attributes:
        context: tokens it holds; 0 where the server does not say.
        kind: what serves it, by name; empty where that is not known.
    """

    name: str
    context: int = 0
    kind: str = ""


async def served_models(http: httpx.AsyncClient, endpoint: Endpoint) -> list[Served]:
    """What `/models` lists; nothing where the server has no such page.

    Raises:
        ServerError: it cannot be reached, or refuses.
    """
    try:
        document = await ask(http, endpoint, f"{endpoint.base}/models")
    except RefusedError as error:
        if error.status in (404, 405, 501):
            return []
        raise
    entries: Any = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ServerError(f"{endpoint.base} lists no models: is it the address of an API?")
    return [_served(entry) for entry in entries if isinstance(entry, dict) and entry.get("id")]


def _served(entry: dict[str, Any]) -> Served:
    context = entry.get("max_model_len")
    return Served(
        str(entry["id"]),
        context if isinstance(context, int) else 0,
        _KINDS.get(str(entry.get("owned_by")), ""),
    )


def choose(served: Sequence[Served], name: str, endpoint: Endpoint) -> Served:
    """The model to talk to: the one that is named, else the only or first one.

    A name that is not listed is taken too: routers serve more than they list.
    """
    if not name:
        if not served:
            raise ServerError(f"{endpoint.host} lists no models: say which with --model NAME.")
        return served[0]
    for model in served:
        if model.name == name:
            return model
    return Served(name, kind=served[0].kind if served else "")
