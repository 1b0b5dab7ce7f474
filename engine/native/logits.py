"""What is read off a row of logits, in one or two passes over it by `step.c`.

    values, ids = topk(native, logits, 50)
    cells = measure(native, logits, ids, 10, temperatures, kept)

PyTorch takes eight passes for a score, each of them on all threads: a busy core beside them makes
every one wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_int32, c_int64, c_void_p

import torch
from torch import Tensor

from engine.native.library import Native

MOST = 256
"""More of the largest logits than this are PyTorch's to find: each is sorted into a list."""


class _Logits(Structure):
    _fields_ = (
        ("logits", c_void_p),
        ("stride", c_int64),
        *((name, c_int32) for name in ("rows", "vocab", "most", "threads")),
        *((name, c_void_p) for name in ("values", "ids", "chosen", "kept", "temperatures")),
        ("scores", c_void_p),
        ("alternatives", c_int32),
    )


def topk(native: Native, logits: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """`logits.topk(most)` of float32 (B, vocab_size); of equal ones the first comes first."""
    rows = logits.size(0)
    values, ids = torch.empty(rows, most), torch.empty(rows, most, dtype=torch.int64)
    call = _call(logits, rows, values, ids)
    native.dll.read_logits(ctypes.byref(call))
    return values, ids


def measure(
    native: Native,
    logits: Tensor,
    ids: Sequence[int],
    alternatives: int,
    temperatures: Sequence[float],
    kept: Sequence[int],
) -> list[list[float]]:
    """What `engine.scoring.measure` gives, for ids that were sampled at `temperatures`, each from
    the `kept` likeliest; logits float32 (len(ids) or 1, vocab_size)."""
    rows, vocab = len(ids), logits.size(1)
    alternatives = min(alternatives, vocab)
    most = max(1, alternatives, *(count for count in kept if count < vocab))
    values, places = torch.empty(rows, most), torch.empty(rows, most, dtype=torch.int64)
    chosen, counts = torch.tensor(ids), torch.tensor(kept)
    scales = torch.tensor(temperatures, dtype=torch.float32)
    scores = torch.empty(rows, 4 + 2 * alternatives, dtype=torch.float64)
    call = _call(logits, rows, values, places)
    call.chosen, call.kept = chosen.data_ptr(), counts.data_ptr()
    call.temperatures, call.scores = scales.data_ptr(), scores.data_ptr()
    call.alternatives = alternatives
    native.dll.read_logits(ctypes.byref(call))
    cells: list[list[float]] = scores.tolist()
    return cells


def _call(logits: Tensor, rows: int, values: Tensor, ids: Tensor) -> _Logits:
    assert (logits.dtype, logits.stride(1)) == (torch.float32, 1)
    return _Logits(
        logits=logits.data_ptr(),
        stride=logits.stride(0) if logits.size(0) > 1 else 0,
        rows=rows,
        vocab=logits.size(1),
        most=values.size(1),
        threads=torch.get_num_threads(),
        values=values.data_ptr(),
        ids=ids.data_ptr(),
    )
