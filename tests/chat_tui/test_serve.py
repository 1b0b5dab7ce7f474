"""The chat in a browser: drawn there, answering keys, and nobody else's."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from chat_tui import cli, serving
from chat_tui.serving import is_loopback, is_ours
from tests.chat_tui.browser import Browser, Page
from tests.chat_tui.sse_server import SseServer, talk

MAIN = "from chat_tui.cli import main; main()"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(*options: str) -> Iterator[int]:
    """The port of `chat-tui serve` with these options."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "serve", "--port", str(port), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == f"chat-tui is at http://127.0.0.1:{port} (Ctrl+C ends it)\n"
        yield port
    finally:
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    pytest.importorskip("textual_serve")
    with (
        SseServer(talk("Red it is.", "Blue, rather.")) as answers,
        served("--server", answers.url, "-n", "2", "--private") as port,
    ):
        yield port


def shown(page: Page) -> str:
    """What a terminal shows that got what the page got."""
    screen = pyte.Screen(200, 60)
    pyte.ByteStream(screen).feed(page.received)
    return "\n".join(screen.display)


def until(page: Page, holds: Callable[[str], bool], seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while not holds(text := shown(page)):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    return text


def test_the_chat_is_drawn_and_keys_are_answered(browser: Browser, port: int) -> None:
    page = browser.page(1000, 640)
    page.go(f"http://127.0.0.1:{port}/")
    until(page, lambda text: "Enter sends" in text and "tiny" in text)
    page.until("getComputedStyle(document.querySelector('#starting')).display === 'none'")
    assert page.colours() > 20
    page.type("Which colour?")  # nobody clicked: the keyboard is the terminal's already
    page.press("Enter", "\r")
    until(page, lambda text: "Red it is." in text and "Blue, rather." in text)
    page.press("2", alt=True)
    until(page, lambda text: "2 of 2" in text)
    page.press("F1")
    until(page, lambda text: "Keys and commands" in text)
    assert {url.split("/")[2] for url in page.requests} == {f"127.0.0.1:{port}"}
    assert [text for text in page.complaints if "WebGL" not in text] == []
    page.press("Escape")
    until(page, lambda text: "Keys and commands" not in text)
    page.type("/quit")
    page.press("Enter", "\r")
    page.until("getComputedStyle(document.querySelector('#ended')).display === 'block'")


def test_what_is_wrong_is_said_in_the_page(browser: Browser) -> None:
    pytest.importorskip("textual_serve")
    with served("--resume", "99") as port:
        page = browser.page(800, 400)
        page.go(f"http://127.0.0.1:{port}/")
        until(page, lambda text: "There is no session 99" in text)
        page.until("getComputedStyle(document.querySelector('#ended')).display === 'block'")


def status(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_page_of_somewhere_else_is_answered_nothing(port: int) -> None:
    own = f"127.0.0.1:{port}"
    socket_of = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert status(port, "/") == 200
    assert status(port, "/", Host="evil.example") == 403
    assert status(port, "/", Host="localhost:9999") == 200  # as a tunnel calls it
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        assert status(port, "/ws", Host=own, Origin=origin, **socket_of) == 403
    assert (
        status(port, "/ws", Host="evil.example", Origin="http://evil.example", **socket_of) == 403
    )
    assert status(port, "/ws", Host=own, Origin=f"http://{own}", **socket_of) == 101


@pytest.mark.parametrize(
    ("name", "listening", "ours"),
    [
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("localhost:8000", "127.0.0.1", True),
        ("[::1]:8000", "::1", True),
        ("192.168.1.4:8000", "127.0.0.1", False),
        ("evil.example:8000", "127.0.0.1", False),
        ("192.168.1.4:8000", "0.0.0.0", True),
        (f"{socket.gethostname()}:8000", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("", "0.0.0.0", False),
        ("gpu-box.lan:8000", "gpu-box.lan", True),
    ],
)
def test_names_that_a_page_may_call_this_machine(name: str, listening: str, ours: bool) -> None:
    assert is_ours(name, listening) is ours


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_what_nobody_else_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "Add --expose"),
        (["--host", "gpu-box.lan"], "Add --expose"),
        (["--nope"], "No such option"),
        (["-n", "99"], "--samples"),
        (["-t", "hot"], "--temperature"),
        (["-p", "Hi"], "answer once"),
        (["--json"], "answer once"),
        (["models"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_served(options: list[str], said: str) -> None:
    code, problem = cli.outcome(["serve", *options])
    assert code == 2
    assert said in problem


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    code, problem = cli.outcome(["serve"])
    assert code == 1
    assert "pip install 'chat-tui[serve]'" in problem
    assert "\n" not in problem


def test_letting_others_in_is_warned_of_and_options_are_the_chats(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[object, ...]] = []

    monkeypatch.setattr(serving, "_serve", lambda *asked: started.append(asked))
    options = ["-n", "3", "--continue", "--system", "Be brief."]
    assert cli.outcome(["serve", "--host", "0.0.0.0", "--expose", *options]) == (0, "")
    assert started == [("0.0.0.0", 8000, options)]
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "no password" in warning


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-c", MAIN, "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert os.strerror(errno.EADDRINUSE) in done.stderr
