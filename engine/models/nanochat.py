"""nanochat in every published form: one network, and `nanochat_variants.py` says what its eras do
differently.

    model = NanochatModel(config, VARIANTS["V6"], tensors, device=device, dtype=torch.bfloat16)
    cache = model.new_cache(batch=1, seq=config.sequence_len)
    logits = model.forward(ids, cache)                     # (1, vocab_size)

Common to all forms: untied embedding and output head, RMS norm without weights (also right after
the embedding), rotary embedding on split halves, RMS norm of q and k after it, squared ReLU, no
biases, logits capped by c * tanh(x / c). Two forms remember more of the past than keys and values:
the previous token (V3e's bigrams) and its normed embedding (V6's smear). Both live in
`cache.state`, so they go with the cache when it is cloned, filtered or continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import Window
from engine.flash import select
from engine.kv_cache import Cache, KVCache, Positions
from engine.models import pieces
from engine.models.base import Shape
from engine.models.nanochat_variants import SMEAR_CHANNELS, Config, Variant, tensor_shapes
from engine.native.program import LOGITS, Matrix, Program, listed

EPS = torch.finfo(torch.float32).eps
"""Of every RMS norm, whatever the type of the activations."""

PREV_EMBEDDING = "prev_embedding"
PREV_TOKEN = "prev_token"


@dataclass(frozen=True)
class _Layer:
    """One block's weights, and its scalars as host floats: reading them off a tensor at every step
    would synchronise with the device."""

    qkv: Tensor  # ((H + 2 * Hkv) * D, C): c_q, c_k and c_v, one product instead of three
    attn_out: Tensor  # (C, C)
    mlp_in: Tensor  # (4 * C, C)
    mlp_out: Tensor  # (C, 4 * C)
    window: Window
    scales: tuple[float, float, float] | None  # of x, of the embedding, of the bigram's
    value_embed: Tensor | None  # (V, Hkv * D)
    value_gate: Tensor | None  # (Hkv, channels)

    def weight_bytes(self) -> int:
        matrices = (self.qkv, self.attn_out, self.mlp_in, self.mlp_out)
        return sum(matrix.nbytes for matrix in matrices)


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.size(-1),), None, EPS)


class NanochatModel:
    """A nanochat of any variant, for inference; the `Model` of `engine/models/base.py`."""

    def __init__(
        self,
        config: Config,
        variant: Variant,
        tensors: Mapping[str, Tensor],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`tensors` holds what `tensor_shapes(config, variant)` names, in any floating-point type.

        A tensor that is on `device` in `dtype` already is kept, not copied: a memory-mapped
        checkpoint stays mapped. `release` is called after each layer: what was read of it is not
        needed in memory any more.
        """
        self.config, self.variant = config, variant
        self.device, self.dtype = torch.device(device), dtype
        self.shape = Shape(
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_kv_head=config.n_kv_head,
            head_dim=config.head_dim,
            n_embd=config.n_embd,
            vocab_size=config.vocab_size,
            context=config.sequence_len,
        )
        self._parameters = sum(tensors[name].numel() for name in tensor_shapes(config, variant))
        self._backend = select(self.device, dtype, config.head_dim)
        self.pieces = pieces.select(self.device, dtype)

        def take(name: str) -> Tensor:
            return tensors[name].to(self.device, dtype)

        def scalars(name: str) -> list[float]:
            values: list[float] = tensors[name].tolist()
            return values

        zeros = [0.0] * config.n_layer
        resid = scalars("resid_lambdas") if variant.lambdas else zeros
        initial = scalars("x0_lambdas") if variant.lambdas else zeros
        bigram = scalars("bigram_lambdas") if variant.bigram else zeros
        scales = list(zip(resid, initial, bigram, strict=True))
        windows = config.windows(variant)
        value_layers = config.value_layers(variant)

        self._layers: list[_Layer] = []
        for layer in range(config.n_layer):
            block = f"transformer.h.{layer}"
            has_value = layer in value_layers
            qkv = torch.cat([take(f"{block}.attn.{name}.weight") for name in ("c_q", "c_k", "c_v")])
            self._layers.append(
                _Layer(
                    qkv=qkv,
                    attn_out=take(f"{block}.attn.c_proj.weight"),
                    mlp_in=take(f"{block}.mlp.c_fc.weight"),
                    mlp_out=take(f"{block}.mlp.c_proj.weight"),
                    window=windows[layer],
                    scales=scales[layer] if variant.lambdas else None,
                    value_embed=take(f"value_embeds.{layer}.weight") if has_value else None,
                    value_gate=take(f"{block}.attn.ve_gate.weight") if has_value else None,
                )
            )
            release()
        self._embedding = take("transformer.wte.weight")
        # Cropped here, so that the rows of the padding are never multiplied.
        self._head = take("lm_head.weight")[: config.vocab_size]
        self._bigram_embedding = take("bigram_embed.embed.weight") if variant.bigram else None
        self._smear_gate = take("smear_gate.weight") if variant.smear else None
        self._smear_lambda = scalars("smear_lambda")[0] if variant.smear else 0.0
        self._backout_lambda = scalars("backout_lambda")[0] if variant.smear else 0.0
        self._backout_layer = config.n_layer // 2 if variant.smear else -1

        channel = torch.arange(0, config.head_dim, 2, dtype=torch.float32)
        frequencies = 1.0 / variant.rotary_base ** (channel / config.head_dim)
        self._frequencies = frequencies.to(self.device)
        self._qk_scale = (
            None
            if variant.qk_scale == 1.0
            else torch.full((config.head_dim,), variant.qk_scale, device=self.device)
        )
        self._embedded = self._bigram = 0
        self.native, self.native_note = listed(self.device, self.shape, dtype, self._list_step)

    def new_cache(self, batch: int, seq: int) -> KVCache:
        """An empty cache with room for `seq` positions of `batch` rows."""
        shape = self.shape
        return KVCache(
            shape.n_layer,
            batch,
            seq,
            shape.n_kv_head,
            shape.head_dim,
            dtype=self.dtype,
            device=self.device,
            backend=self._backend,
        )

    def parameters(self) -> int:
        """As nanochat counts them: tables and padding included."""
        return self._parameters

    def weight_bytes(self) -> int:
        """Bytes of the matrices that one decode step reads; of the tables it reads single rows."""
        return sum(layer.weight_bytes() for layer in self._layers) + self._head.nbytes

    def forward(self, ids: Tensor, cache: Cache, *, all_positions: bool = False) -> Tensor:
        """Run `ids` (B, T) behind what `cache` holds and append them to it.

        Returns float32 logits, (B, vocab_size) of the last position, or (B, T, vocab_size) of all.
        """
        time = ids.size(1)
        rotary = self._rotary(cache.positions(time))
        x = _norm(F.embedding(ids, self._embedding))
        if self._smear_gate is not None:
            x = self._smear(x, self._smear_gate, cache)
        bigrams = None
        if self._bigram_embedding is not None:
            bigrams = self._bigrams(ids, self._bigram_embedding, cache)
        if self.native and (spans := self.native.takes(ids, cache)):
            given = {self._embedded: x[:, 0]}
            if bigrams is not None:
                given[self._bigram] = bigrams[:, 0]
            logits = self.native.run(ids, spans, [turn.flatten() for turn in rotary], given)
            cache.advance(1)
            return logits[:, None] if all_positions else logits
        embedded = middle = x
        for index, layer in enumerate(self._layers):
            if layer.scales is not None:
                resid, initial, bigram = layer.scales
                x = torch.add(x * resid, embedded, alpha=initial)
                if bigrams is not None:
                    x = torch.add(x, bigrams, alpha=bigram)
            asked = time
            if not all_positions and index == self.config.n_layer - 1:
                asked = 1  # behind the last keys and values only the last position is of use
            attended = self._attention(index, layer, _norm(x), ids, rotary, cache, asked)
            x = x[:, -asked:]
            x, normed = self.pieces.add_norm(x, attended, None, EPS)
            hidden = self.pieces.squared_relu(F.linear(normed, layer.mlp_in))
            x = x + F.linear(hidden, layer.mlp_out)
            if index == self._backout_layer:
                middle = x
        cache.advance(time)
        if not all_positions:
            x, middle = x[:, -1], middle[:, -1]
        if self._backout_layer >= 0:
            x = torch.sub(x, middle, alpha=self._backout_lambda)
        logits = F.linear(_norm(x), self._head).float()
        return torch.tanh(logits / self.variant.softcap) * self.variant.softcap

    def _list_step(self, p: Program) -> None:
        """What `forward` computes for one token, from behind the embeddings on."""
        width, dim = self.shape.n_embd, self.shape.head_dim
        n_head, n_kv_head = self.shape.n_head, self.shape.n_kv_head
        turned, eps = n_head + n_kv_head, EPS
        x, h, attended = p.register(width), p.register(width), p.register(width)
        self._embedded, self._bigram = p.register(width), p.register(width)
        qkv, hidden, middle = (
            p.register((turned + n_kv_head) * dim),
            p.register(4 * width),
            p.register(width),
        )
        qk_scale = None if self._qk_scale is None else self._qk_scale.repeat(turned)
        p.mix(x, 0.0, self._embedded, 1.0, width)
        for index, layer in enumerate(self._layers):
            if layer.scales is not None:
                resid, initial, bigram = layer.scales
                p.mix(x, resid, self._embedded, initial, width)
                if self._bigram_embedding is not None:
                    p.mix(x, 1.0, self._bigram, bigram, width)
            p.norm(h, x, width, None, eps)
            p.product(qkv, h, Matrix.dense(layer.qkv))
            p.rotate_halves(qkv, turned)
            p.norm(qkv, qkv, dim, qk_scale, eps, heads=turned)
            if layer.value_embed is not None and layer.value_gate is not None:
                values = qkv + turned * dim
                p.value_embedding(
                    values, h, layer.value_embed, layer.value_gate, self.variant.gate_scale
                )
            p.attend(attended, qkv, index, layer.window[0])
            p.product(x, attended, Matrix.dense(layer.attn_out), add=True)
            p.norm(h, x, width, None, eps)
            p.product(hidden, h, Matrix.dense(layer.mlp_in))
            p.squared_relu(hidden, hidden, 4 * width)
            p.product(x, hidden, Matrix.dense(layer.mlp_out), add=True)
            if index == self._backout_layer:
                p.mix(middle, 0.0, x, 1.0, width)
        if self._backout_layer >= 0:
            p.mix(x, 1.0, middle, -self._backout_lambda, width)
        p.norm(h, x, width, None, eps)
        p.product(LOGITS, h, Matrix.dense(self._head))
        p.cap(self.variant.softcap)

    def _attention(
        self,
        index: int,
        layer: _Layer,
        x: Tensor,
        ids: Tensor,
        rotary: tuple[Tensor, Tensor],
        cache: Cache,
        asked: int,
    ) -> Tensor:
        """x (B, T, C), normed -> what this layer's attention adds to the last `asked` positions,
        (B, asked, C)."""
        batch, time, width = x.shape
        heads, kv_heads, dim = self.shape.n_head, self.shape.n_kv_head, self.shape.head_dim
        qkv = F.linear(x, layer.qkv).view(batch, time, heads + 2 * kv_heads, dim)
        # q and k are treated alike, and in float32: by 2,048 positions the angles are past bf16.
        qk = qkv[:, :, : heads + kv_heads]
        qk = self.pieces.rotate_halves(qk, *rotary, self._qk_scale, EPS)
        v = qkv[:, :, heads + kv_heads :]
        if layer.value_embed is not None and layer.value_gate is not None:
            gate = F.linear(x[..., : self.variant.gate_channels], layer.value_gate).sigmoid()
            value = F.embedding(ids, layer.value_embed).view(batch, time, kv_heads, dim)
            v = torch.addcmul(v, value, gate[..., None], value=self.variant.gate_scale)
        q, k = qk[:, -asked:, :heads], qk[:, :, heads:]
        y = cache.attend(index, q, k, v, layer.window)
        return F.linear(y.reshape(batch, asked, width), layer.attn_out)

    def _rotary(self, positions: Positions) -> tuple[Tensor, Tensor]:
        """(cos, sin), each (T, 1, D) or (B, T, 1, D) in float32.

        For halves (a, b) of a head, x * cos + roll(x, D / 2) * sin with cos repeated and
        sin = (sin, -sin) is (a cos + b sin, b cos - a sin): a rotation by minus the angle.
        """
        if isinstance(positions, slice):
            positions = torch.arange(
                positions.start, positions.stop, dtype=torch.float32, device=self.device
            )
        angles = positions[..., None, None].float() * self._frequencies
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1), torch.cat((sin, -sin), -1)

    def _smear(self, x: Tensor, gate: Tensor, cache: Cache) -> Tensor:
        """Add to each normed embedding (B, T, C) a gated share of the one before it.

        nanochat does not smear the first token of a longer chunk that continues a cache, though it
        was trained with every token smeared; here the embedding before it comes from the cache.
        """
        previous = cache.state.get(PREV_EMBEDDING)
        if previous is None:
            previous = torch.zeros_like(x[:, :1])
        before = torch.cat((previous, x[:, :-1]), 1)
        cache.remember(PREV_EMBEDDING, x[:, -1:])
        share = F.linear(x[..., :SMEAR_CHANNELS], gate).sigmoid()
        return torch.addcmul(x, before, share, value=self._smear_lambda)

    def _bigrams(self, ids: Tensor, table: Tensor, cache: Cache) -> Tensor:
        """The hashed bigram's embedding of each position, (B, T, C). The very first position has no
        bigram and takes the table's last row, which no hash reaches.

        nanochat hashes every cached step as a first position; here the previous token is taken from
        the cache.
        """
        ids = ids.long()
        previous = cache.state.get(PREV_TOKEN)
        before = torch.cat((ids[:, :1] if previous is None else previous, ids[:, :-1]), 1)
        cache.remember(PREV_TOKEN, ids[:, -1:])
        last = table.size(0) - 1
        rows = torch.bitwise_xor(36313 * ids, 27191 * before) % last
        if previous is None:
            rows[:, 0] = last
        return F.embedding(rows, table)
