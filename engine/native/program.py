"""The operations of one network's decode step, listed once and run by `step.c`.

    p = Program(native, shape, dtype)
    x, h = p.register(n_embd), p.register(n_embd)
    p.embed(x, embedding)
    p.norm(h, x, weight, eps)
    p.product(LOGITS, h, head.matrices())
    logits = p.run(ids, cache.spans(), turns)          # (B, vocab_size)

A register is a place in each row's activations, in float32. Which operations there are, and what
their fields mean, `step.c` says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from engine.kv_cache import Cache, Span, Spans
from engine.models.base import Shape
from engine.native import library
from engine.native.library import Native
from engine.native.packing import GROUP

LOGITS = -1
"""The register that the step returns."""

_TYPES = {torch.float32: 0, torch.bfloat16: 1}
_INT8, _INT4 = 2, 3

MOST_ROWS = {_INT4: 48, _INT8: 48, _TYPES[torch.bfloat16]: 24, _TYPES[torch.float32]: 64}
"""Up to how many rows a step is taken whose products are of this type; PyTorch is faster above.
Milliseconds of a step after 512 tokens, by PyTorch and native (SmolLM2-135M, one run):

    rows                     1        4        8        16       24       48
    4 bits, head in 8      22   5   28   9   40  18   68  29   88  46  114  98
    bfloat16               34  10   36  12   60  24   60  40   78  59  121 145
    float32                62  19   86  22   80  28  104  47  120  82  170 123
"""


class _Kind(IntEnum):
    PRODUCT = 0
    ATTEND = 1
    EMBED = 2
    NORM = 3
    ROTATE_PAIRS = 4
    ROTATE_HALVES = 5
    GATED = 6
    SQUARED_RELU = 7
    MIX = 8
    VALUE = 9
    CAP = 10


class _Matrix(Structure):
    _fields_ = (
        ("type", c_int32),
        ("out", c_int32),
        ("inputs", c_int32),
        ("weights", c_void_p),
        ("bias", c_void_p),
    )


class _Op(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("kind", "dst", "src", "width", "heads", "index", "flag")),
        ("a", c_float),
        ("b", c_float),
        ("data", c_void_p),
        ("more", c_void_p),
    )


class _Span(Structure):
    _fields_ = (
        ("k", c_void_p),
        ("v", c_void_p),
        *((name, c_int64) for name in ("layer", "row", "position", "head", "length")),
    )


class _Step(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("rows", "threads", "n_head", "n_kv_head", "head_dim")),
        ("kv_type", c_int32),
        ("stride", c_int32),
        ("sums", c_int32),
        ("scale", c_float),
        ("ids", c_void_p),
        ("arena", c_void_p),
        ("logits", c_void_p),
        ("vocab", c_int64),
        ("turns", c_void_p * 4),
        ("partials", c_void_p),
        ("shared", _Span),
        ("own", _Span),
    )


@dataclass(frozen=True)
class Matrix:
    """Weights of a product as `step.c` reads them.

    Attributes:
        type: the number of their type.
        weights: (out, inputs), or blocks of them (`engine/native/packing.py`).
        bias: float32 (out,).
    """

    type: int
    weights: Tensor
    out: int
    inputs: int
    bias: Tensor | None = None

    @classmethod
    def dense(cls, weight: Tensor, bias: Tensor | None = None) -> tuple[Matrix, ...]:
        """Of weights (out, in) and a bias (out,); nothing where `step.c` does not read them."""
        if weight.dtype not in _TYPES or not weight.is_contiguous():
            return ()
        return cls(_TYPES[weight.dtype], weight, *weight.shape).biased(bias)

    @classmethod
    def packed(cls, bits: int, blocks: Tensor, out: int) -> Matrix:
        return cls({8: _INT8, 4: _INT4}[bits], blocks, out, blocks.size(1) * GROUP)

    def biased(self, bias: Tensor | None) -> tuple[Matrix, ...]:
        return (self if bias is None else replace(self, bias=bias.float().contiguous()),)


class UnfitError(Exception):
    """`step.c` cannot compute a network; the message says what is in the way."""


class Program:
    """Made by calling its methods in the order of the operations. What is a tensor there has to be
    contiguous and on the CPU, and is kept alive."""

    def __init__(self, native: Native, shape: Shape, dtype: torch.dtype) -> None:
        """`dtype`: of keys and values. Raises UnfitError."""
        self._native = native
        self._shape = shape
        self._dtype = dtype
        self._ops: list[_Op] = []
        self._array: ctypes.Array[_Op] | None = None
        self._kept: list[object] = []
        self._width = 0
        self._most_inputs = 0
        self._most_rows = max(MOST_ROWS.values())
        if dtype not in _TYPES:
            raise UnfitError(f"keys and values in {str(dtype).removeprefix('torch.')}")
        step = native.lanes * 4 // dtype.itemsize
        if shape.head_dim % step or shape.head_dim > 256:
            raise UnfitError(f"heads of {shape.head_dim}")

    def register(self, width: int) -> int:
        """Room for `width` activations of a row."""
        if width % self._native.lanes:
            raise UnfitError(f"rows of {width}")
        at = self._width
        self._width += width
        return at

    def embed(self, dst: int, table: Tensor, scale: float = 1.0) -> None:
        """dst = scale * table[id]."""
        flag, width = self._type(table), table.size(1)
        self._add(_Kind.EMBED, dst, width=width, flag=flag, a=scale, data=self._at(table))

    def norm(
        self, dst: int, src: int, width: int, weight: Tensor | None, eps: float, heads: int = 1
    ) -> None:
        """dst = RMS norm of src, head by head; weight (heads * width,) or (heads, width)."""
        data = None if weight is None else self._at(weight.float().contiguous())
        self._add(_Kind.NORM, dst, src, width=width, heads=heads, a=eps, data=data)

    def product(self, dst: int, src: int, matrices: Sequence[Matrix], add: bool = False) -> None:
        """dst (+)= the outputs of `matrices`, which have src in common, one behind the other."""
        if not matrices:
            raise UnfitError("a product that only PyTorch computes")
        for matrix in matrices:
            inputs, lanes = matrix.inputs, self._native.lanes
            if inputs % (GROUP if matrix.type == _INT4 else lanes):
                raise UnfitError(f"products of {inputs}")
            self._most_inputs = max(self._most_inputs, inputs)
            self._most_rows = min(self._most_rows, MOST_ROWS[matrix.type])
            bias = None if matrix.bias is None else self._at(matrix.bias)
            held = _Matrix(matrix.type, matrix.out, inputs, self._at(matrix.weights), bias)
            self._kept.append(held)
            self._add(_Kind.PRODUCT, dst, src, flag=int(add), data=ctypes.addressof(held))
            if dst != LOGITS:
                dst += matrix.out
            elif len(matrices) > 1:
                raise UnfitError("an output head in several forms")

    def rotate_pairs(self, dst: int, heads: int, turn: int) -> None:
        """Turn adjacent pairs by `turns[turn]`, complex64 (head_dim / 2,)."""
        width = self._shape.head_dim
        self._add(_Kind.ROTATE_PAIRS, dst, width=width, heads=heads, index=turn)

    def rotate_halves(self, dst: int, heads: int) -> None:
        """x * turns[0] + roll(x, head_dim / 2) * turns[1], float32 (head_dim,) each."""
        self._add(_Kind.ROTATE_HALVES, dst, width=self._shape.head_dim, heads=heads)

    def attend(self, dst: int, qkv: int, layer: int, window: int) -> None:
        """Append k and v, and attend to what is in the cache; `window` -1 is unlimited."""
        self._add(_Kind.ATTEND, dst, qkv, index=layer, flag=window)

    def gated(self, dst: int, src: int, width: int, activation: str) -> None:
        """dst = act(src[:width]) * src[width:]; a key of `engine.models.pieces.ACTIVATIONS`."""
        flag = {"silu": 0, "gelu_tanh": 1}[activation]
        self._add(_Kind.GATED, dst, src, width=width, flag=flag)

    def squared_relu(self, dst: int, src: int, width: int) -> None:
        self._add(_Kind.SQUARED_RELU, dst, src, width=width)

    def mix(self, dst: int, a: float, src: int, b: float, width: int) -> None:
        """dst = a * dst + b * src."""
        self._add(_Kind.MIX, dst, src, width=width, a=a, b=b)

    def value_embedding(
        self, dst: int, src: int, table: Tensor, gates: Tensor, scale: float
    ) -> None:
        """dst += scale * sigmoid(gates (heads, channels) @ src[:channels]) * table[id], by head."""
        heads, channels = gates.shape
        self._add(
            _Kind.VALUE,
            dst,
            src,
            width=table.size(1) // heads,
            heads=heads,
            index=channels,
            flag=self._type(table),
            a=scale,
            data=self._at(table),
            more=self._at(gates.float().contiguous()),
        )

    def cap(self, most: float) -> None:
        """The logits, each, within plus and minus `most`: most * tanh(logit / most)."""
        self._add(_Kind.CAP, 0, a=most)

    def _add(self, kind: _Kind, dst: int, src: int = 0, **fields: int | float | None) -> None:
        self._ops.append(_Op(kind=kind, dst=dst, src=src, **fields))

    def _type(self, table: Tensor) -> int:
        if table.dtype not in _TYPES:
            raise UnfitError(f"a table in {str(table.dtype).removeprefix('torch.')}")
        return _TYPES[table.dtype]

    def _at(self, tensor: Tensor) -> int:
        self._kept.append(tensor)
        return tensor.data_ptr()

    def takes(self, ids: Tensor, cache: Cache) -> Spans | None:
        """What to run with, where the next ids (B, T) of a cache are a step for this program."""
        rows, time = ids.shape
        return cache.spans() if time == 1 and rows <= self._most_rows else None

    def run(
        self,
        ids: Tensor,
        spans: Spans | None,
        turns: Sequence[Tensor] = (),
        given: Mapping[int, Tensor] | None = None,
    ) -> Tensor:
        """One token of each row: ids (B, 1) -> float32 logits (B, vocab_size).

        Args:
            spans: where the keys and values are; None in a program without attention.
            turns: what the rotations of this position read.
            given: registers that hold something already, (B, width).

        Raises:
            IndexError: an id is outside the vocabulary, or the cache has no room; memory that is
                not its own is neither read nor written.
        """
        rows, shape = ids.size(0), self._shape
        ids = ids.long().contiguous()
        if not 0 <= int(ids.min()) <= int(ids.max()) < shape.vocab_size:
            raise IndexError(f"ids outside the vocabulary of {shape.vocab_size}: {ids.tolist()}")
        if spans is not None and spans.own.length >= spans.own.k.size(2):
            raise IndexError(f"no room behind the {spans.own.length} positions of the cache")
        if self._array is None:
            self._array = (_Op * len(self._ops))(*self._ops)
        sums = self._width
        stride = sums + -(-self._most_inputs // GROUP // 16) * 16
        arena = torch.empty(rows, stride)
        for register, values in (given or {}).items():
            arena[:, register : register + values.size(-1)] = values
        logits = torch.empty(rows, shape.vocab_size)
        step = _Step(
            rows=rows,
            threads=torch.get_num_threads(),
            n_head=shape.n_head,
            n_kv_head=shape.n_kv_head,
            head_dim=shape.head_dim,
            kv_type=_TYPES[self._dtype],
            stride=stride,
            sums=sums,
            scale=shape.head_dim**-0.5,
            ids=ids.data_ptr(),
            arena=arena.data_ptr(),
            logits=logits.data_ptr(),
            vocab=shape.vocab_size,
        )
        for index, turn in enumerate(turns):
            step.turns[index] = turn.data_ptr()
        if spans is not None:
            keys = self._native.chunk_keys
            chunks = -(-(spans.own.length + 1) // keys)
            if spans.shared is not None:
                step.shared = _span(spans.shared)
                chunks += -(-spans.shared.length // keys)
            step.own = _span(spans.own)
            size = shape.head_dim + self._native.lanes
            partials = torch.empty(rows * shape.n_head * chunks * size)
            step.partials = partials.data_ptr()
        self._native.dll.step(self._array, len(self._ops), ctypes.byref(step))
        return logits


def listed(
    device: torch.device, shape: Shape, dtype: torch.dtype, operations: Callable[[Program], None]
) -> tuple[Program | None, str]:
    """The program that `operations` lists; or None on a CPU, and why there is none."""
    if device.type != "cpu":
        return None, ""
    native = library.load()
    if native is None:
        return None, f"no native step: {library.reason()}"
    try:
        program = Program(native, shape, dtype)
        operations(program)
    except UnfitError as error:
        return None, f"no native step: {error} are not computed there"
    return program, ""


def multiply(native: Native, matrix: Matrix, x: Tensor) -> Tensor:
    """x float32 (rows, in) -> (rows, out)."""
    shape = Shape(0, 1, 1, native.lanes, x.size(1), matrix.out, 0)
    program = Program(native, shape, torch.float32)
    register = program.register(x.size(1))
    program.product(LOGITS, register, (matrix,))
    return program.run(torch.zeros(len(x), 1), None, given={register: x})


def _span(span: Span) -> _Span:
    layer, row, position, head, _ = span.k.stride()
    return _Span(span.k.data_ptr(), span.v.data_ptr(), layer, row, position, head, span.length)
