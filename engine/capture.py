"""CUDA graphs: what a GPU was made to do once, to be done again by a single call from the host.

    capture = CudaGraphs(device)
    step = Captured(run, capture)
    step()          # runs: libraries load their kernels, which must not happen while capturing
    step()          # is captured, and replayed
    step()          # is replayed: some microseconds of the host for hundreds of kernels

`run` takes nothing and returns nothing: it reads and writes tensors that stay where they are. It
must not look at a value (`.item()`), as a value is there when it is replayed and not before, and
what Python decides while it is captured is decided for ever. Without `capture` every call runs,
which is what happens on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

Run: TypeAlias = "Callable[[], None]"
Capture: TypeAlias = "Callable[[Run], Run]"
"""Captures what a callable makes the device do, without doing it; returns what replays it."""


class Captured:
    def __init__(self, run: Run, capture: Capture | None) -> None:
        self._run = run
        self._capture = capture
        self._replay: Run | None = None
        self._warm = False

    def __call__(self) -> None:
        if self._replay is None and self._warm and self._capture is not None:
            self._replay = self._capture(self._run)
        (self._replay or self._run)()
        self._warm = True


class CudaGraphs:
    """Captures on one device. All graphs share one pool of memory for what they compute on the way:
    they never run at the same time, and what they leave behind lies outside it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
        self.failure = ""
        """Why something could not be captured; empty while all goes well."""

    def __call__(self, run: Run) -> Run:
        graph = torch.cuda.CUDAGraph()
        # "thread_local": what other threads do with the device cannot break it.
        capturing = torch.cuda.graph(
            graph, self._pool, self._stream, capture_error_mode="thread_local"
        )
        # A capture that fails may leave its stream behind as the current one.
        current = torch.cuda.stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.device(self.device), current, capturing:
                run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # Slower, but it answers. Who shows the backend shows this beside it.
            self.failure = self.failure or _cause(error)
            return run
        return graph.replay


def _cause(error: BaseException) -> str:
    """The first line of what went wrong first: ending a capture that has failed fails, too."""
    while error.__context__ is not None:
        error = error.__context__
    return (str(error).splitlines() or [repr(error)])[0][:200]
