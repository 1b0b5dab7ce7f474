"""What goes wrong at a server, or on the way to it: what was streamed stays, and one line says what
happened."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from chat_tui.backends.server import ServerBackend
from chat_tui.backends.stream import Limits
from engine.messages import (
    Exchange,
    Failed,
    Finished,
    Load,
    Overflowed,
    Ready,
    RowFinished,
    Started,
)
from tests.chat_tui.asked import ask, failure, talking
from tests.chat_tui.sse_server import Asked, SseServer, Wire, endless, talk
from tests.events import of, texts, until


def test_a_stream_that_stops_in_the_middle() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("Half an ")
        wire.raw(b'data: {"choices": [{"ind')

    with talking(script) as (server, backend):
        events = ask(backend)
    assert texts(events) == ["Half an "]
    assert "ended the stream in the middle" in failure(events)
    assert len(server.posts) == 1, "what was shown is not asked for again"
    assert not of(RowFinished, events)


def test_a_connection_that_breaks_in_the_middle() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start(length=10_000)
        wire.say("Half an ")

    with talking(script) as (_, backend):
        events = ask(backend)
    assert texts(events) == ["Half an "]
    assert "broke the connection" in failure(events)


def test_the_answers_that_ended_before_a_fault_have_ended() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("Whole", 0)
        wire.end(0)
        wire.say("Half", 1)

    with talking(script) as (_, backend):
        events = ask(backend, samples=2)
    assert [(event.row, event.reason) for event in of(RowFinished, events)] == [(0, "stop")]
    failure(events)


def test_an_error_in_the_middle_of_a_stream() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("Half an ")
        wire.event({"error": {"message": "CUDA error:\nout of memory", "code": 500}})
        wire.done()

    with talking(script) as (_, backend):
        assert "CUDA error: out of memory" in failure(ask(backend))


def test_a_chunk_that_is_no_json() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("Half an ")
        wire.raw(b"data: {'choices': \x1b[31m\n\n")
        wire.hold()

    with talking(script) as (server, backend):
        events = ask(backend)
        assert server.hung_up.wait(5)
    assert texts(events) == ["Half an "]
    message = failure(events)
    assert "sends what is no answer" in message
    assert "\x1b" not in message


def test_chunks_that_lack_what_they_should_have() -> None:
    odd = [{}, {"choices": None}, {"choices": [None, 3, {}]}, {"choices": [{"index": "x"}]}]
    odd += [{"choices": [{"index": 99, "delta": {"content": "?"}}]}, {"usage": []}]

    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        for document in odd:
            wire.event(document)
        wire.raw(b": a comment\r\n\r\nevent: x\r\nid: 7\r\n")
        wire.say("Fine")
        wire.done()  # without a finish reason

    with talking(script) as (_, backend):
        events = ask(backend)
    assert texts(events) == ["Fine"]
    assert of(Finished, events)


def test_a_line_without_an_end() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        wire.say("Half an ")
        for _ in range(1000):
            if wire._hung_up.is_set():
                break
            wire.raw(b"x" * (1 << 20))

    with talking(script) as (server, backend):
        events = ask(backend)
        assert server.hung_up.wait(10)
    assert texts(events) == ["Half an "]
    assert "does not end" in failure(events)


def test_a_stall() -> None:
    with talking(endless, limits=Limits(first_s=5, idle_s=0.3)) as (server, backend):
        events = ask(backend)
        assert server.hung_up.wait(5)
    assert texts(events) == ["So "]
    assert "has sent nothing for" in failure(events)


def test_silence_from_the_beginning() -> None:
    with talking(lambda asked, wire: wire.hold(), limits=Limits(first_s=0.3)) as (_, backend):  # type: ignore[arg-type,return-value]
        assert "does not answer" in failure(ask(backend))


@pytest.mark.parametrize(
    ("status", "document", "line"),
    [
        (401, {"error": {"message": "no"}}, "wants a key"),
        (404, {"error": {"message": "The model `tiny` does not exist."}}, "`tiny` does not exist"),
        (429, {"error": {"message": "Slow down"}}, "too much to do (429): Slow down"),
        (500, {"detail": "broken"}, "failed (500): broken"),
        (503, "<html>down</html>", "failed (503)"),
        (418, {}, "refuses the request (418)"),
    ],
)
def test_a_refusal_is_said_in_a_line(status: int, document: object, line: str) -> None:
    with talking(lambda asked, wire: wire.json(status, document)) as (_, backend):
        events = ask(backend)
    assert line in failure(events)
    assert not of(Started, events), "nothing was answered: the message comes back"


@pytest.mark.parametrize("when", ["0.1", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_a_busy_server_is_asked_again_when_it_says(when: str) -> None:
    def script(asked: Asked, wire: Wire) -> None:
        if len(server.posts) == 1:
            wire.json(429, {"error": "busy"}, Retry_After=when)
        else:
            talk("Now")(asked, wire)

    with talking(script) as (server, backend):
        assert texts(ask(backend)) == ["Now"]


def test_a_long_wait_is_left_to_the_user() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        wire.json(429, {"error": "busy"}, Retry_After="3600")

    with talking(script) as (server, backend):
        assert "again in 3600 s" in failure(ask(backend))
    assert len(server.posts) == 1


@pytest.mark.parametrize(
    "error",
    [
        {
            "message": "This model's maximum context length is 2048 tokens. However, you requested"
            " 3000 tokens (2900 in the messages, 100 in the completion)."
        },
        {"message": "exceeds the available context size", "n_prompt_tokens": 2900, "n_ctx": 2048},
    ],
)
def test_a_conversation_that_does_not_fit(error: dict) -> None:
    with talking(lambda asked, wire: wire.json(400, {"error": error})) as (_, backend):
        events = ask(backend, "x" * 100, history=(Exchange("y" * 300, None, "z" * 600),))
    (overflowed,) = of(Overflowed, events)
    assert (overflowed.prompt_tokens, overflowed.limit) == (2900, 2048)
    assert overflowed.sizes == (2610, 290)


def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    backend = ServerBackend()
    backend.send(Load("", server=f"127.0.0.1:{port}"))
    message = failure(until(backend, Failed))
    backend.close()
    assert f"no server at 127.0.0.1:{port} (connection refused)" in message


def test_tls_where_there_is_none() -> None:
    with SseServer(talk("Hi")) as server:
        backend = ServerBackend()
        backend.send(Load("", server=server.url.replace("http:", "https:")))
        message = failure(until(backend, Failed))
        backend.close()
    assert "TLS with" in message


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_a_certificate_that_nobody_vouches_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    name = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *name, *files], check=True, capture_output=True)
    server = SseServer(talk("Hi"), certificate=(certificate, key))
    backend = ServerBackend()
    with server:
        backend.send(Load("", server=server.url))
        assert "is not trusted (self-signed certificate)" in failure(until(backend, Failed))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        backend.send(Load("", server=server.url))
        until(backend, Ready)
        assert texts(ask(backend)) == ["Hi"]
    backend.close()


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://user:secret@host", "::::", "http://[", ""]
)
def test_an_address_that_is_none(url: str) -> None:
    backend = ServerBackend()
    backend.send(Load("", server=url))
    message = failure(until(backend, Failed))
    backend.close()
    assert "secret" not in message


def test_after_a_fault_the_next_message_is_answered() -> None:
    def script(asked: Asked, wire: Wire) -> None:
        if len(server.posts) == 1:
            wire.json(500, {})
        else:
            talk("Now")(asked, wire)

    with talking(script) as (server, backend):
        failure(ask(backend))
        assert texts(ask(backend)) == ["Now"]
