"""What stands between the matrix products of a network: norms, rotations, activations.

    pieces = select(device, dtype)          # once, when a model is built
    x, normed = pieces.add_norm(x, attended, weight, eps)

On a CPU these are a few of PyTorch's operations each, or one pass over memory where there is a
native library. On a GPU a decode step consists of hundreds
of kernels that each have next to nothing to do; there every piece is one kernel of
`engine/models/triton_kernels.py`, where Triton (which comes with PyTorch's CUDA builds) compiles it
and it computes a small case as PyTorch does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.native import library
from engine.native.library import Native
from engine.native.pieces import NativePieces


class AddNorm(Protocol):
    def __call__(
        self, x: Tensor, delta: Tensor, weight: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """(..., C) twice -> x + delta, and its RMS norm."""
        ...


class RotateHalves(Protocol):
    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float
    ) -> Tensor:
        """x * cos + roll(x, D / 2) * sin, and the RMS norm of that over the head, in float32:
        x (B, T, heads, D); cos and sin (T, 1, D) or (B, T, 1, D); weight (D,) -> (B, T, heads, D)
        in x's dtype."""
        ...


class RotatePairs(Protocol):
    def __call__(self, x: Tensor, table: Tensor) -> Tensor:
        """Adjacent pairs times complex numbers, in float32: x (B, T, heads, D); complex64 table
        (T, 1, D / 2) or (B, T, 1, D / 2) -> x turned, in its dtype."""
        ...


class Gated(Protocol):
    def __call__(self, gate_up: Tensor, activation: str) -> Tensor:
        """(..., 2 * H) -> activation(first half) * second half, (..., H)."""
        ...


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
}


@dataclass(frozen=True)
class Pieces:
    """One way to compute them; `note` says why it is not a faster one."""

    name: str
    add_norm: AddNorm
    rotate_halves: RotateHalves
    rotate_pairs: RotatePairs
    gated: Gated
    squared_relu: Callable[[Tensor], Tensor]
    note: str = ""


def _add_norm(x: Tensor, delta: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    x = x + delta
    return x, F.rms_norm(x, (x.size(-1),), weight, eps)


def _rotate_halves(
    x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float
) -> Tensor:
    dim = x.size(-1)
    values = x.float()
    values = torch.addcmul(values * cos, values.roll(dim // 2, -1), sin)
    return F.rms_norm(values, (dim,), weight, eps).to(x.dtype)


def _rotate_pairs(x: Tensor, table: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(-2).to(x.dtype)


def _gated(gate_up: Tensor, activation: str) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return ACTIVATIONS[activation](gate) * up


def _squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()


PLAIN = Pieces("torch", _add_norm, _rotate_halves, _rotate_pairs, _gated, _squared_relu)

TOLERANCE = 0.04
"""What two ways may differ by for values around 1, where each rounds to bfloat16 in its own
places."""


@functools.cache
def select(device: torch.device, dtype: torch.dtype) -> Pieces:
    """The fastest way for tensors of `dtype` on `device`."""
    if device.type == "cpu" and dtype == torch.bfloat16 and (native := library.load()):
        return compiled(native)
    if device.type != "cuda" or dtype.itemsize > 4:
        return PLAIN
    return fused(device, dtype)


def compiled(native: Native) -> Pieces:
    """Those of `engine/native/pieces.c`, for the widths that it takes."""
    own = NativePieces(native)

    def add_norm(
        x: Tensor, delta: Tensor, weight: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        way = own.add_norm if own.fits(x.size(-1)) else _add_norm
        return way(x, delta, weight, eps)

    def gated(gate_up: Tensor, activation: str) -> Tensor:
        return (own.gated if own.fits(gate_up.size(-1) // 2) else _gated)(gate_up, activation)

    return replace(PLAIN, name="native", add_norm=add_norm, gated=gated)


def fused(device: torch.device, dtype: torch.dtype) -> Pieces:
    """Triton's, or PyTorch's with the reason."""

    def plain(reason: str) -> Pieces:
        return replace(PLAIN, note=reason)

    try:
        from engine.models import triton_kernels as kernels
    except ImportError as error:
        return plain(f"no fused kernels: {error.name or error} is not installed")
    pieces = Pieces(
        "triton",
        kernels.add_norm,
        kernels.rotate_halves,
        kernels.rotate_pairs,
        kernels.gated,
        kernels.squared_relu,
    )
    try:
        wrong = differing(pieces, device, dtype)
    except Exception as error:  # compilers fail in many ways
        first = (str(error).splitlines() or [repr(error)])[0][:200]
        return plain(f"no fused kernels: {first}")
    return plain(f"no fused kernels: {wrong} comes out wrong") if wrong else pieces


@torch.inference_mode()
def differing(pieces: Pieces, device: torch.device, dtype: torch.dtype) -> str:
    """The first piece that differs from PyTorch's in a small case, or ""."""
    random = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(device, dtype)

    def table(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(device)

    heads, per_row = noise(3, 2, 7, 40)[:, :, :5], noise(3, 1, 4, 64)
    gate_up, wide = noise(2, 3, 2 * 300), noise(2, 3, 200)
    turns = torch.view_as_complex(table(2, 1, 20, 2)), torch.view_as_complex(table(3, 1, 1, 32, 2))

    def cases(way: Pieces) -> dict[str, list[Tensor]]:
        return {
            "add_norm": [
                *way.add_norm(wide, wide.flip(0), None, 1e-5),
                *way.add_norm(wide, wide.flip(1), wide[0, 0], 1e-5),
            ],
            "rotate_halves": [
                way.rotate_halves(heads, cos, sin, None, 1e-6),
                way.rotate_halves(per_row, row_cos, row_sin, row_sin[0, 0, 0], 1e-6),
            ],
            "rotate_pairs": [
                way.rotate_pairs(heads, turns[0]),
                way.rotate_pairs(per_row, turns[1]),
            ],
            "gated": [way.gated(gate_up, activation) for activation in ACTIVATIONS],
            "squared_relu": [way.squared_relu(wide)],
        }

    cos, sin = table(2, 1, 40), table(2, 1, 40)
    row_cos, row_sin = table(3, 1, 1, 64), table(3, 1, 1, 64)
    ours, theirs = cases(pieces), cases(PLAIN)
    for name, expected in theirs.items():
        for a, b in zip(ours[name], expected, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return name
            if not torch.allclose(a.float(), b.float(), atol=TOLERANCE, rtol=TOLERANCE):
                return name
    return ""
