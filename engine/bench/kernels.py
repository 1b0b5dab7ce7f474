"""What a decode step of one row is made of, by PyTorch's profiler: which kernels, how often, how
long. Where the step is short of the card's bandwidth, this says why."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from engine.bench.plan import Tell
from engine.bench.report import Kernel
from engine.bench.suite import any_tokens, ours
from engine.generate import Engine

STEPS = 16

SHOWN = 12


def kernels_of_a_step(engine: Engine, prompt_tokens: int, tell: Tell) -> tuple[Kernel, ...]:
    """The `SHOWN` longest, and the rest together as one; on a CPU, operations. Empty, with a line
    that says why, where nothing can be profiled."""
    on_gpu = engine.model.device.type == "cuda"
    prompt = any_tokens(prompt_tokens, engine.model.shape.vocab_size)
    # The first columns are captured; the last one runs nothing behind it.
    columns = ours(engine)(prompt, 1, STEPS + 6)
    for _ in range(4):
        next(columns)
    activities = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    try:
        with profile(activities=activities) as found:
            for _ in range(STEPS):
                next(columns)
            if on_gpu:
                torch.cuda.synchronize(engine.model.device)
        events = found.events() or []
    except Exception as error:  # the profiler is not what is measured here
        tell(f"No profile of a step: {(str(error).splitlines() or [''])[0]}")
        return ()
    finally:
        for _ in columns:
            pass
    runs: dict[str, int] = defaultdict(int)
    micros: dict[str, float] = defaultdict(float)
    for event in events:
        if (event.device_type == DeviceType.CUDA) == on_gpu:
            runs[event.name] += 1
            took = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
            micros[event.name] += took
    ranked = sorted(runs, key=lambda name: -micros[name])
    named = [Kernel(name, runs[name] / STEPS, micros[name] / STEPS / 1e6) for name in ranked]
    rest = named[SHOWN:]
    if rest:
        others = Kernel(
            f"{len(rest)} others", sum(k.runs for k in rest), sum(k.seconds for k in rest)
        )
        named = [*named[:SHOWN], others]
    return tuple(named)
