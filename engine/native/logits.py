"""What is read off a row of logits, in one or two passes over it by `step.c`.

    ids = sample(native, logits, temperatures, draws, kept)
    cells = measure(native, logits, ids, 10, temperatures, kept)

PyTorch takes eight passes for a score, each of them on all of its threads, which go on spinning on
the core that the next step wants: at 8 rows that step took 24 ms instead of 16.
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
        *((name, c_void_p) for name in ("values", "ids", "kept", "temperatures")),
        *((name, c_void_p) for name in ("draws", "sampled", "chosen", "scores")),
        ("alternatives", c_int32),
    )


def sample(
    native: Native,
    logits: Tensor,
    temperatures: Sequence[float],
    draws: Sequence[float],
    kept: Sequence[int],
) -> list[int]:
    """What `engine.sampling.choose` chooses, of float32 logits (len(draws) or 1, vocab_size), each
    row from its `kept` likeliest, which are at most `MOST`."""
    values, places = _largest(len(draws), max(kept))
    counts, scales = torch.tensor(kept), torch.tensor(temperatures, dtype=torch.float32)
    uniform = torch.tensor(draws, dtype=torch.float64)
    ids = torch.empty_like(counts)
    call = _call(logits, values, places)
    call.kept, call.temperatures = counts.data_ptr(), scales.data_ptr()
    call.draws, call.sampled = uniform.data_ptr(), ids.data_ptr()
    native.dll.read_logits(ctypes.byref(call))
    sampled: list[int] = ids.tolist()
    return sampled


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
    vocab = logits.size(1)
    alternatives = min(alternatives, vocab)
    most = max(1, alternatives, *(count for count in kept if count < vocab))
    values, places = _largest(len(ids), most)
    chosen, counts = torch.tensor(ids), torch.tensor(kept)
    scales = torch.tensor(temperatures, dtype=torch.float32)
    scores = torch.empty(len(ids), 4 + 2 * alternatives, dtype=torch.float64)
    call = _call(logits, values, places)
    call.chosen, call.kept = chosen.data_ptr(), counts.data_ptr()
    call.temperatures, call.scores = scales.data_ptr(), scores.data_ptr()
    call.alternatives = alternatives
    native.dll.read_logits(ctypes.byref(call))
    cells: list[list[float]] = scores.tolist()
    return cells


def _largest(rows: int, most: int) -> tuple[Tensor, Tensor]:
    return torch.empty(rows, most), torch.empty(rows, most, dtype=torch.int64)


def _call(logits: Tensor, values: Tensor, ids: Tensor) -> _Logits:
    assert (logits.dtype, logits.stride(1)) == (torch.float32, 1)
    return _Logits(
        logits=logits.data_ptr(),
        stride=logits.stride(0) if len(logits) > 1 else 0,
        rows=len(values),
        vocab=logits.size(1),
        most=values.size(1),
        threads=torch.get_num_threads(),
        values=values.data_ptr(),
        ids=ids.data_ptr(),
    )
