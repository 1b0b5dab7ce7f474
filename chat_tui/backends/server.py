"""An OpenAI-compatible server (vLLM, SGLang, llama-server, TGI, a hosted API) as a backend.

It speaks the protocol of `engine.messages`, as the local engine does. All requests run on one event
loop in a thread of its own, so that the screen waits for nothing. What a server does not say stays
unsaid: token ids are `NO_ID`, sizes are 0, a log-probability that is not there is none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx

from chat_tui.backends import endpoint
from chat_tui.backends.answering import Answering
from chat_tui.backends.arriving import Arriving
from chat_tui.backends.dialogue import CALCULATOR
from chat_tui.backends.endpoint import CONNECT_S, Endpoint, Served
from chat_tui.backends.exact import Exact
from chat_tui.backends.faults import RefusedError, ServerError
from chat_tui.backends.stream import Limits
from chat_tui.backends.traits import Traits
from engine.messages import (
    Ask,
    Cancel,
    Count,
    Counted,
    Event,
    Failed,
    Load,
    Loading,
    ModelInfo,
    Ready,
    Request,
    Score,
)

_CLOSING_S = 2.0


class ServerBackend(Arriving):
    """Implements `chat_tui.backends.base.Backend`."""

    def __init__(self, limits: Limits | None = None, *, connect_s: float = CONNECT_S) -> None:
        super().__init__()
        self._limits, self._connect_s = limits or Limits(), connect_s
        self._work: _Work | None = None

    def send(self, request: Request) -> None:
        if self._work is None:
            self._work = _Work(self._receive, self._limits, self._connect_s)
        self._work.send(request)

    def close(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None


class _Work:
    """The thread, its loop, and what runs on it."""

    def __init__(self, receive: Callable[[Event], None], limits: Limits, connect_s: float) -> None:
        self._receive, self._limits, self._connect_s = receive, limits, connect_s
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks: dict[int, Answering] = {}
        self._early: dict[int, list[int | None]] = {}  # cancelled before the ask has begun
        self._loading: asyncio.Task[None] | None = None
        self._http: httpx.AsyncClient | None = None
        self._where: Endpoint | None = None
        self._traits: Traits | None = None
        self._exact: Exact | None = None
        self._info: ModelInfo | None = None
        self._thread = threading.Thread(target=self._run, name="chat-tui-server", daemon=True)
        self._thread.start()

    def send(self, request: Request) -> None:
        self._loop.call_soon_threadsafe(self._take, request)

    def close(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._until_closed())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            if left := asyncio.all_tasks(self._loop):  # generators of httpx's that were cut short
                self._loop.run_until_complete(asyncio.wait(left, timeout=_CLOSING_S))
        finally:
            self._loop.close()

    async def _until_closed(self) -> None:
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    def _say(self, event: Event) -> None:
        if not self._closed:
            self._receive(event)

    # Requests.

    def _take(self, request: Request) -> None:
        match request:
            case Load():
                self._loading = self._start(self._load(request, self._loading), None)
            case Ask():
                self._early[request.ask] = []
                self._start(self._answer(request, self._loading), request.ask)
            case Cancel() if request.ask in self._asks:
                self._asks[request.ask].cancel(request.row)
            case Cancel() if request.ask in self._early:
                self._early[request.ask].append(request.row)
            case Count():
                self._start(self._count(request, self._loading), request.ask)
            case Score():
                self._say(Failed(request.ask, "A server does not score a text that is there."))

    def _start(self, work: Coroutine[Any, Any, None], ask: int | None) -> asyncio.Task[None]:
        task = self._loop.create_task(self._guarded(work, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None], ask: int | None) -> None:
        """Whoever waits for the end of it hears of one."""
        try:
            await work
        except ServerError as error:
            line = str(error) if self._where is None else self._where.redact(str(error))
            self._say(Failed(ask, line))
        except Exception as error:  # a fault of ours: said, not hidden
            self._say(Failed(ask, f"This is a fault in chat-tui: {type(error).__name__}: {error}"))

    async def _load(self, request: Load, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._where = self._traits = self._exact = self._info = None
        where = Endpoint.of(request.server or "", request.key_env)
        self._say(Loading(f"Asking {where.host} for its models"))
        if self._http is not None:
            await self._http.aclose()
        self._http = endpoint.client(where, self._connect_s)
        self._where = where
        served = await endpoint.served_models(self._http, where)
        model = endpoint.choose(served, request.name, where)
        traits = Traits(model.name, model.kind, self._tell_note)
        self._exact = await Exact.of(self._http, where, model)
        if self._exact is not None:
            traits.exact = "always" if self._exact.tools else "without tools"
            if not (self._exact.tools or await _takes_tools(self._http, where, model)):
                traits.learn({"tools"}, tools=True)
        self._traits = traits
        self._info = _info(model, where, traits, self._exact)
        self._say(Ready(self._info))

    def _tell_note(self) -> None:
        """More is known of how the server has to be asked; not while another one is asked for."""
        if self._loading is not None and self._loading.done() and self._traits and self._info:
            self._info = replace(self._info, backend_note=self._traits.note())
            self._say(Ready(self._info))

    async def _answer(self, request: Ask, loading: asyncio.Task[None] | None) -> None:
        if loading is not None:
            await asyncio.wait([loading])
        early = self._early.pop(request.ask)
        if self._http is None or self._where is None or self._traits is None:
            self._say(Failed(request.ask, "There is no server to ask."))
            return
        traits = self._traits
        answering = Answering(
            request, self._http, self._where, traits, self._exact, self._limits, self._say
        )
        self._asks[request.ask] = answering
        try:
            for row in early:
                answering.cancel(row)
            await answering.run()
        finally:
            del self._asks[request.ask]

    async def _count(self, request: Count, loading: asyncio.Task[None] | None) -> None:
        if loading is not None:
            await asyncio.wait([loading])
        if self._exact is None:
            self._say(Failed(request.ask, "This server does not count tokens."))
            return
        counted = [len(await self._exact.text.encoded(text)) for text in request.texts]
        self._say(Counted(request.ask, tuple(counted)))


async def _takes_tools(http: httpx.AsyncClient, where: Endpoint, model: Served) -> bool:
    """vLLM refuses them where it was started without a parser for them. Found out beforehand, since
    it decides whether ids or messages are sent, from the first message on."""
    if model.kind != "vLLM":
        return True
    body = {
        "model": model.name,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
        "tools": [CALCULATOR],
        "tool_choice": "auto",
    }
    try:
        await endpoint.ask(http, where, f"{where.base}/chat/completions", body)
    except RefusedError as error:
        return error.status not in (400, 422, 501)
    return True


def _info(model: Served, where: Endpoint, traits: Traits, exact: Exact | None) -> ModelInfo:
    """What is known of a served model. How full its context is, is known where ids are sent."""
    tools = exact.tools if exact is not None else None
    counted = exact is not None and (tools or not traits.takes("tools"))
    return ModelInfo(
        name=model.name,
        family="",
        path=where.base,
        parameters=0,
        weight_bytes=0,
        kv_bytes_per_token=0,
        n_layer=0,
        n_head=0,
        n_kv_head=0,
        head_dim=0,
        vocab_size=0,
        context=exact.context if exact is not None and counted else 0,
        dtype="",
        device=where.host,
        backend=traits.kind,
        backend_note=traits.note(),
        tool_dialect="function" if tools is None else tools.name,
    )
