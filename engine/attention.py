"""One attention function for the whole engine: `flash_attn_with_kvcache`, with three
implementations behind it.

The signature and the meaning are those of the flash-attention library: layout (batch, time, heads,
head_dim), keys and values appended in place at `cache_seqlens`, causal masking aligned to the
bottom right, `window_size=(left, right)` with -1 for unlimited. `engine/flash.py` decides which of
FA3, FA2 and PyTorch's SDPA runs; the choice travels with the KV cache.

The SDPA path never copies keys or values for grouped-query attention. A single new token folds the
query heads of a group into the time axis, (B, 1, Hkv*G, D) -> (B, Hkv, G, D); a longer chunk at
batch 1 gives the KV heads to the batch axis and broadcasts over the group with stride 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.flash import AttentionBackend
from engine.native import prompt

Window = tuple[int, int]
UNLIMITED: Window = (-1, -1)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    cache_seqlens: Tensor,
    causal: bool = True,
    window_size: Window = UNLIMITED,
    softmax_scale: float | None = None,
    backend: AttentionBackend | None = None,
    lengths: Sequence[int] | None = None,
    on_device: bool = False,
) -> Tensor:
    """Append `k` and `v` to the cache in place and attend `q` to all of it.

    Args:
        q: (B, T, H, D).
        k_cache, v_cache: (B, S, Hkv, D); H is a multiple of Hkv.
        k, v: (B, T_new, Hkv, D), or None to attend to what is there.
        cache_seqlens: int32 (B,), lengths before `k` is appended. The caller advances it.
        causal: query i of T sees keys up to length + T_new - T + i.
        window_size: (left, right) keys around a query's own position; -1 is unlimited.
        softmax_scale: D ** -0.5 when None.
        backend: from `engine.flash.select`; SDPA when None.
        lengths: `cache_seqlens` as host integers where the caller has them; saves a device
            synchronisation.
        on_device: read the lengths on the device alone, as a captured step must. SDPA then takes
            single new tokens only, and attends to the whole cache behind a mask: what lies beyond
            the lengths must be finite.

    Returns: (B, T, H, D).
    """
    if backend is not None and backend.function is not None:
        return backend.function(
            q,
            k_cache,
            v_cache,
            k=k,
            v=v,
            cache_seqlens=cache_seqlens,
            causal=causal,
            window_size=window_size,
            softmax_scale=softmax_scale,
        )
    if on_device:
        assert k is not None, "a step appends"
        assert v is not None
        assert causal, "a step looks back"
        return _attend_behind_mask(
            q, k_cache, v_cache, k, v, cache_seqlens, window_size[0], softmax_scale
        )
    host = list(lengths) if lengths is not None else cache_seqlens.tolist()
    together = len(set(host)) == 1
    new = 0
    if k is not None and v is not None:
        new = k.size(1)
        if max(host) + new > k_cache.size(1):
            raise ValueError(f"{max(host)} + {new} keys exceed the cache of {k_cache.size(1)}.")
        for rows, length in [(slice(None), host[0])] if together else _each(host):
            k_cache[rows, length : length + new] = k[rows]
            v_cache[rows, length : length + new] = v[rows]
    how = (causal, window_size, softmax_scale)
    if together:
        return attend(q, k_cache, v_cache, host[0] + new, *how)
    return torch.cat(
        [attend(q[row], k_cache[row], v_cache[row], at + new, *how) for row, at in _each(host)]
    )


def _attend_behind_mask(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    seqlens: Tensor,
    left: int,
    softmax_scale: float | None,
) -> Tensor:
    """Append one key per row and attend to it and those before, by the same operations whatever the
    lengths are: (B, 1, H, D) -> (B, 1, H, D)."""
    batch, _, heads, dim = q.shape
    seq, kv_heads = k_cache.shape[1:3]
    at = seqlens.long()[:, None]
    index = at[..., None, None].expand_as(k)
    k_cache.scatter_(1, index, k)
    v_cache.scatter_(1, index, v)
    place = torch.arange(seq, device=q.device)
    seen = place <= at
    if left >= 0:
        seen &= place >= at - left
    out = F.scaled_dot_product_attention(
        q.view(batch, kv_heads, heads // kv_heads, dim),
        k_cache.transpose(1, 2),
        v_cache.transpose(1, 2),
        attn_mask=seen[:, None, None],
        scale=softmax_scale,
    )
    return out.reshape(batch, 1, heads, dim)


def _each(lengths: Sequence[int]) -> list[tuple[slice, int]]:
    """Row by row, as slices that keep the batch dimension."""
    return [(slice(row, row + 1), length) for row, length in enumerate(lengths)]


def attend(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    length: int,
    causal: bool = True,
    window_size: Window = UNLIMITED,
    softmax_scale: float | None = None,
) -> Tensor:
    """SDPA over the first `length` keys of each row: q (B, T, H, D) -> (B, T, H, D). The last query
    sits at position length - 1."""
    batch, time, heads, dim = q.shape
    kv_heads = k_cache.size(2)
    group = heads // kv_heads
    left, right = window_size
    first = 0 if left < 0 else max(0, length - time - left)
    k = k_cache[:, first:length]
    v = v_cache[:, first:length]
    if time == 1 and (causal or right < 0):
        # The window has been cut out of the keys already, and nothing lies to the right: no mask.
        folded = _never_one_row(q.view(batch, kv_heads, group, dim))
        out = F.scaled_dot_product_attention(
            folded, k.transpose(1, 2), v.transpose(1, 2), scale=softmax_scale
        )
        return out[:, :, :group].reshape(batch, 1, heads, dim)
    right_most = 0 if causal and right < 0 else right
    if right_most == 0 and (native := prompt.attends(q, k, v)):
        return prompt.attend(
            native, q, k, v, left, dim**-0.5 if softmax_scale is None else softmax_scale
        )
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and right_most == 0:
        return _attend_in_blocks(q, k, v, left, softmax_scale)
    from_the_start = length - first == time and (left < 0 or left >= time - 1) and right_most == 0
    mask = None if from_the_start else _band(time, length - first, left, right_most, q.device)
    grouped = q.view(batch, time, kv_heads, group, dim).permute(0, 2, 3, 1, 4).flatten(0, 1)
    k, v = (_over_group(x, group) for x in (k, v))
    out = F.scaled_dot_product_attention(
        grouped, k, v, attn_mask=mask, is_causal=mask is None and time > 1, scale=softmax_scale
    )
    by_row = out.view(batch, kv_heads, group, time, dim).permute(0, 3, 1, 2, 4)
    return by_row.reshape(batch, time, heads, dim)


BLOCK_ROWS = 384
"""Rows of queries, over the heads of a group, that `_attend_in_blocks` multiplies at once. CPU time
for 512 queries on 2,048 keys, 9 heads on 3 of 64: 128, 384 and 768 rows take 23, 20 and 33 ms, SDPA
39 ms; 10 heads on 10 of 128: 128 and 256 rows take 48 and 43, SDPA 85 ms."""


def _attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, left: int, softmax_scale: float | None
) -> Tensor:
    """Causal attention of the last T of L positions by plain matrix products, a block of queries
    after the other, each with the keys that it can see and no more.

    What `engine/native/prompt.c` is for, where that cannot run. In bfloat16 it takes half the time
    of PyTorch's fused CPU kernel, which computes whole blocks of keys beyond the diagonal and does
    not use the bfloat16 instructions of AVX-512.
    """
    batch, time, heads, dim = q.shape
    length, kv_heads = k.shape[1:3]
    group = heads // kv_heads
    scale = dim**-0.5 if softmax_scale is None else softmax_scale
    keys = k.transpose(1, 2).reshape(batch * kv_heads, length, dim).transpose(1, 2)
    values = v.transpose(1, 2).reshape(batch * kv_heads, length, dim)
    nothing = q.new_empty(1, 1, 1)
    rows = max(1, BLOCK_ROWS // group)
    out = torch.empty_like(q)
    for begin in range(0, time, rows):
        end = min(begin + rows, time)
        last = length - time + end
        first = 0 if left < 0 else max(0, length - time + begin - left)
        block = q[:, begin:end].view(batch, end - begin, kv_heads, group, dim)
        block = block.permute(0, 2, 3, 1, 4).reshape(batch * kv_heads, -1, dim)
        shape = (block.size(0), block.size(1), last - first)
        # baddbmm and not bmm: the scale then costs no pass of its own, and no rounding.
        scores = torch.baddbmm(
            nothing.expand(shape), block, keys[..., first:last], beta=0, alpha=scale
        )
        # Without a window only the keys of the block itself can lie ahead of a query.
        mask = _band(end - begin, end - begin if left < 0 else last - first, left, 0, q.device)
        seen = scores.view(batch * kv_heads, group, end - begin, -1)
        seen[..., -mask.size(1) :].masked_fill_(~mask, -torch.inf)
        attended = torch.bmm(scores.softmax(-1), values[:, first:last])
        attended = attended.view(batch, kv_heads, group, end - begin, dim)
        out[:, begin:end] = attended.permute(0, 3, 1, 2, 4).reshape(batch, -1, heads, dim)
    return out


def _never_one_row(q: Tensor) -> Tensor:
    """Give a lone query row (B, H, 1, D) twice where two are faster than one: with the bfloat16
    kernel of the CPU (PyTorch 2.13, AVX-512, 6 heads of 128, 512 keys: 0.20 ms against 0.66)."""
    if q.size(2) == 1 and q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return q.expand(-1, -1, 2, -1)
    return q


def _over_group(x: Tensor, group: int) -> Tensor:
    """(B, L, Hkv, D) -> (B * Hkv, G, L, D); a view at batch 1."""
    batch, length, kv_heads, dim = x.shape
    rows = x.transpose(1, 2).reshape(batch * kv_heads, 1, length, dim)
    return rows.expand(batch * kv_heads, group, length, dim)


def _band(time: int, length: int, left: int, right: int, device: torch.device) -> Tensor:
    """Which of `length` keys each of the last `time` positions may see, bool (time, length)."""
    query = torch.arange(length - time, length, device=device)[:, None]
    key = torch.arange(length, device=device)
    seen = torch.ones(time, length, dtype=torch.bool, device=device)
    if left >= 0:
        seen &= key >= query - left
    if right >= 0:
        seen &= key <= query + right
    return seen


def attend_with_lse(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Unmasked attention that also returns its log-sum-exp, for merging partial results.

    Args: q (B, Hkv, M, D); k, v (B, Hkv, L, D), L >= 1.
    Returns: (B, Hkv, M, D) and float32 (B, Hkv, M).
    """
    if q.device.type == "cpu":
        rows = q.size(2)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            _never_one_row(q), k, v, scale=scale
        )
        return out[:, :, :rows], lse[:, :, :rows]
    scores = (q @ k.transpose(-1, -2)).float() * (q.size(-1) ** -0.5 if scale is None else scale)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp().to(v.dtype) @ v, lse


def merge(outs: Tensor, lses: Tensor) -> Tensor:
    """Attention over the union of disjoint sets of keys, from the attention over each of them:
    each set weighs as much as its share of the whole softmax denominator, exp(lse).

    Args: outs (sets, ..., D); lses float32 (sets, ...). Returns: (..., D) in the dtype of `outs`.
    """
    weights = lses.softmax(0)[..., None].to(outs.dtype)
    return (weights * outs).sum(0)
