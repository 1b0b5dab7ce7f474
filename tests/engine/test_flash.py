"""Which attention runs where, and what is said about the ones that do not. The libraries are
stood in for on a CPU by functions with their very keywords."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from engine.attention import flash_attn_with_kvcache
from engine.flash import HUB_KERNEL, LIBRARIES, AttentionBackend, among, select
from engine.kv_cache import KVCache

CPU = torch.device("cpu")
HOPPER, AMPERE, TURING = (9, 0), (8, 6), (7, 5)


def fa3(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
) -> Tensor:
    """As in flash-attention's hopper/flash_attn_interface.py."""
    return flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k,
        v,
        cache_seqlens=cache_seqlens,
        causal=causal,
        window_size=window_size,
        softmax_scale=softmax_scale,
    )


def fa2(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
) -> Tensor:
    """As in flash-attention's flash_attn/flash_attn_interface.py."""
    return fa3(
        q,
        k_cache,
        v_cache,
        k,
        v,
        cache_seqlens=cache_seqlens,
        causal=causal,
        window_size=window_size,
        softmax_scale=softmax_scale,
    )


@pytest.fixture
def installed(monkeypatch):
    """Installs libraries by the names of their modules; none are at first."""

    def install(**libraries: object) -> None:
        for name, function in libraries.items():
            module = ModuleType(name)
            module.flash_attn_with_kvcache = function
            monkeypatch.setitem(sys.modules, name, module)

    for name in ("flash_attn_interface", "flash_attn", "kernels"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    return install


def chosen(capability, dtype=torch.bfloat16, head_dim=64) -> AttentionBackend:
    return among(LIBRARIES, capability, CPU, dtype, head_dim)


def test_hopper_takes_fa3_and_ampere_fa2(installed):
    installed(flash_attn_interface=fa3, flash_attn=fa2)
    assert chosen(HOPPER) == AttentionBackend("fa3")
    assert chosen(HOPPER).function is fa3
    ampere = chosen(AMPERE)
    assert (ampere.name, ampere.note) == ("fa2", "fa3 needs Hopper (sm90), this is sm86")
    turing = chosen(TURING)
    assert turing.name == "sdpa"
    assert turing.note.endswith("fa2 needs Ampere (sm80) or later, this is sm75")


def test_hopper_takes_fa2_where_fa3_is_not_installed(installed):
    installed(flash_attn=fa2)
    backend = chosen(HOPPER)
    assert backend.name == "fa2"
    assert backend.note == "no fa3: flash_attn_interface is not installed, nor is kernels"


def test_without_any_it_is_pytorchs(installed):
    backend = chosen(HOPPER)
    assert (backend.name, backend.function) == ("sdpa", None)
    assert backend.note.endswith("; no fa2: flash_attn is not installed")


def test_fa3_also_comes_from_the_hub(installed, monkeypatch):
    asked = []

    def get_kernel(name, *, version):
        asked.append((name, version))
        return SimpleNamespace(flash_attn_with_kvcache=fa3)

    module = ModuleType("kernels")
    module.get_kernel = get_kernel
    monkeypatch.setitem(sys.modules, "kernels", module)
    assert chosen(HOPPER).name == "fa3"
    assert asked == [(HUB_KERNEL, 1)]

    def offline(name, *, version):
        raise OSError("We couldn't connect to the hub.\nCheck your connection.")

    module.get_kernel = offline
    note = chosen(HOPPER).note
    assert f"{HUB_KERNEL} does not load: We couldn't connect to the hub.;" in note


def test_what_the_kernels_do_not_take_is_pytorchs(installed):
    installed(flash_attn_interface=fa3)
    assert chosen(HOPPER, torch.float32).note == (
        "flash-attention needs 16-bit values, these are float32"
    )
    assert "these have 36" in chosen(HOPPER, head_dim=36).note
    assert "these have 320" in chosen(HOPPER, head_dim=320).note
    assert chosen(HOPPER, torch.float16, 256).name == "fa3"


def test_a_build_that_fails_or_computes_something_else_is_not_taken(installed):
    def not_built(q, *caches, **how):
        raise RuntimeError("This flash attention build does not support FP16.\nstack")

    def forgets_to_append(q, k_cache, v_cache, **how):
        return fa3(q, k_cache.clone(), v_cache.clone(), **how)

    def ignores_windows(q, k_cache, v_cache, **how):
        return fa3(q, k_cache, v_cache, **{**how, "window_size": (-1, -1)})

    installed(flash_attn_interface=not_built, flash_attn=fa2)
    note = chosen(HOPPER).note
    assert note.startswith("no fa3: it does not run here: This flash attention build does not")
    assert "stack" not in note
    for wrong in (forgets_to_append, ignores_windows):
        installed(flash_attn_interface=wrong)
        backend = chosen(HOPPER)
        assert backend.name == "fa2"
        assert backend.note == "no fa3: it computes something else than PyTorch here"


def test_the_choice_travels_with_the_cache(installed):
    installed(flash_attn_interface=fa3)
    cache = KVCache(1, 2, 32, 2, 16, dtype=torch.bfloat16, backend=chosen(HOPPER, head_dim=16))
    plain = KVCache(1, 2, 32, 2, 16, dtype=torch.bfloat16)
    random = torch.Generator().manual_seed(0)
    for time in (5, 1):
        q = torch.randn(2, time, 4, 16, generator=random).bfloat16()
        k, v = torch.randn(2, 2, time, 2, 16, generator=random).bfloat16()
        outs = [held.attend(0, q, k, v, (3, 0)) for held in (cache, plain)]
        torch.testing.assert_close(*outs)
        cache.advance(time)
        plain.advance(time)


def test_without_an_nvidia_gpu_it_says_so():
    backend = select(CPU, torch.bfloat16, 64)
    assert backend.name == "sdpa"
    assert "NVIDIA GPU" in backend.note
