"""nanochat as nanochat runs it, to compare with: its network written out one operation after the
other, and its generation loop in eager mode.

    reference = EagerNanochat(config, tensors, device=device, dtype=dtype)
    for column in reference.generate(tokens, rows, new_tokens):
        ...

After karpathy/nanochat's first form (`VARIANTS["V0"]`): `gpt.py` and `engine.py`. As there: three
products for q, k and v, logits of every position though one is needed, the prompt's keys and values
copied to all rows, the sampled column brought to Python before the next step is launched. It shares
nothing with `engine.models` but the attention function, so that it stays what it is while the
engine gets faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import flash_attn_with_kvcache
from engine.flash import AttentionBackend, select
from engine.messages import DEFAULT_TEMPERATURE, DEFAULT_TOP_K
from engine.models.nanochat_variants import VARIANTS, Config

VARIANT = VARIANTS["V0"]


@dataclass
class _Cache:
    """Keys and values of all layers, (n_layer, batch, seq, n_kv_head, head_dim)."""

    k: Tensor
    v: Tensor
    seqlens: Tensor
    length: int = 0

    def advance(self, time: int) -> None:
        self.length += time
        self.seqlens += time


class EagerNanochat:
    """A nanochat of the first form."""

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`tensors` as `engine.models.nanochat.tensor_shapes` names them."""
        self.config, self.device, self.dtype = config, device, dtype
        self.weights = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
        self.backend: AttentionBackend = select(device, dtype, config.head_dim)
        channel = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
        position = torch.arange(config.sequence_len, dtype=torch.float32, device=device)
        angles = torch.outer(position, VARIANT.rotary_base ** (-channel / config.head_dim))
        self.cos, self.sin = (
            table.to(dtype)[None, :, None, :] for table in (angles.cos(), angles.sin())
        )

    def new_cache(self, batch: int, seq: int) -> _Cache:
        config = self.config
        shape = (config.n_layer, batch, seq, config.n_kv_head, config.head_dim)
        k, v = (torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(2))
        return _Cache(k, v, torch.zeros(batch, dtype=torch.int32, device=self.device))

    def forward(self, ids: Tensor, cache: _Cache) -> Tensor:
        """ids (B, T) -> float32 logits (B, T, vocab_size)."""
        config, weights = self.config, self.weights
        batch, time = ids.shape
        span = slice(cache.length, cache.length + time)
        cos, sin = self.cos[:, span], self.sin[:, span]
        x = _norm(F.embedding(ids, weights["transformer.wte.weight"]))
        for layer in range(config.n_layer):

            def product(x: Tensor, name: str, layer: int = layer) -> Tensor:
                return F.linear(x, weights[f"transformer.h.{layer}.{name}.weight"])

            h = _norm(x)
            q = product(h, "attn.c_q").view(batch, time, config.n_head, -1)
            k = product(h, "attn.c_k").view(batch, time, config.n_kv_head, -1)
            v = product(h, "attn.c_v").view(batch, time, config.n_kv_head, -1)
            y = flash_attn_with_kvcache(
                _norm(_turn(q, cos, sin)),
                cache.k[layer],
                cache.v[layer],
                _norm(_turn(k, cos, sin)),
                v,
                cache_seqlens=cache.seqlens,
                backend=self.backend,
                lengths=[cache.length] * batch,
            )
            x = x + product(y.reshape(batch, time, -1), "attn.c_proj")
            x = x + product(F.relu(product(_norm(x), "mlp.c_fc")).square(), "mlp.c_proj")
        cache.advance(time)
        logits = F.linear(_norm(x), weights["lm_head.weight"])[..., : config.vocab_size].float()
        return VARIANT.softcap * torch.tanh(logits / VARIANT.softcap)

    def generate(self, tokens: Sequence[int], rows: int, new_tokens: int) -> Iterator[list[int]]:
        """One token column per step; rows never end."""
        with torch.inference_mode():
            source = torch.Generator(self.device).manual_seed(1)
            prompt = self.new_cache(1, len(tokens))
            ids = torch.tensor([list(tokens)], device=self.device)
            first = self.forward(ids, prompt)[:, -1].expand(rows, -1)
            column: list[int] = _sampled(first, source).tolist()
            cache = self.new_cache(rows, len(tokens) + new_tokens)
            cache.k[:, :, : len(tokens)] = prompt.k
            cache.v[:, :, : len(tokens)] = prompt.v
            cache.advance(len(tokens))
            del prompt
        for _ in range(new_tokens - 1):
            yield column
            with torch.inference_mode():
                ids = torch.tensor(column, device=self.device)[:, None]
                column = _sampled(self.forward(ids, cache)[:, -1], source).tolist()
        yield column


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.size(-1),))


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding on split halves, x (B, T, heads, D)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


def _sampled(logits: Tensor, source: torch.Generator) -> Tensor:
    """One id per row of (B, vocab_size): temperature and top-k, as the engine's defaults are."""
    values, ranked = logits.topk(min(DEFAULT_TOP_K, logits.size(-1)))
    shares = F.softmax(values / DEFAULT_TEMPERATURE, -1)
    return ranked.gather(1, torch.multinomial(shares, 1, generator=source))[:, 0]
