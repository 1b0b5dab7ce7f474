"""The number formats inside GGUF files: how large their blocks are and how to unpack them.

GGUF stores a matrix as rows of *blocks*: 32 or 256 weights that share scales. Every format read
here says the same thing in other bits: a group of weights is

    weight = scale * code  (+ minimum)

so each has one small *unpacker*, from its bytes to codes, scales and minimums, and everything else
follows from that: `dequantize` multiplies out to float32, `split_4bit` and `split_8bit` hand the
codes on to kernels that compute with them as they are. Only numpy is imported. The layouts are
ggml's (`ggml-common.h`, `dequantize_row_*` in `ggml-quants.c`); values are equal, bit for bit, to
those of the `gguf` package.

    weights = dequantize(data, "Q6_K", (576, 1536))         # float32 (576, 1536)
    codes, scales, minimums = split_4bit(data, "Q4_1", (576, 1536))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

GROUP = 32
"""Weights that share a scale in what `split_4bit` and `split_8bit` return."""


class Format(NamedTuple):
    """A tensor type of GGUF: blocks of `weights` weights in `size` bytes."""

    name: str
    weights: int
    size: int


FORMATS: dict[int, Format] = {
    number: Format(name, weights, size)
    for number, name, weights, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}
"""Every type a file may hold, by its number there. Those without an unpacker below are known by
size only."""

_SIZES = {format.name: format for format in FORMATS.values()}


class Groups(NamedTuple):
    """Unpacked blocks: weight = scales[..., None] * codes (+ minimums[..., None]).

    Attributes:
        codes: (blocks, groups per block, weights per group), uint8 or int8.
        scales: (blocks, groups per block), float32.
        minimums: like `scales`; None where the codes are signed and zero is code 0.
    """

    codes: npt.NDArray[Any]
    scales: Floats
    minimums: Floats | None


class Codes4(NamedTuple):
    """A matrix in 4 bits: weight[o, i] = scales[o, i // 32] * codes[o, i] + minimums[o, i // 32].

    Attributes:
        codes: uint8 (out, in), 0..15.
        scales, minimums: float32 (out, in // 32).
    """

    codes: Bytes
    scales: Floats
    minimums: Floats


class Codes8(NamedTuple):
    """A matrix in 8 bits: weight[o, i] = scales[o, i // 32] * codes[o, i].

    Attributes:
        codes: int8 (out, in).
        scales: float32 (out, in // 32).
    """

    codes: npt.NDArray[np.int8]
    scales: Floats


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block, as float32 (blocks, 1)."""
    halves: npt.NDArray[np.float16] = blocks[:, start : start + 2].view("<f2")
    return halves.astype(np.float32)


def _planes(packed: Bytes, bits: int) -> Bytes:
    """Fields of `bits` bits, lowest first: bytes (..., n) -> (..., 8 / bits, n).

    Works on 8 bytes at a time: numpy's loop over a run of 16 bytes costs more than the work in it
    (4 times, measured).
    """
    words = np.ascontiguousarray(packed).view(np.uint64)
    mask = np.uint64(int.from_bytes(bytes([(1 << bits) - 1]) * 8, "little"))
    planes = np.empty((*words.shape[:-1], 8 // bits, words.shape[-1]), np.uint64)
    for plane in range(8 // bits):
        planes[..., plane, :] = (words >> np.uint64(plane * bits)) & mask
    return planes.view(np.uint8)


def _q4_0(blocks: Bytes) -> Groups:
    scales = _half(blocks, 0)
    codes = _planes(blocks[:, 2:], 4).reshape(-1, 1, 32)
    return Groups(codes, scales, scales * np.float32(-8))


def _q4_1(blocks: Bytes) -> Groups:
    codes = _planes(blocks[:, 4:], 4).reshape(-1, 1, 32)
    return Groups(codes, _half(blocks, 0), _half(blocks, 2))


def _fifth_bits(blocks: Bytes, start: int) -> Bytes:
    """32 bits at byte `start`, one per weight, each as 0 or 16: (blocks, 1, 32)."""
    bits = np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little")
    return np.asarray(bits << np.uint8(4)).reshape(-1, 1, 32)


def _q5_0(blocks: Bytes) -> Groups:
    scales = _half(blocks, 0)
    codes = _planes(blocks[:, 6:], 4).reshape(-1, 1, 32) | _fifth_bits(blocks, 2)
    return Groups(codes, scales, scales * np.float32(-16))


def _q5_1(blocks: Bytes) -> Groups:
    codes = _planes(blocks[:, 8:], 4).reshape(-1, 1, 32) | _fifth_bits(blocks, 4)
    return Groups(codes, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Bytes) -> Groups:
    return Groups(blocks[:, 2:].view(np.int8).reshape(-1, 1, 32), _half(blocks, 0), None)


_IQ4_NL_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)


def _iq4_nl(blocks: Bytes) -> Groups:
    """Not in steps but in 16 uneven levels. Stands in for Q2_K and Q3_K where rows are no multiple
    of 256."""
    codes = _IQ4_NL_LEVELS[_planes(blocks[:, 2:], 4)].reshape(-1, 1, 32)
    return Groups(codes, _half(blocks, 0), None)


def _q2_k(blocks: Bytes) -> Groups:
    packed = blocks[:, :16]
    codes = _planes(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scales = _half(blocks, 80) * (packed & np.uint8(15))
    minimums = _half(blocks, 82) * (packed >> np.uint8(4))
    return Groups(codes, scales, -minimums)


def _q3_k(blocks: Bytes) -> Groups:
    low = _planes(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    # A set bit in the mask means that 4 is *not* subtracted.
    high = _planes(blocks[:, :32], 1).reshape(-1, 16, 16)
    codes = (low | (high << np.uint8(2))).view(np.int8) - np.int8(4)
    # Sixteen 6-bit scales: their low halves in bytes 0..7, their high pairs of bits in bytes 8..11.
    packed = blocks[:, 96:108]
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    low4 = _planes(packed[:, :8], 4).reshape(-1, 16)
    top2 = ((packed[:, None, 8:] >> shifts) & np.uint8(3)).reshape(-1, 16)
    steps = (low4 | (top2 << np.uint8(4))).view(np.int8) - np.int8(32)
    return Groups(codes, _half(blocks, 108) * steps, None)


def _scales_k4(blocks: Bytes) -> tuple[Floats, Floats]:
    """The scales and minimums of Q4_K and Q5_K, (blocks, 8) each.

    Two float16 and, in 12 bytes, eight 6-bit multiples of each: bytes 0..3 and 4..7 hold the first
    four of both (low 6 bits) and the top 2 bits of the last four; bytes 8..11 the low 4 bits of
    those.
    """
    first, second, last = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    low6, low4, top2 = np.uint8(0x3F), np.uint8(0x0F), np.uint8(0x30)
    two, four = np.uint8(2), np.uint8(4)
    steps = np.concatenate([first & low6, (last & low4) | ((first >> two) & top2)], axis=1)
    floors = np.concatenate([second & low6, (last >> four) | ((second >> two) & top2)], axis=1)
    return _half(blocks, 0) * steps, -(_half(blocks, 2) * floors)


def _q4_k(blocks: Bytes) -> Groups:
    codes = _planes(blocks[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return Groups(codes, *_scales_k4(blocks))


def _q5_k(blocks: Bytes) -> Groups:
    low = _planes(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    high = _planes(blocks[:, 16:48], 1)
    return Groups(low | (high << np.uint8(4)), *_scales_k4(blocks))


def _q6_k(blocks: Bytes) -> Groups:
    low = _planes(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 8, 32)
    high = _planes(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    codes = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return Groups(codes.reshape(-1, 16, 16), scales, None)


_UNPACKERS: dict[str, Callable[[Bytes], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}

_FLOATS: dict[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

SUPPORTED = frozenset(_UNPACKERS) | frozenset(_FLOATS)
"""Formats that `dequantize` knows."""

SPLITS_4BIT = frozenset({"Q4_0", "Q4_1", "Q4_K"})
"""Formats that `split_4bit` knows."""

# Weights unpacked at a time: temporaries stay in the cache, and a large embedding does not need
# its size a second time.
_CHUNK = 1 << 19


def dequantize(data: Bytes, format: str, shape: tuple[int, ...]) -> Floats:
    """Multiply a tensor out.

    Args:
        data: its bytes, one-dimensional and contiguous; as many as `shape` needs.
        format: one of `SUPPORTED`, else ValueError.
        shape: outermost dimension first, as in torch.

    Returns:
        A new float32 array of `shape`.
    """
    if format in _FLOATS:
        stored: npt.NDArray[Any] = data.view(_FLOATS[format])
        if format == "BF16":
            stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return stored.astype(np.float32).reshape(shape)
    blocks, weights = _blocks(data, format)
    unpack = _UNPACKERS[format]
    values = np.empty((len(blocks), weights), np.float32)
    step = _CHUNK // weights
    with _damaged_scales():
        for start in range(0, len(blocks), step):
            codes, scales, minimums = unpack(blocks[start : start + step])
            out = values[start : start + step].reshape(codes.shape)
            np.multiply(codes, scales[..., None], out=out)
            if minimums is not None:
                out += minimums[..., None]
    return values.reshape(shape)


def _damaged_scales() -> np.errstate:
    """Scales that are no numbers are for the caller to see in the values, not for numpy to warn
    of."""
    return np.errstate(over="ignore", invalid="ignore")


def split_4bit(data: Bytes, format: str, shape: tuple[int, ...]) -> Codes4:
    """The codes, scales and minimums of a Q4_0, Q4_1 or Q4_K matrix of `shape` (out, in), without
    loss.

    Raises ValueError for other formats. Arguments as for `dequantize`.
    """
    if format not in SPLITS_4BIT:
        raise ValueError(f"{format} is not a 4-bit format with groups of {GROUP}")
    with _damaged_scales():
        groups = _UNPACKERS[format](_blocks(data, format)[0])
    out, width = shape
    assert groups.minimums is not None
    return Codes4(
        groups.codes.reshape(out, width),
        groups.scales.reshape(out, width // GROUP),
        groups.minimums.reshape(out, width // GROUP),
    )


def split_8bit(data: Bytes, format: str, shape: tuple[int, ...]) -> Codes8:
    """The codes and scales of a Q8_0 matrix of `shape` (out, in), without loss.

    Raises ValueError for other formats. Arguments as for `dequantize`.
    """
    if format != "Q8_0":
        raise ValueError(f"{format} is not an 8-bit format with groups of {GROUP}")
    groups = _q8_0(_blocks(data, format)[0])
    out, width = shape
    return Codes8(
        groups.codes.astype(np.int8).reshape(out, width),
        groups.scales.reshape(out, width // GROUP),
    )


def _blocks(data: Bytes, format: str) -> tuple[Bytes, int]:
    """`data` as (blocks, bytes per block), and the weights in a block."""
    if format not in _UNPACKERS:
        raise ValueError(f"{format} cannot be unpacked")
    _, weights, size = _SIZES[format]
    return data.reshape(-1, size), weights
