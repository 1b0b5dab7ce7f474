"""Causal attention of many positions at once, by `prompt.c`.

PyTorch's products of bfloat16 matrices are as fast as the processor; what it does around them, a
softmax over scores that it has written to memory, takes as long again. For 512 queries on 2,048
keys, 9 heads on 3 of 64, one thread: 13.6 ms, and 29 by `engine.attention._attend_in_blocks`.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import Structure, c_float, c_int32, c_int64, c_void_p

import torch
from torch import Tensor

from engine.native import library
from engine.native.library import Native


class _Prompt(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("q", "k", "v", "out", "keys", "values")),
        *((name, c_int64) for name in ("q_row", "q_time", "q_head")),
        *((name, c_int64) for name in ("kv_row", "kv_position", "kv_head")),
        *((name, c_int32) for name in ("batch", "time", "length", "n_head", "n_kv_head")),
        *((name, c_int32) for name in ("head_dim", "left", "threads")),
        ("scale", c_float),
    )


@functools.cache
def _has_tiles() -> bool:
    """Whether PyTorch multiplies on AMX, which is faster still."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


def usable(dtype: torch.dtype, head_dim: int) -> Native | None:
    """What computes prompts of such a model on this CPU; None where PyTorch is to do it."""
    native = library.load() if dtype == torch.bfloat16 and not _has_tiles() else None
    if native is None or not native.dll.can_attend():
        return None
    return native if head_dim % 32 == 0 and head_dim <= 256 else None


def attends(q: Tensor, k: Tensor, v: Tensor) -> Native | None:
    """What `attend` is to be called with for such tensors; None where it cannot compute them."""
    if q.device.type != "cpu" or k.stride() != v.stride() or k.stride(3) != 1 or q.stride(3) != 1:
        return None
    return usable(q.dtype, q.size(3))


def attend(native: Native, q: Tensor, k: Tensor, v: Tensor, left: int, scale: float) -> Tensor:
    """The last T of L positions, each with itself and `left` before it (all, for -1): bfloat16
    q (B, T, H, D) and k, v (B, L, Hkv, D) -> (B, T, H, D)."""
    batch, time, heads, dim = q.shape
    length, kv_heads = k.shape[1:3]
    out = torch.empty(batch, time, heads, dim, dtype=q.dtype)
    whole = -(-length // native.block_keys) * native.block_keys
    room = batch * kv_heads * whole * dim // 2
    keys, values = torch.empty(2, room, dtype=torch.int32)
    call = _Prompt(
        *(tensor.data_ptr() for tensor in (q, k, v, out, keys, values)),
        *q.stride()[:3],
        *k.stride()[:3],
        *(batch, time, length, heads, kv_heads, dim, left, torch.get_num_threads()),
        scale,
    )
    native.dll.attend_prompt(ctypes.byref(call))
    return out
