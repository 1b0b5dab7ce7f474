"""The pieces that networks are made of: weights in 4, 8 or 16/32 bits, norms, rotary positions.

A linear layer keeps its weights in every form that some batch width runs fastest in. Where there
is a native library (`engine/native`) its blocks are one of them, elsewhere those of PyTorch's
integer kernels; `MOST_ROWS`, `INT4_ROWS` and `INT8_ROWS` say up to how many rows they win over
bf16. Rotary positions turn adjacent pairs (2i, 2i+1) by complex multiplication, which is one
kernel: loaders of checkpoints that pair (i, i + D/2) reorder the rows of their q and k weights
once, which changes no attention score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kv_cache import Positions
from engine.native import library
from engine.native.packing import GROUP, pack_4bit, pack_8bit
from engine.native.program import MOST_ROWS, Matrix, multiply

INT4_ROWS = 20
"""Of PyTorch's kernel. All 120 products of SmolLM2-135M in turn, as a step runs them, each matrix
cold in the cache (AVX-512, 2 threads), milliseconds in 4 bits and in bf16: 1 row 4 and 16, 8 rows
11 and 20, 16 rows 22 and 25, 20 rows 27 and 26, 24 rows 32 and 29, 512 rows 665 and 329. One matrix
over and over says 6 rows instead: it stays in the cache then."""

INT8_ROWS = 5
"""Of PyTorch's kernel. The output head (49152 x 576), milliseconds in 8 bits and in bf16: 1 row 1.9
and 3.7, 4 rows 3.1 and 4.0, 5 rows 3.7 and 4.1, 6 rows 4.6 and 5.6 (another run: 5.7 and 5.1), 8
rows 4.9 and 4.2, 16 rows 9.7 and 5.4."""

_CHUNK = 1 << 20
"""Weights that are brought to 8 bits at a time."""


class Linear(Protocol):
    """x (..., in) -> (..., out)."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def weight_bytes(self) -> int:
        """Bytes that a product with one row reads."""
        ...

    def parameters(self) -> int: ...

    def matrices(self) -> tuple[Matrix, ...]:
        """The same for a native step, outputs side by side; empty where it cannot compute it."""
        ...


@dataclass(frozen=True)
class DenseLinear:
    weight: Tensor
    """(out, in)"""
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def weight_bytes(self) -> int:
        return self.weight.nbytes

    def parameters(self) -> int:
        return self.weight.numel() + (0 if self.bias is None else self.bias.numel())

    def matrices(self) -> tuple[Matrix, ...]:
        return Matrix.dense(self.weight, self.bias)


@dataclass(frozen=True)
class Biased:
    """A product whose kernel takes no bias, and a bias."""

    linear: Linear
    bias: Tensor
    """(out,)"""

    def __call__(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.bias

    def weight_bytes(self) -> int:
        return self.linear.weight_bytes() + self.bias.nbytes

    def parameters(self) -> int:
        return self.linear.parameters() + self.bias.numel()

    def matrices(self) -> tuple[Matrix, ...]:
        at = 0
        found: list[Matrix] = []
        for matrix in self.linear.matrices():
            found += matrix.biased(self.bias[at : at + matrix.out])
            at += matrix.out
        return tuple(found)


@dataclass(frozen=True)
class Stacked:
    """Products of the one input whose weights are in different forms, their outputs side by
    side."""

    parts: tuple[Linear, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)

    def weight_bytes(self) -> int:
        return sum(part.weight_bytes() for part in self.parts)

    def parameters(self) -> int:
        return sum(part.parameters() for part in self.parts)

    def matrices(self) -> tuple[Matrix, ...]:
        parts = [part.matrices() for part in self.parts]
        return tuple(matrix for part in parts for matrix in part) if all(parts) else ()


@dataclass(frozen=True)
class Int4Linear:
    """4-bit weights in groups of 32 on a CPU, w = scale * (code - 8) + zero, with a bf16 copy for
    wide inputs."""

    packed: Tensor
    scales_and_zeros: Tensor
    """bf16 (in / 32, out, 2)"""
    dense: Tensor | None
    """bf16 (out, in); None where memory is short: then wide inputs take up to 4 times as long"""

    @classmethod
    def pack(
        cls, codes: Tensor, scales: Tensor, minimums: Tensor, keep_dense: bool = True
    ) -> Int4Linear:
        """From codes 0..15 (out, in) and float32 scales and minimums (out, in / 32): w = scale *
        code + minimum."""
        zeros = minimums + 8 * scales
        return cls(
            torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1),
            torch.stack((scales, zeros), -1).transpose(0, 1).to(torch.bfloat16).contiguous(),
            _dense(codes, scales, minimums) if keep_dense else None,
        )

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.size(-1)
        if rows > INT4_ROWS and self.dense is not None:
            return F.linear(x, self.dense)
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.view(rows, -1), self.packed, GROUP, self.scales_and_zeros
        )
        return out.view(*x.shape[:-1], -1)

    def weight_bytes(self) -> int:
        return self.packed.nbytes + self.scales_and_zeros.nbytes

    def parameters(self) -> int:
        # Two codes in a byte.
        return 2 * self.packed.numel()

    def matrices(self) -> tuple[Matrix, ...]:
        return ()


@dataclass(frozen=True)
class Int8Linear:
    """8-bit weights with one scale per output on a CPU, w = scale * code, with a bf16 copy for wide
    inputs."""

    codes: Tensor
    """int8 (out, in)"""
    scales: Tensor
    """bf16 (out,)"""
    dense: Tensor
    """bf16 (out, in)"""

    @classmethod
    def quantise(cls, weight: Tensor) -> Int8Linear:
        """From float weights (out, in): the largest magnitude of each row becomes 127."""
        scales = weight.abs().amax(1).clamp_min(1e-12) / 127
        # The kernel multiplies by the bf16 scale, so the codes are rounded against that one.
        scales = scales.to(torch.bfloat16)
        codes = (weight / scales.float()[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        return cls(codes, scales, weight.to(torch.bfloat16))

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.size(-1)
        if rows > INT8_ROWS:
            return F.linear(x, self.dense)
        out = torch._weight_int8pack_mm(x.view(rows, -1), self.codes, self.scales)
        return out.view(*x.shape[:-1], -1)

    def weight_bytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    def parameters(self) -> int:
        return self.dense.numel()

    def matrices(self) -> tuple[Matrix, ...]:
        return ()


@dataclass(frozen=True)
class PackedLinear:
    """4- or 8-bit weights in groups of 32 as `engine/native` reads them, with a bf16 copy for wide
    inputs."""

    bits: int
    out: int
    blocks: Tensor
    """uint8, of `engine/native/packing.py`"""
    dense: Tensor | None
    """bf16 (out, in); None where memory is short: then wide inputs take twice as long"""

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.size(-1)
        (matrix,) = self.matrices()
        if rows > MOST_ROWS[matrix.type] and self.dense is not None:
            return F.linear(x, self.dense)
        native = library.load()
        assert native is not None, "blocks are packed for the library that reads them"
        out = multiply(native, matrix, x.reshape(rows, -1).float())
        return out.to(x.dtype).view(*x.shape[:-1], -1)

    def weight_bytes(self) -> int:
        return self.blocks.nbytes

    def parameters(self) -> int:
        return self.out * self.blocks.size(1) * GROUP

    def matrices(self) -> tuple[Matrix, ...]:
        return (Matrix.packed(self.bits, self.blocks, self.out),)


def _dense(codes: Tensor, scales: Tensor, minimums: Tensor) -> Tensor:
    whole = codes.view(*scales.shape, GROUP) * scales[..., None] + minimums[..., None]
    return whole.view(codes.shape).to(torch.bfloat16)


def four_bit(codes: Tensor, scales: Tensor, minimums: Tensor, keep_dense: bool = True) -> Linear:
    """From codes 0..15 (out, in) and float32 scales and minimums (out, in / 32): w = scale * code +
    minimum."""
    if not (lanes := library.lanes()):
        return Int4Linear.pack(codes, scales, minimums, keep_dense)
    blocks = pack_4bit(codes, scales, minimums, lanes)
    dense = _dense(codes, scales, minimums) if keep_dense else None
    return PackedLinear(4, len(codes), blocks, dense)


def eight_bit(dense: Tensor) -> Linear:
    """From bf16 weights (out, in), which are kept beside."""
    lanes = library.lanes()
    step = max(1, _CHUNK // dense.size(1) // 16) * 16
    parts = [dense[at : at + step].float() for at in range(0, len(dense), step)]
    if lanes and dense.size(1) % GROUP == 0:
        blocks = torch.cat([pack_8bit(part, lanes) for part in parts])
        return PackedLinear(8, len(dense), blocks, dense)
    quantised = [Int8Linear.quantise(part) for part in parts]
    codes = torch.cat([part.codes for part in quantised])
    return Int8Linear(codes, torch.cat([part.scales for part in quantised]), dense)


class Rotary:
    """By how much adjacent pairs of each head turn at a position: position / base^(2i / D)."""

    def __init__(self, inverse_frequencies: Tensor, magnitude: float = 1.0) -> None:
        """`inverse_frequencies`: float32 (D / 2,), radians per position. `magnitude`: what is
        turned is also multiplied by it."""
        self.inverse_frequencies = inverse_frequencies
        self.magnitude = magnitude
        self._table = torch.empty(
            0, len(inverse_frequencies), dtype=torch.complex64, device=inverse_frequencies.device
        )

    def table(self, positions: Positions) -> Tensor:
        """cis(angle) of each position, complex64 (T, 1, D / 2) or (B, T, 1, D / 2)."""
        if isinstance(positions, Tensor):
            # Not looked up: a captured step would hold on to a table that another has replaced.
            return self._turned(positions)[:, :, None]
        if positions.stop > len(self._table):
            self._table = self._turned(
                torch.arange(max(512, 2 * positions.stop), device=self.inverse_frequencies.device)
            )
        return self._table[positions, None]

    def _turned(self, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * self.inverse_frequencies
        return torch.polar(torch.full_like(angles, self.magnitude), angles)


def pair_up(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder the output rows of a q or k weight (heads * D, ...) from pairs (i, i + D/2) to
    adjacent pairs."""
    halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def part_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Undo `pair_up`."""
    pairs = weight.view(-1, head_dim // 2, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
