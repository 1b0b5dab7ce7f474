"""The engine on a GPU: a nanochat of d20 size with random weights, beside nanochat's own way of
running it.

    report = measure("cuda", tell=print)

`D20` is nanochat's published size (561M parameters) with a context that has room behind a prompt of
2,048. On anything but an NVIDIA GPU it is a dry run: the same cases with `TINY`, launched ahead as
on a GPU but without graphs, which shows that the measurement runs.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.bench.check import checks
from engine.bench.eager import EagerNanochat
from engine.bench.kernels import kernels_of_a_step
from engine.bench.plan import GPU_PLAN, Plan, Tell, silent
from engine.bench.random_models import as_loaded, random_tensors
from engine.bench.report import Goal, Report
from engine.bench.suite import Suite
from engine.errors import EngineError
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS, Config

D20 = Config(
    sequence_len=4096,
    vocab_size=65536,
    n_layer=20,
    n_head=10,
    n_kv_head=10,
    n_embd=1280,
    window_pattern="L",
    vocab_rows=65536,
)

TINY = Config(
    sequence_len=256,
    vocab_size=512,
    n_layer=2,
    n_head=2,
    n_kv_head=2,
    n_embd=32,
    window_pattern="L",
    vocab_rows=512,
)

OVER_EAGER, BANDWIDTH, OVER_ONE_ROW = 3.0, 0.6, 1.1
"""Goals on an H200: tokens/s over those of nanochat's loop, MBU of one row, and first tokens of all
rows over the first token of one."""


def measure(
    device: str | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    config: Config | None = None,
    plan: Plan = GPU_PLAN,
    check: bool = False,
    tell: Tell = silent,
    progress: Tell = silent,
) -> Report:
    """Our loop and nanochat's on the same weights, interleaved; with `check`, behind the checks of
    `engine.bench.check`. `device` None is the GPU.

    Raises:
        EngineError: there is no GPU.
    """
    if device is None and not torch.cuda.is_available():
        raise EngineError("torch finds no GPU here; `--device cpu` is a dry run with a tiny model.")
    where = torch.device(device or "cuda")
    on_gpu = where.type == "cuda"
    config = config or (D20 if on_gpu else TINY)
    if not on_gpu:
        tell(f"A dry run on {where}, with a tiny model: its figures mean nothing.")
    found = tuple(checks(where, tell=tell)) if check else ()
    name = f"random weights, nanochat d{config.n_layer}"
    progress(f"Making {name}.")
    tensors = random_tensors(config, where, dtype)
    model = NanochatModel(config, VARIANTS["V0"], tensors, device=where, dtype=dtype)
    loaded = as_loaded(model, name, family="nanochat", variant="V0")
    reference = EagerNanochat(config, tensors, device=where, dtype=dtype)
    suite = Suite(
        loaded,
        plan,
        tell=tell,
        progress=progress,
        reference=reference.generate,
        decoding="graphs" if on_gpu else "pipelined",
    )
    report = suite.run()
    progress("Looking into a step.")
    kernels = kernels_of_a_step(suite.engine, suite.plan.prompt_tokens[-1], tell)
    return replace(report, goals=goals(report) if on_gpu else (), checks=found, kernels=kernels)


def goals(report: Report) -> tuple[Goal, ...]:
    """What this measurement is for."""
    eager = {(row.rows, row.prompt_tokens): row.tokens_per_s for row in report.eager}
    found = [
        Goal(
            f"tokens/s over nanochat's own loop, {row.rows} row{'s' * (row.rows > 1)}",
            row.tokens_per_s / eager[row.rows, row.prompt_tokens],
            OVER_EAGER,
        )
        for row in report.decode
        if (row.rows, row.prompt_tokens) in eager
    ]
    found += [
        Goal("share of the bandwidth, 1 row", row.mbu, BANDWIDTH)
        for row in report.decode
        if row.rows == 1
    ]
    found += [
        Goal(
            f"first tokens of {row.rows} rows over that of 1",
            row.over_one_row,
            OVER_ONE_ROW,
            at_most=True,
        )
        for row in report.shared_prefill
    ]
    return tuple(found)
