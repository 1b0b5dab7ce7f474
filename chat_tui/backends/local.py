"""The local engine: `engine.worker` as a child process, spoken to over its stdin and stdout.

A crash, an out-of-memory kill or a hang of the child costs the running answer and nothing else: the
screen sees one `Died` event with the reason, and the next request starts a new child (send `Load`
first).
"""

from __future__ import annotations

import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

import engine
from chat_tui.backends.arriving import Arriving
from engine.messages import Died, Event, Request
from engine.paths import private_file, state_dir

_ROOT = Path(engine.__file__).parent.parent
_START = f"import sys; sys.path[:1] = [{str(_ROOT)!r}]; from engine.worker import main; main()"
"""Not `-m engine.worker`: that would look for the package in the user's working folder first."""

LOG_NAME = "engine.log"
"""What the engine's libraries print, and tracebacks; overwritten by each start. Of several engines
each has its own: the second one's is `engine-2.log`."""
_logs: set[Path] = set()  # that are written to now


class LocalBackend(Arriving):
    """Implements `chat_tui.backends.base.Backend`."""

    def __init__(self) -> None:
        super().__init__()
        self._child: _Child | None = None

    def send(self, request: Request) -> None:
        if self._child is None or self._child.ended:
            self._child = _Child(self._receive)
        self._child.requests.put(request)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    @property
    def pid(self) -> int | None:
        """Of the engine's process, where there is one."""
        return self._child.process.pid if self._child else None


def _free_log() -> Path:
    """One that no other engine of this program writes to."""
    first = state_dir() / LOG_NAME
    numbered = (first.with_stem(f"{first.stem}-{number}") for number in count(2))
    log = next(path for path in chain([first], numbered) if path not in _logs)
    _logs.add(log)
    return log


class _Child:
    """One process and the two threads that write to it and read from it."""

    def __init__(self, receive: Callable[[Event], None]) -> None:
        self.requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.ended = False
        self._receive = receive
        self._closing = False
        log = _free_log()
        with open(log, "wb", opener=private_file) as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl+C in the terminal is the screen's business
            )
        self._log = log
        threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        self._closing = True
        self.process.kill()
        self.requests.put(None)
        self.process.wait()

    def _write(self) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        try:
            while (request := self.requests.get()) is not None:
                pickle.dump(request, pipe)
                pipe.flush()
        except OSError:
            pass  # the reader tells of the death

    def _read(self) -> None:
        pipe = self.process.stdout
        assert pipe is not None
        try:
            while True:
                self._receive(pickle.load(pipe))
        except (EOFError, OSError, pickle.UnpicklingError):
            self.ended = True
        code = self.process.wait()
        _logs.discard(self._log)
        self.requests.put(None)
        if not self._closing:
            self._receive(Died(self._reason(code)))

    def _reason(self, code: int) -> str:
        if code == -signal.SIGKILL:
            return "The engine was killed (often for lack of memory)."
        if code < 0:
            return f"The engine crashed with {signal.Signals(-code).name}; see {self._log}."
        return f"The engine ended with exit code {code}; see {self._log}."
