"""Which implementation of attention runs: the libraries that offer `flash_attn_with_kvcache`, what
each of them needs, and why the faster ones do not run here.

    backend = select(device, dtype, head_dim)
    backend.name, backend.note      # "sdpa", "no fa3: flash_attn_interface is not installed; ..."

FA3 runs on Hopper and comes as `flash_attn_interface` (built from the flash-attention repository's
`hopper` folder, or a wheel of it) or through the `kernels` package; FA2 runs on Ampere and later
and comes as `flash_attn`. Both have the one function with the same keywords and meaning. Builds
differ in the head sizes and types that they were compiled for and do not say so, therefore a
library is taken only when it has done a small case as PyTorch does it. FA4 has no KV cache.

In a captured step both read the lengths on the device. Into how many parts they split the keys is
settled while capturing, from the capacity of the cache; FA3 then takes fewer on the device where
the lengths want fewer, in FA2 the parts behind a row's end have nothing to do.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

WithKVCache: TypeAlias = "Callable[..., Tensor]"
"""(q, k_cache, v_cache, k=, v=, cache_seqlens=, causal=, window_size=, softmax_scale=) -> out; the
meaning of each is that of `engine.attention.flash_attn_with_kvcache`."""

HUB_KERNEL = "kernels-community/flash-attn3"
"""FA3 prebuilt, for the `kernels` package to fetch from the Hugging Face hub."""

TOLERANCE = 0.05
"""What a library may differ by from float32 for values around 1: bfloat16 has 8 bits."""


@dataclass(frozen=True)
class AttentionBackend:
    """Which implementation runs (`name`), and why none of the faster ones does (`note`, empty for
    FA3). `function` is the library's; None is PyTorch's SDPA."""

    name: str
    note: str = ""
    function: WithKVCache | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Library:
    """A library with `flash_attn_with_kvcache`.

    Attributes:
        name: of the backend.
        runs_on: whether it was made for GPUs of compute capability `major`.
        needs: the same in words.
        sources: ways to come by it, the first that is there is taken.
    """

    name: str
    runs_on: Callable[[int], bool]
    needs: str
    sources: tuple[Callable[[], WithKVCache], ...]


class NotThereError(Exception):
    """A library is not installed, or cannot be loaded; the message says which and why."""


def _imported(module: str) -> WithKVCache:
    try:
        function: WithKVCache = importlib.import_module(module).flash_attn_with_kvcache
    except ModuleNotFoundError as error:
        missing = f", which needs {error.name}," if error.name != module else ""
        raise NotThereError(f"{module}{missing} is not installed") from None
    except Exception as error:  # builds for other hardware or another torch fail in many ways
        raise NotThereError(f"{module} does not load: {_line(error)}") from error
    return function


def _from_hub() -> WithKVCache:
    try:
        kernels = importlib.import_module("kernels")
    except ImportError:
        raise NotThereError("nor is kernels") from None
    try:
        function: WithKVCache = kernels.get_kernel(HUB_KERNEL, version=1).flash_attn_with_kvcache
    except Exception as error:  # no network, no build for this torch, another version of kernels
        raise NotThereError(f"{HUB_KERNEL} does not load: {_line(error)}") from error
    return function


LIBRARIES = (
    Library(
        "fa3",
        lambda major: major == 9,
        "Hopper (sm90)",
        (functools.partial(_imported, "flash_attn_interface"), _from_hub),
    ),
    Library(
        "fa2",
        lambda major: major >= 8,
        "Ampere (sm80) or later",
        (functools.partial(_imported, "flash_attn"),),
    ),
)
"""The fastest first."""


@functools.cache
def select(device: torch.device, dtype: torch.dtype, head_dim: int) -> AttentionBackend:
    """The fastest implementation for tensors of `dtype` on `device` with heads of `head_dim`."""
    if device.type != "cuda":
        return AttentionBackend(
            "sdpa", f"flash-attention needs an NVIDIA GPU, this is {device.type}"
        )
    capability = torch.cuda.get_device_capability(device)
    return among(LIBRARIES, capability, device, dtype, head_dim)


def among(
    libraries: Sequence[Library],
    capability: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
) -> AttentionBackend:
    """The first of `libraries` that runs on a GPU of this compute capability, else SDPA."""
    if dtype not in (torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        return AttentionBackend("sdpa", f"flash-attention needs 16-bit values, these are {name}")
    if head_dim % 8 or head_dim > 256:
        return AttentionBackend(
            "sdpa", f"flash-attention needs heads of 8, 16, ... 256 values, these have {head_dim}"
        )
    reasons = []
    for library in libraries:
        if not library.runs_on(capability[0]):
            sm = "".join(map(str, capability))
            reasons.append(f"{library.name} needs {library.needs}, this is sm{sm}")
            continue
        try:
            function = _first(library.sources)
            _try_out(function, device, dtype, head_dim)
        except NotThereError as error:
            reasons.append(f"no {library.name}: {error}")
        else:
            return AttentionBackend(library.name, "; ".join(reasons), function)
    return AttentionBackend("sdpa", "; ".join(reasons))


def _first(sources: Sequence[Callable[[], WithKVCache]]) -> WithKVCache:
    reasons = []
    for source in sources:
        try:
            return source()
        except NotThereError as error:
            reasons.append(str(error))
    raise NotThereError(", ".join(reasons))


@torch.inference_mode()
def _try_out(
    function: WithKVCache, device: torch.device, dtype: torch.dtype, head_dim: int
) -> None:
    """Two query heads on one of keys, two rows of different lengths, one new position each, with
    and without a window. Raises NotThereError where that fails or comes out wrong."""
    random = torch.Generator().manual_seed(0)
    rows, seq, lengths = 2, 256, (3, 200)

    def noise(time: int, heads: int) -> Tensor:
        values = torch.randn(rows, time, heads, head_dim, generator=random)
        return values.to(device, dtype)

    q, k, v = noise(1, 2), noise(1, 1), noise(1, 1)
    seqlens = torch.tensor(lengths, dtype=torch.int32, device=device)
    for left in (-1, 100):
        keys, values = noise(seq, 1), noise(seq, 1)
        try:
            out = function(
                q,
                keys,
                values,
                k=k,
                v=v,
                cache_seqlens=seqlens,
                causal=True,
                window_size=(left, -1 if left < 0 else 0),
                softmax_scale=head_dim**-0.5,
            ).float()
        except Exception as error:
            raise NotThereError(f"it does not run here: {_line(error)}") from error
        for row, length in enumerate(lengths):
            first = 0 if left < 0 else max(0, length - left)
            seen = slice(first, length + 1)
            appended = torch.equal(keys[row, length], k[row, 0])
            expected = F.scaled_dot_product_attention(
                q[row].float().transpose(0, 1),
                keys[row, seen].float().transpose(0, 1).expand(2, -1, -1),
                values[row, seen].float().transpose(0, 1).expand(2, -1, -1),
            ).transpose(0, 1)
            if not appended or not torch.allclose(out[row], expected, atol=TOLERANCE):
                raise NotThereError("it computes something else than PyTorch here")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [repr(error)])[0][:200]
