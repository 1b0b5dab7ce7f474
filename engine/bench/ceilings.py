"""What this machine can do: bytes per second and FLOPs per second, measured before anything is
compared with them.

A ceiling is the best of many passes, not their median: a neighbour on the machine makes a pass
slower, nothing makes it faster than the hardware. All ceilings use as many threads as the engine.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable

import torch

from engine import threads
from engine.bench.plan import Plan
from engine.bench.report import Machine
from engine.threads import cores

SHORTEST_S = 0.02
"""Of one timing: a pass that is shorter is repeated within it."""


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def best_seconds(run: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """Seconds of the fastest pass of `run`, measured for about `budget_s`, at least three times."""

    def timed(passes: int) -> float:
        synchronise(device)
        began = time.perf_counter()
        for _ in range(passes):
            run()
        synchronise(device)
        return (time.perf_counter() - began) / passes

    timed(1)  # page faults, kernel selection
    passes = max(1, math.ceil(SHORTEST_S / timed(1)))
    best, spent, count = math.inf, 0.0, 0
    while count < 3 or spent < budget_s:
        seconds = timed(passes)
        best, spent, count = min(best, seconds), spent + seconds * passes, count + 1
    return best


@torch.inference_mode()
def copy_rate(device: torch.device, size: int, budget_s: float) -> float:
    """Bytes per second of a copy of `size` bytes, read and written ones counted; the cache lines
    that a write reads first are not (the convention of STREAM, McCalpin 1995)."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / best_seconds(lambda: target.copy_(source), device, budget_s)


@torch.inference_mode()
def read_rate(device: torch.device, size: int, budget_s: float) -> float:
    """Bytes per second of a sum over `size` bytes of float32."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    return source.nbytes / best_seconds(lambda: source.sum(), device, budget_s)


@torch.inference_mode()
def matmul_rate(device: torch.device, dtype: torch.dtype, size: int, budget_s: float) -> float:
    """FLOPs per second of (size, size) @ (size, size): 2 * size^3 each."""
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(a)
    return 2 * size**3 / best_seconds(lambda: torch.matmul(a, b, out=out), device, budget_s)


def measure(device: torch.device, dtype: torch.dtype, plan: Plan) -> Machine:
    """The machine as `device` and `dtype` see it. `plan.copy_bytes` is the size on a CPU; a GPU,
    whose caches and rates are larger, gets four times as much and larger matrices."""
    on_gpu = device.type == "cuda"
    # Small enough for a second on a slow core, large enough for a CPU's best rate.
    matrix = 8192 if on_gpu else min(2048, 64 * math.isqrt(plan.copy_bytes >> 18))
    size = plan.copy_bytes * (4 if on_gpu else 1)
    budget_s = plan.ceiling_s
    return Machine(
        copy_bytes_per_s=copy_rate(device, size, budget_s),
        read_bytes_per_s=read_rate(device, size, budget_s),
        matmul_flops_per_s=matmul_rate(device, dtype, max(64, matrix), budget_s),
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        processor=torch.cuda.get_device_name(device) if on_gpu else _processor(),
        cores=cores(),
        threads=torch.get_num_threads(),
        omp_wait_policy=threads.wait_policy(),
        torch=torch.__version__,
        rounds=plan.repeats,
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
