"""How many threads a CPU engine computes on, and how they wait for each other.

    threads.settle(request.threads)      # before anything imports torch

OpenMP reads its wait policy when torch loads it. A thread that waits for one which lost its core
must not spin: with one other busy process that made a decode step 20 to 100 times slower.
"""

from __future__ import annotations

import os


def settle(threads: int | None = None) -> None:
    """Take `threads` threads, or as many as there are cores for this process. What the user has set
    in `OMP_WAIT_POLICY` stays."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(threads or cores())


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
