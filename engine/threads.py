"""How many threads a CPU engine computes on, and how they wait for each other.

    threads.settle(request.threads)      # before anything imports torch

PyTorch computes prompts on OpenMP's threads, and decode steps where nothing is compiled
(`engine/native`). OpenMP reads how long a waiting thread spins before it sleeps when torch loads
it. Such a step has hundreds of parallel regions some microseconds apart: a thread that sleeps at
once wakes too late for each, one that spins on waits for a thread that lost its core to another
process. Milliseconds of a step of PyTorch's at one row after 512 tokens (SmolLM2, 2 cores), alone
and beside a process that is busy for 25 of every 100 ms, as a painting screen is (one run each,
other work on the machine paused but not gone):

    sleep at once (passive)  26  28        spin 4000  14  16
    spin 1000                17  23        spin 10000 14  25
    spin 2000                16  17        spin on    16  19; 870 with two busy ones

For prompts spins of 100, 500 and 2000 made no difference (1,010-1,130 tokens/s in four runs each).
"""

from __future__ import annotations

import os

SPINS = "2000"
"""Turns of OpenMP's waiting loop; how long they last was not measured."""


def settle(threads: int | None = None) -> None:
    """Take `threads` threads, or as many as there are cores for this process. What the user has set
    in `OMP_WAIT_POLICY` or `GOMP_SPINCOUNT` stays."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    import torch

    torch.set_num_threads(threads or cores())


def share(engines: int) -> int:
    """Threads for each of several engines that compute at the same time: together no more than
    there are cores, for one that waits for a core makes all of its engine's threads wait."""
    return max(1, cores() // engines)


def wait_policy() -> str:
    """How this process's threads wait, in words."""
    policy = os.environ.get("OMP_WAIT_POLICY")
    return policy or f"spin {os.environ.get('GOMP_SPINCOUNT', 'on')}"


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
