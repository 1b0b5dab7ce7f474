"""The pieces between the matrix products, as one kernel each. Triton's interpreter stands for a
GPU where Triton is installed; PyTorch's builds for a CPU come without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import engine.models
from engine.bench.random_models import random_llama
from engine.models import pieces
from engine.models.base import Shape
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS
from engine.models.pieces import PLAIN, differing, fused, select
from engine.static_cache import StaticCache
from tests.engine.nanochat_noise import noise, small_config

CPU = torch.device("cpu")
KERNELS = "engine.models.triton_kernels"


@pytest.fixture
def interpreted(monkeypatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # read when triton is imported
    pytest.importorskip("triton")
    forget_kernels()
    yield
    forget_kernels()


def forget_kernels() -> None:
    """What has been imported is bound to the package, too."""
    sys.modules.pop(KERNELS, None)
    vars(engine.models).pop("triton_kernels", None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernels_compute_what_pytorch_computes(interpreted, dtype):
    found = fused(CPU, dtype)
    assert (found.name, found.note) == ("triton", "")


def test_without_triton_it_is_pytorch_and_says_so(monkeypatch):
    forget_kernels()
    monkeypatch.setitem(sys.modules, "triton", None)
    without = fused(CPU, torch.bfloat16)
    assert without.name == "torch"
    assert without.note == "no fused kernels: triton is not installed"
    assert without.add_norm is PLAIN.add_norm


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("add_norm", lambda x, delta, weight, eps: PLAIN.add_norm(x, delta, None, eps)),
        ("rotate_halves", lambda x, cos, sin, *how: PLAIN.rotate_halves(x, cos, -sin, *how)),
        ("rotate_pairs", lambda x, table: PLAIN.rotate_pairs(x, table.conj())),
        ("gated", lambda gate_up, activation: PLAIN.gated(gate_up, "silu")),
        ("squared_relu", torch.square),
    ],
)
def test_a_piece_that_computes_something_else_is_found(name, wrong):
    assert differing(replace(PLAIN, **{name: wrong}), CPU, torch.bfloat16) == name
    assert differing(PLAIN, CPU, torch.bfloat16) == ""


def test_a_kernel_that_does_not_compile_costs_nothing_but_speed(interpreted, monkeypatch):
    def broken(*given):
        raise RuntimeError("PTX assembly aborted due to errors\nlong log")

    monkeypatch.setattr(pieces, "differing", broken)
    assert fused(CPU, torch.bfloat16).note == (
        "no fused kernels: PTX assembly aborted due to errors"
    )


def test_a_cpu_takes_pytorchs_operations_where_nothing_is_compiled(monkeypatch):
    assert select(CPU, torch.float32) is PLAIN
    monkeypatch.setenv("CHAT_TUI_NATIVE", "0")
    assert select.__wrapped__(CPU, torch.bfloat16) is PLAIN


@pytest.mark.parametrize("kind", ["llama", "V0", "V6"])
def test_a_network_of_kernels_computes_what_it_did(interpreted, kind):
    if kind == "llama":
        shape = Shape(2, 4, 2, 16, 64, 96, 64)
        model = random_llama(shape, CPU, torch.float32, window=5)
    else:
        config = small_config(kind, n_layer=2, window_pattern="L")
        model = NanochatModel(config, VARIANTS[kind], noise(config, kind))

    def logits() -> torch.Tensor:
        cache = StaticCache(model.shape, 2, 32, dtype=model.dtype, device=CPU)
        prompt = model.forward(torch.tensor([[5, 6, 7, 8, 9]]), cache, all_positions=True)
        cache.spread(2)
        step = model.forward(torch.tensor([[3], [4]]), cache)
        return torch.cat([prompt[0], step])

    expected = logits()
    model.pieces = fused(CPU, torch.float32)
    assert model.pieces.name == "triton"
    torch.testing.assert_close(logits(), expected, atol=1e-4, rtol=1e-4)
