"""A headless Chromium under a test's control, driven by its own protocol over a pipe.

    with Browser(found()) as browser:
        page = browser.page(800, 600)
        page.go("file:///tmp/page.html")
        page.js("document.title")
        page.move(100, 40)
        page.requests                   # whatever it asked of a network

No driver and no socket: `--remote-debugging-pipe` speaks JSON on two file descriptors.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def found() -> str | None:
    """The program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


_COUNT = """(async () => {
    const picture = new Image();
    picture.src = "data:image/png;base64,%s";
    await picture.decode();
    const paper = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    paper.drawImage(picture, 0, 0);
    const dots = paper.getImageData(0, 0, picture.width, picture.height).data;
    return new Set(new Uint32Array(dots.buffer)).size;
})()"""


class Browser:
    """The process and its pipe."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._out = os.pipe()
        self._in, ours = os.pipe()
        # Chromium reads descriptor 3 and writes 4, whatever stands there here.
        pair = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs, ours)]

        def place() -> None:
            os.dup2(pair[0], 3)
            os.dup2(pair[1], 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4, *pair),
            preexec_fn=place,
        )
        for fd in (theirs, ours, *pair):
            os.close(fd)
        self._numbers = count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def listen(self) -> None:
        """Take the events that have come."""
        while self._buffer or select.select([self._in], [], [], 0)[0]:
            self.events.append(self._next(time.monotonic() + 60))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = max(deadline - time.monotonic(), 0)
            assert select.select([self._in], [], [], left)[0], "Chromium does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "Chromium is gone"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def page(self, width: int, height: int) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        return Page(self, attached["sessionId"], width, height)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str, width: int, height: int) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        self._browser.listen()
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def go(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        before = len(self._events("Page.loadEventFired"))
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while len(self._events("Page.loadEventFired")) == before:
            assert time.monotonic() < deadline, f"{url} was not loaded"
            time.sleep(0.02)

    def js(self, expression: str) -> Any:
        """What an expression is worth on the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> Any:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"not within {seconds} s: {expression}"
            time.sleep(0.05)
        return value

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        for char in text:
            self.press(char, char)

    def press(self, key: str, text: str = "", *, alt: bool = False) -> None:
        alone = ord(key.upper()) if len(key) == 1 and key.isalnum() else 0
        code = {"Enter": 13, "Escape": 27, "F1": 112}.get(key, alone)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                modifiers=int(alt),
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def media(self, kind: str = "", **features: str) -> None:
        """Another medium ("print"), or what the user prefers: `prefers_color_scheme="dark"`."""
        wanted = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=wanted)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._picture()))

    def _picture(self) -> str:
        return str(self.call("Page.captureScreenshot", format="png")["data"])

    def colours(self) -> int:
        """How many different ones are to be seen."""
        counted = self._browser.page(100, 100)
        return int(counted.js(_COUNT % self._picture()))

    @property
    def received(self) -> bytes:
        """All that came over its websockets, of bytes."""
        frames = [event["response"] for event in self._events("Network.webSocketFrameReceived")]
        return b"".join(base64.b64decode(f["payloadData"]) for f in frames if f["opcode"] == 2)

    @property
    def requests(self) -> list[str]:
        """All addresses that were asked for; what the page's own policy forbids never is."""
        sent = self._events("Network.requestWillBeSent")
        failed = self._events("Network.loadingFailed")
        refused = {e["requestId"] for e in failed if e.get("blockedReason") == "csp"}
        return [e["request"]["url"] for e in sent if e["requestId"] not in refused]

    @property
    def complaints(self) -> list[str]:
        """What the browser refused, and scripts that failed."""
        entries = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        thrown = self._events("Runtime.exceptionThrown")
        return [*entries, *(str(event["exceptionDetails"].get("exception")) for event in thrown)]
