"""What can go wrong between here and a server, in one clear line each.

`ServerError` is all that leaves the inside of the backend; `of_transport` makes it out of httpx's
exceptions, `of_status` out of a response that is none of the answers wanted.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

import httpx

from chat_tui.backends.chunks import error_text


class ServerError(Exception):
    """`str(error)` is one line: what happened and, where that is known, what to do."""


class RefusedError(ServerError):
    """The server answered with an error, and streamed nothing.

    Attributes:
        status: HTTP's.
        said: the server's own words.
        wait_s: seconds after which it wants to be asked again; None where it does not say.
    """

    def __init__(self, line: str, status: int, said: str, wait_s: float | None = None) -> None:
        super().__init__(line)
        self.status, self.said, self.wait_s = status, said, wait_s


class ContextError(ServerError):
    """The prompt does not fit into the model.

    Attributes:
        prompt_tokens, limit: as the server counted; 0 where it does not say.
    """

    def __init__(self, said: str, prompt_tokens: int = 0, limit: int = 0) -> None:
        super().__init__(f"The conversation does not fit into the model's context: {said}")
        self.prompt_tokens, self.limit = prompt_tokens, limit


def of_transport(error: httpx.HTTPError | httpx.InvalidURL, where: str) -> ServerError:
    """Args: where: the server, as the user knows it."""
    refused = False
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ServerError(
                f"The certificate of {where} is not trusted ({cause.verify_message}); SSL_CERT_FILE"
                " names a file with its authority."
            )
        if isinstance(cause, ssl.SSLError):
            return ServerError(
                f"TLS with {where} failed ({cause.reason or cause}): http, not https?"
            )
        refused = refused or isinstance(cause, ConnectionRefusedError)
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return ServerError(f"{where} is no address of a server: http://HOST:PORT is one.")
    if isinstance(error, httpx.ConnectTimeout):
        return ServerError(f"{where} does not answer: is the address right, is it running?")
    if refused:
        return ServerError(f"There is no server at {where} (connection refused): is it running?")
    if isinstance(error, httpx.ConnectError):
        return ServerError(f"There is no connection to {where} ({error}): is it running?")
    return ServerError(f"{where} broke the connection ({error or type(error).__name__}).")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """What an exception was raised for, down to the operating system's word."""
    while error is not None:
        yield error
        yield from getattr(error, "exceptions", ())  # of several addresses, several
        error = error.__cause__ or error.__context__


def of_status(
    status: int, headers: Mapping[str, str], document: object, where: str, *, has_key: bool
) -> ServerError:
    """Args: document: the response's body, decoded where it is JSON, else its text."""
    said = document if isinstance(document, str) else error_text(document)
    said = " ".join(said.split())[:300]
    behind = "." if not said else f": {said}" if said[-1] in ".!?" else f": {said}."
    if status in (400, 413, 422) and _CONTEXT.search(said):
        return _context_error(said, document)
    if status in (401, 403):
        line = (
            f"{where} refuses the key ({status}){behind}"
            if has_key
            else f"{where} wants a key ({status}): set OPENAI_API_KEY, or --api-key-env NAME."
        )
        return RefusedError(line, status, said)
    if status == 404:
        line = f"{where} does not know that (404){behind}" if said else f"{where} has no such page."
        return RefusedError(line, status, said)
    if 300 <= status < 400:
        target = headers.get("location", "elsewhere")[:200]
        return RefusedError(f"{where} sends us on to {target}: give that address.", status, said)
    wait_s = _seconds(headers.get("retry-after", ""))
    when = f" It wants to be asked again in {wait_s:.0f} s." if wait_s is not None else ""
    if status == 429:
        return RefusedError(f"{where} has too much to do (429){behind}{when}", status, said, wait_s)
    if status >= 500:
        return RefusedError(f"{where} failed ({status}){behind}{when}", status, said, wait_s)
    return RefusedError(f"{where} refuses the request ({status}){behind}", status, said)


def _seconds(text: str) -> float | None:
    """Of a Retry-After: seconds, or a date."""
    if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text.strip()):
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


_CONTEXT = re.compile(
    r"context (?:length|size|window)|context_length|too long for|exceeds? the .{0,30}context", re.I
)
_LIMITS = (
    r"context (?:length|size|window)\D{0,30}(\d+)",
    r"(?:limit|maximum)\D{0,30}(\d+)",
)
_PROMPTS = (
    r"\((\d+) in the (?:messages|prompt)",
    r"(?:resulted in|prompt contains(?: at least)?|input \(|input length|request) ?\(?(\d+)",
    r"(\d+) input tokens",
    r"requested (\d+)",
)


def _context_error(said: str, document: object) -> ContextError:
    """With the figures where they can be found: llama-server gives fields, the others prose."""
    error = document.get("error") if isinstance(document, dict) else None
    fields = error if isinstance(error, dict) else {}
    prompt, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(prompt, int) and isinstance(limit, int):
        return ContextError(said, prompt, limit)
    return ContextError(said, _first(_PROMPTS, said), _first(_LIMITS, said))


def _first(patterns: tuple[str, ...], text: str) -> int:
    for pattern in patterns:
        if found := re.search(pattern, text, re.I):
            return int(found[1])
    return 0
