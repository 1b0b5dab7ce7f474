"""A scripted server on loopback that speaks OpenAI's protocol, well or badly.

    with SseServer(talk("Hello there")) as server: ...            # answers, and answers `n` samples
    with SseServer(lambda asked, wire: wire.json(401, {})) as server: ...

A script is called once for each POST and writes what it likes to the wire, byte by byte if it
wants. `server.asked` are the requests that came; `server.hung_up` is set when a client closes a
connection that the script holds open.
"""

from __future__ import annotations

import contextlib
import json
import select
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "test"}]}


@dataclass(frozen=True)
class Asked:
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


class Wire:
    """What a script writes to."""

    def __init__(self, handler: BaseHTTPRequestHandler, hung_up: threading.Event) -> None:
        self._handler = handler
        self._hung_up = hung_up

    def json(self, status: int, document: object, **headers: str) -> None:
        """A whole response that is no stream."""
        body = json.dumps(document).encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()
        self.raw(body)

    def start(self, *, length: int | None = None) -> None:
        """The headers of a stream; with a `length` that is not reached it is seen to be cut."""
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        if length is not None:
            self._handler.send_header("Content-Length", str(length))
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def raw(self, data: bytes) -> None:
        try:
            self._handler.wfile.write(data)
            self._handler.wfile.flush()
        except OSError:
            self._hung_up.set()

    def event(self, document: object) -> None:
        self.raw(b"data: " + json.dumps(document).encode() + b"\n\n")

    def say(self, text: str, index: int = 0, **choice: object) -> None:
        """A chunk with some text in it."""
        self.event({"choices": [{"index": index, "delta": {"content": text}, **choice}]})

    def end(self, index: int = 0, reason: str = "stop") -> None:
        self.event({"choices": [{"index": index, "delta": {}, "finish_reason": reason}]})

    def done(self) -> None:
        self.raw(b"data: [DONE]\n\n")

    def hold(self, seconds: float = 10.0) -> bool:
        """Send nothing until the client hangs up; False where it does not in time."""
        until = time.monotonic() + seconds
        connection = self._handler.connection
        while time.monotonic() < until:
            if select.select([connection], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    if connection.recv(1):
                        continue
                self._hung_up.set()
                return True
        return False


Script = Callable[[Asked, Wire], None]


def talk(*texts: str, pause: float = 0.0) -> Script:
    """Answers with `texts`, one per sample, again from the first where there are too few: word by
    word, the samples in turn."""

    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        words = [
            texts[index % len(texts)].split(" ") for index in range(int(asked.body.get("n") or 1))
        ]
        for place in range(max(map(len, words))):
            for index, own in enumerate(words):
                if place < len(own):
                    wire.say(("" if place == 0 else " ") + own[place], index)
                if place == len(own) - 1:
                    wire.end(index)
            time.sleep(pause)
        wire.event(
            {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": len(words[0])}}
        )
        wire.done()

    return script


def endless(asked: Asked, wire: Wire) -> None:
    """Begins each answer, and goes on with none."""
    wire.start()
    for index in range(asked.body.get("n", 1)):
        wire.say("So ", index)
    wire.hold()


class SseServer:
    """Args:
    script: answers each POST.
    models: what a GET of `/v1/models` gives; None: there is no such page. `pages` are others.
    certificate: with this and its key, it speaks TLS.
    """

    def __init__(
        self,
        script: Script,
        models: object | None = MODELS,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self.script = script
        self.models = models
        self.pages: dict[str, object] = {}
        self.asked: list[Asked] = []
        self.hung_up = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wire = Wire(self, server.hung_up)
                server.asked.append(Asked(self.path, {}, dict(self.headers)))
                if self.path in server.pages:
                    wire.json(200, server.pages[self.path])
                elif server.models is None or self.path != "/v1/models":
                    wire.json(404, {"detail": "Not Found"})
                elif callable(server.models):
                    server.models(server.asked[-1], wire)
                else:
                    wire.json(200, server.models)

            def do_POST(self) -> None:
                self.close_connection = True
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked = Asked(self.path, json.loads(body), dict(self.headers))
                server.asked.append(asked)
                server.script(asked, Wire(self, server.hung_up))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.host}"

    @property
    def posts(self) -> list[dict[str, Any]]:
        """The bodies of the requests for answers."""
        return [asked.body for asked in self.asked if asked.path == "/v1/chat/completions"]

    def __enter__(self) -> SseServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()
