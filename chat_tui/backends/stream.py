"""A streaming response, chunk by chunk, within limits of time and size.

What comes out is whole or not at all: a chunk that cannot be read ends the stream with a
`ServerError`, since an answer with a hole in it would be no answer of the model's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple, cast

import httpx

from chat_tui.backends import sse
from chat_tui.backends.chunks import Chunk, MalformedError, parse
from chat_tui.backends.endpoint import body_of
from chat_tui.backends.faults import ServerError

END = Chunk()
"""The last of a stream that has been sent whole; without it the connection just ended."""


class Limits(NamedTuple):
    """How long to wait, in seconds: for the first byte (a long prompt is prefilled, others are
    served before us), and between two."""

    first_s: float = 600.0
    idle_s: float = 60.0


async def chunks(
    response: httpx.Response, where: str, limits: Limits
) -> AsyncGenerator[Chunk, None]:
    """To be closed where it is not read to its end.

    Raises:
        ServerError, or httpx's errors of transport.
    """
    if "json" in response.headers.get("content-type", ""):  # it answers, but does not stream
        yield parse(json.dumps(await body_of(response)))
        yield END
        return
    try:
        async with aclosing(_events(response, where, limits)) as events:
            async for event in events:
                if event.strip() == sse.DONE:
                    yield END
                    return
                yield parse(event)
    except MalformedError as error:
        shown = "".join(c if c.isprintable() else " " for c in str(error)[:80])
        raise ServerError(f"{where} sends what is no answer: {shown}") from None
    except sse.TooLongError:
        most = sse.MAX_LINE >> 20
        raise ServerError(
            f"{where} sends a line that does not end: more than {most} MiB."
        ) from None


async def _events(
    response: httpx.Response, where: str, limits: Limits
) -> AsyncGenerator[str, None]:
    stream, limit = sse.EventStream(), limits.first_s
    raw = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
    async with aclosing(raw) as arriving:
        while True:
            try:
                data = await asyncio.wait_for(arriving.__anext__(), limit)
            except StopAsyncIteration:
                break
            except asyncio.TimeoutError:
                raise ServerError(
                    f"{where} has sent nothing for {limit:.0f} s: given up."
                ) from None
            limit = limits.idle_s
            for event in stream.feed(data):
                yield event
    for event in stream.close():
        if event.strip() == sse.DONE or _whole(event):  # else it was cut off
            yield event


def _whole(event: str) -> bool:
    try:
        parse(event)
    except MalformedError:
        return False
    return True
