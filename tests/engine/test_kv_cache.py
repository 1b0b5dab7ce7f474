"""The caches: what `prefill` refuses, and that a shared prefix computes what copied rows
compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.errors import CacheMismatchError
from engine.kv_cache import KVCache, SharedPrefixCache

LAYERS, HEADS, KV_HEADS, DIM = 3, 6, 2, 8


def cache(batch: int = 1, seq: int = 32, **changes: int) -> KVCache:
    sizes = {"n_layers": LAYERS, "n_kv_head": KV_HEADS, "head_dim": DIM} | changes
    return KVCache(sizes["n_layers"], batch, seq, sizes["n_kv_head"], sizes["head_dim"])


def run(target, time: int, seed: int) -> list[Tensor]:
    """Append `time` random positions to every layer; the attention of each layer."""
    generator = torch.Generator().manual_seed(seed)
    outs = []
    for layer in range(LAYERS):
        q = torch.randn(target.batch, time, HEADS, DIM, generator=generator)
        k, v = torch.randn(2, target.batch, time, KV_HEADS, DIM, generator=generator)
        outs.append(target.attend(layer, q, k, v))
    target.advance(time)
    return outs


def test_holds_kv_heads_only_and_int32_lengths():
    held = cache(batch=4)
    assert held.k.shape == held.v.shape == (LAYERS, 4, 32, KV_HEADS, DIM)
    assert held.cache_seqlens.dtype == torch.int32
    run(held, 3, seed=0)
    assert held.cache_seqlens.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda: cache(n_layers=2), "layers: 2 here, 3 there"),
        (lambda: cache(n_kv_head=3), "KV heads: 3 here, 2 there"),
        (lambda: cache(head_dim=16), "head size: 16 here, 8 there"),
        (lambda: cache(seq=9), "10 positions exceed the capacity of 9"),
    ],
)
def test_prefill_refuses_what_does_not_fit_and_says_what_differs(target, message):
    prompt = cache()
    run(prompt, 10, seed=1)
    with pytest.raises(CacheMismatchError, match=message):
        target().prefill(prompt)


def test_prefill_refuses_a_cache_that_is_not_empty():
    prompt, target = cache(), cache()
    run(prompt, 4, seed=1)
    run(target, 2, seed=2)
    with pytest.raises(CacheMismatchError, match="not empty: it holds 2"):
        target.prefill(prompt)


def test_prefill_refuses_another_batch():
    prompt = cache(batch=2)
    run(prompt, 4, seed=1)
    with pytest.raises(CacheMismatchError, match="batch: 3 here, 2 there"):
        cache(batch=3).prefill(prompt)


def test_prefill_gives_the_prompt_and_the_row_state_to_every_row():
    prompt, rows = cache(), cache(batch=3)
    run(prompt, 5, seed=1)
    prompt.state["prev_embedding"] = torch.arange(4.0).view(1, 1, 4)
    rows.prefill(prompt)
    assert rows.length == 5
    assert torch.equal(rows.k[:, 2, :5], prompt.k[:, 0, :5])
    assert rows.state["prev_embedding"].shape == (3, 1, 4)
    rows.state["prev_embedding"][0] = -1  # a row's state is its own
    assert prompt.state["prev_embedding"][0, 0, 1] == 1


def test_a_shared_prefix_computes_what_copied_rows_compute():
    prompt, copied = cache(), cache(batch=4, seq=600)
    run(prompt, 21, seed=1)
    copied.prefill(prompt)
    shared = SharedPrefixCache(prompt, 4)
    for step in range(300):  # beyond the first block of a tail
        shared.reserve(1, 600)
        for a, b in zip(run(copied, 1, seed=step), run(shared, 1, seed=step), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
        if step == 100:
            copied.keep([3, 1])
            shared.keep([3, 1])
    assert shared.length == copied.length == 321


@pytest.mark.parametrize("left", [0, 2, 9, 40])
def test_a_window_cuts_a_shared_prefix_as_it_cuts_copied_rows(left):
    prompt, copied = cache(), cache(batch=2, seq=64)
    run(prompt, 12, seed=1)
    copied.prefill(prompt)
    shared = SharedPrefixCache(prompt, 2)
    for step in range(20):
        generator = torch.Generator().manual_seed(step)
        q = torch.randn(2, 1, HEADS, DIM, generator=generator)
        k, v = torch.randn(2, 2, 1, KV_HEADS, DIM, generator=generator)
        a, b = (held.attend(0, q, k, v, (left, 0)) for held in (copied, shared))
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
        for held in (copied, shared):
            held.advance(1)


def test_reserving_keeps_what_is_there_and_never_exceeds_the_limit():
    held = cache(seq=8)
    run(held, 8, seed=1)
    before = held.k[:, :, :8].clone()
    held.reserve(1, limit=10)
    assert held.seq == 10
    assert torch.equal(held.k[:, :, :8], before)


def test_sharing_an_empty_prefix_is_refused():
    with pytest.raises(CacheMismatchError, match="one row with a prompt in it"):
        SharedPrefixCache(cache(), 2)
