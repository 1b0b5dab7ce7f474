"""`flash_attn_with_kvcache` on a CPU against attention written out in full."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.attention import attend_with_lse, flash_attn_with_kvcache, merge


def written_out(q: Tensor, k: Tensor, v: Tensor, window: tuple[int, int] = (-1, -1)) -> Tensor:
    """One row, (T, H, D) against (L, Hkv, D), the last query at the last key; causal, float64."""
    time, heads, dim = q.shape
    length, kv_heads = k.shape[:2]
    out = torch.zeros(time, heads, dim, dtype=torch.float64)
    for t in range(time):
        position = length - time + t
        first = 0 if window[0] < 0 else max(0, position - window[0])
        for head in range(heads):
            kv = head // (heads // kv_heads)
            keys = k[first : position + 1, kv].double()
            weights = (keys @ q[t, head].double() * dim**-0.5).softmax(0)
            out[t, head] = weights @ v[first : position + 1, kv].double()
    return out


def random_case(batch: int, time: int, seq: int, heads: int, kv_heads: int, dim: int = 16):
    generator = torch.Generator().manual_seed(batch * 1000 + time * 100 + seq)

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return (
        rand(batch, time, heads, dim),
        rand(batch, seq, kv_heads, dim),
        rand(batch, seq, kv_heads, dim),
        rand(batch, time, kv_heads, dim),
        rand(batch, time, kv_heads, dim),
    )


@pytest.mark.parametrize("window", [(-1, -1), (3, 0), (7, 0), (100, 0)])
@pytest.mark.parametrize("time", [1, 2, 9])
@pytest.mark.parametrize("lengths", [(0,), (5,), (11, 11), (0, 3, 12)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_appends_and_attends_as_written_out(window, time, lengths, heads, kv_heads):
    q, k_cache, v_cache, k, v = random_case(len(lengths), time, 24, heads, kv_heads)
    before = k_cache.clone()
    out = flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k,
        v,
        cache_seqlens=torch.tensor(lengths, dtype=torch.int32),
        window_size=window,
    )
    for row, length in enumerate(lengths):
        assert torch.equal(k_cache[row, length : length + time], k[row])
        assert torch.equal(v_cache[row, length : length + time], v[row])
        assert torch.equal(k_cache[row, :length], before[row, :length])
        assert torch.equal(k_cache[row, length + time :], before[row, length + time :])
        expected = written_out(
            q[row], k_cache[row, : length + time], v_cache[row, : length + time], window
        )
        torch.testing.assert_close(out[row].double(), expected, atol=1e-5, rtol=0)


def test_attends_to_what_is_there_when_no_keys_are_given():
    q, k_cache, v_cache, _, _ = random_case(1, 1, 10, 4, 2)
    out = flash_attn_with_kvcache(
        q, k_cache, v_cache, cache_seqlens=torch.tensor([7], dtype=torch.int32)
    )
    expected = written_out(q[0], k_cache[0, :7], v_cache[0, :7])
    torch.testing.assert_close(out[0].double(), expected, atol=1e-5, rtol=0)


def test_refuses_keys_that_do_not_fit():
    q, k_cache, v_cache, k, v = random_case(1, 4, 10, 2, 2)
    seqlens = torch.tensor([7], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"7 \+ 4 keys exceed the cache of 10"):
        flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=seqlens)


@pytest.mark.parametrize("window", [(-1, -1), (3, 0), (150, 0), (1000, 0)])
@pytest.mark.parametrize(("time", "length"), [(2, 2), (5, 400), (300, 300), (200, 700)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
def test_blocks_in_bfloat16_attend_as_float32_does(window, time, length, heads, kv_heads):
    """Longer than a block, on an empty and on a filled cache."""
    q, k_cache, v_cache, k, v = random_case(2, time, length, heads, kv_heads)
    seqlens = torch.full((2,), length - time, dtype=torch.int32)

    def run(dtype: torch.dtype) -> Tensor:
        caches = (x.to(dtype, copy=True) for x in (k_cache, v_cache))
        given = (x.to(dtype) for x in (k, v))
        return flash_attn_with_kvcache(
            q.to(dtype), *caches, *given, cache_seqlens=seqlens, window_size=window
        )

    torch.testing.assert_close(
        run(torch.bfloat16).float(), run(torch.float32), atol=0.05, rtol=0.02
    )


def test_merging_parts_is_attending_to_the_whole():
    q, k, v, _, _ = random_case(2, 6, 20, 3, 3)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    whole, _ = attend_with_lse(q, k, v, None)
    cuts = ((0, 7), (7, 13), (13, 20))
    parts = [attend_with_lse(q, k[:, :, a:b], v[:, :, a:b], None) for a, b in cuts]
    outs, lses = (torch.stack(column) for column in zip(*parts, strict=True))
    torch.testing.assert_close(merge(outs, lses), whole, atol=1e-6, rtol=0)
