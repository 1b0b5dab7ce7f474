"""The pieces of `engine/models/pieces.py` as one GPU kernel each, in Triton (Tillet et al. 2019).

All of them are bound by memory or, in a decode step, by their mere number: a program takes one row
(a token, or one head of it), loads it, computes in float32 and stores it. Sums of residuals are
rounded as PyTorch rounds them; what is computed behind them is rounded once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Values that a program of an elementwise kernel takes."""


@triton.jit
def _add_norm(
    x, delta, weight, total, normed, width, eps, WEIGHTED: tl.constexpr, ROW: tl.constexpr
):
    place = tl.arange(0, ROW)
    inside = place < width
    at = tl.program_id(0).to(tl.int64) * width + place
    added = tl.load(x + at, inside, 0.0).to(tl.float32) + tl.load(delta + at, inside, 0.0).to(
        tl.float32
    )
    rounded = added.to(total.dtype.element_ty)
    tl.store(total + at, rounded, inside)
    values = rounded.to(tl.float32)
    values = values / tl.sqrt(tl.sum(values * values) / width + eps)
    if WEIGHTED:
        values = values * tl.load(weight + place, inside, 0.0).to(tl.float32)
    tl.store(normed + at, values.to(normed.dtype.element_ty), inside)


def add_norm(x: Tensor, delta: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    x, delta = x.contiguous(), delta.contiguous()
    total, normed = torch.empty_like(x), torch.empty_like(x)
    width = x.size(-1)
    _add_norm[(x.numel() // width,)](
        x,
        delta,
        x if weight is None else weight,
        total,
        normed,
        width,
        eps,
        WEIGHTED=weight is not None,
        ROW=triton.next_power_of_2(width),
    )
    return total, normed


@triton.jit
def _rotate_halves(
    x,
    cos,
    sin,
    weight,
    out,
    time,
    heads,
    dim,
    batch_stride,
    time_stride,
    head_stride,
    eps,
    PER_ROW: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ROW: tl.constexpr,
):
    head = tl.program_id(0).to(tl.int64)
    token = head // heads
    place = tl.arange(0, ROW)
    inside = place < dim
    base = (
        x + token // time * batch_stride + token % time * time_stride + head % heads * head_stride
    )
    turn = (token if PER_ROW else token % time) * dim + place
    value = tl.load(base + place, inside, 0.0).to(tl.float32)
    other = tl.load(base + (place + dim // 2) % dim, inside, 0.0).to(tl.float32)
    value = value * tl.load(cos + turn, inside, 0.0) + other * tl.load(sin + turn, inside, 0.0)
    value = value / tl.sqrt(tl.sum(value * value) / dim + eps)
    if WEIGHTED:
        value = value * tl.load(weight + place, inside, 0.0)
    tl.store(out + head * dim + place, value.to(out.dtype.element_ty), inside)


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    batch, time, heads, dim = x.shape
    assert x.stride(-1) == 1, "the values of a head lie side by side"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rotate_halves[(batch * time * heads,)](
        x,
        cos.contiguous(),
        sin.contiguous(),
        cos if weight is None else weight,
        out,
        time,
        heads,
        dim,
        x.stride(0),
        x.stride(1),
        x.stride(2),
        eps,
        PER_ROW=cos.dim() == 4,
        WEIGHTED=weight is not None,
        ROW=triton.next_power_of_2(dim),
    )
    return out


@triton.jit
def _rotate_pairs(
    x,
    table,
    out,
    time,
    heads,
    dim,
    batch_stride,
    time_stride,
    head_stride,
    PER_ROW: tl.constexpr,
    ROW: tl.constexpr,
):
    head = tl.program_id(0).to(tl.int64)
    token = head // heads
    even = 2 * tl.arange(0, ROW)
    inside = even < dim
    base = (
        x + token // time * batch_stride + token % time * time_stride + head % heads * head_stride
    )
    turn = table + (token if PER_ROW else token % time) * dim + even
    real = tl.load(base + even, inside, 0.0).to(tl.float32)
    imaginary = tl.load(base + even + 1, inside, 0.0).to(tl.float32)
    cos, sin = tl.load(turn, inside, 0.0), tl.load(turn + 1, inside, 0.0)
    at = out + head * dim + even
    tl.store(at, (real * cos - imaginary * sin).to(out.dtype.element_ty), inside)
    tl.store(at + 1, (real * sin + imaginary * cos).to(out.dtype.element_ty), inside)


def rotate_pairs(x: Tensor, table: Tensor) -> Tensor:
    batch, time, heads, dim = x.shape
    assert x.stride(-1) == 1, "the values of a head lie side by side"
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rotate_pairs[(batch * time * heads,)](
        x,
        torch.view_as_real(table).contiguous(),
        out,
        time,
        heads,
        dim,
        x.stride(0),
        x.stride(1),
        x.stride(2),
        PER_ROW=table.dim() == 4,
        ROW=triton.next_power_of_2(dim // 2),
    )
    return out


@triton.jit
def _gated(gate_up, out, width, SILU: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = place < width
    gate = tl.load(gate_up + row * 2 * width + place, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + place, inside, 0.0).to(tl.float32)
    # gelu by tanh(u) = 2 sigmoid(2 u) - 1
    slope = gate if SILU else 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    value = gate * tl.sigmoid(slope) * up
    tl.store(out + row * width + place, value.to(out.dtype.element_ty), inside)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    gate_up = gate_up.contiguous()
    width = gate_up.size(-1) // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], width)
    grid = (out.numel() // width, triton.cdiv(width, BLOCK))
    _gated[grid](gate_up, out, width, SILU=activation == "silu", SIZE=BLOCK)
    return out


@triton.jit
def _squared_relu(x, out, count, SIZE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = place < count
    value = tl.maximum(tl.load(x + place, inside, 0.0).to(tl.float32), 0.0)
    tl.store(out + place, (value * value).to(out.dtype.element_ty), inside)


def squared_relu(x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    _squared_relu[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), SIZE=BLOCK)
    return out
