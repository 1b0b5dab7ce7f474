"""What the published forms of nanochat do differently, as a table; and the parameters that a form
has at the sizes of a checkpoint.

karpathy/nanochat changed its architecture eight times between October 2025 and March 2026 and
says in a checkpoint neither which form it has nor the constants that go with it. A `Variant` is one
such form as a row of data; `tensor_shapes` says which parameters a form has, and
`engine/loading/nanochat.py` tells the form of a checkpoint by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.attention import UNLIMITED, Window

SMEAR_CHANNELS = 24
"""How much of an embedding V6's smear gate looks at."""

BIGRAM_ROWS_PER_TOKEN = 5
"""Rows of V3e's hashed bigram table for each row of the vocabulary."""


def _half(sequence_len: int) -> int:
    return sequence_len // 2


def _rounded_up(sequence_len: int, parts: int) -> int:
    """`sequence_len / parts`, up to the next multiple of 128, the tile of FA3."""
    return -(-sequence_len // (parts * 128)) * 128


@dataclass(frozen=True)
class Variant:
    """One published form of the architecture.

    Attributes:
        name: V0 to V6. V1 lived for hours; V3e was tried for a day, then V3 went on.
        since: when it came to nanochat's master branch.
        rotary_base: of the rotary frequencies.
        qk_scale: q and k are multiplied by it after their norm, which sharpens attention.
        softcap: logits are kept within plus and minus this.
        short_window: tokens that an `S` layer sees before its own, from the training length;
            None where every layer sees everything.
        lambdas: each layer begins with resid_lambda * x + x0_lambda * (the embedding).
        gate_channels: channels that gate the value embeddings; 0 where there are none.
        gate_scale: the gate is this times a sigmoid.
        bigram: a hash of (previous token, token) looks up a second embedding.
        smear: a gated share of the previous token's embedding is added to each embedding, and a
            share of the middle layer's output is taken off the last one's ("backout").
    """

    name: str
    since: str
    rotary_base: float
    qk_scale: float
    softcap: float
    short_window: Callable[[int], int] | None
    lambdas: bool
    gate_channels: int
    gate_scale: float
    bigram: bool
    smear: bool

    @property
    def min_width(self) -> int:
        """Channels that its gates read."""
        return max(self.gate_channels, SMEAR_CHANNELS if self.smear else 0)


_third, _quarter = partial(_rounded_up, parts=3), partial(_rounded_up, parts=4)

# fmt: off
VARIANTS: dict[str, Variant] = {variant.name: variant for variant in (
    #                            rotary q,k         short     lamb-  gates      bi-    smear,
    #       name   since         base   scale cap   window    das    of  times  gram   backout
    Variant("V0",  "2025-10-13", 1e4,   1.00, 15.0, None,     False,  0, 0.0,   False, False),
    Variant("V1",  "2026-01-11", 1e4,   1.00, 15.0, None,     True,   0, 0.0,   False, False),
    Variant("V2",  "2026-01-11", 1e4,   1.00, 15.0, _half,    True,   0, 0.0,   False, False),
    Variant("V3",  "2026-01-18", 1e4,   1.00, 15.0, _half,    True,  32, 2.0,   False, False),
    Variant("V3e", "2026-01-27", 1e4,   1.00, 15.0, _half,    True,  32, 2.0,   True,  False),
    Variant("V4",  "2026-03-03", 1e4,   1.00, 20.0, _half,    True,  32, 2.0,   False, False),
    Variant("V5",  "2026-03-09", 1e5,   1.15, 15.0, _third,   True,  12, 3.0,   False, False),
    Variant("V6",  "2026-03-14", 1e5,   1.20, 15.0, _quarter, True,  12, 3.0,   False, True),
)}
# fmt: on


@dataclass(frozen=True)
class Config:
    """The sizes of one checkpoint: nanochat's `model_config`, and the rows of its tables.

    Attributes:
        sequence_len: the length it was trained at; a long window is as wide as this.
        window_pattern: `S` and `L`, tiled over the layers; the last layer is long whatever it says.
        vocab_rows: rows of the vocabulary's tables: `vocab_size`, since 2025-12-23 up to the next
            multiple of 64. The logits of the rows past `vocab_size` are dropped.
        bigram_rows: rows of V3e's bigram table, else 0.
    """

    sequence_len: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    n_embd: int
    window_pattern: str
    vocab_rows: int
    bigram_rows: int = 0

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    def value_layers(self, variant: Variant) -> range:
        """The layers with a value embedding: every second one, so that the last is among them."""
        if not variant.gate_channels:
            return range(0)
        return range((self.n_layer - 1) % 2, self.n_layer, 2)

    def windows(self, variant: Variant) -> list[Window]:
        """The attention window of each layer. (N, 0) is a token and the N before it."""
        if variant.short_window is None:
            return [UNLIMITED] * self.n_layer
        widths = {"S": variant.short_window(self.sequence_len), "L": self.sequence_len}
        pattern = self.window_pattern
        letters = [pattern[layer % len(pattern)] for layer in range(self.n_layer - 1)]
        return [(widths[letter], 0) for letter in [*letters, "L"]]


def tensor_shapes(config: Config, variant: Variant) -> dict[str, tuple[int, ...]]:
    """Every parameter of `variant` at the sizes of `config`: its name in a checkpoint and its
    shape."""
    width, kv_width = config.n_embd, config.n_kv_head * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (config.vocab_rows, width),
        "lm_head.weight": (config.vocab_rows, width),
    }
    for layer in range(config.n_layer):
        block = f"transformer.h.{layer}"
        shapes[f"{block}.attn.c_q.weight"] = (width, width)
        shapes[f"{block}.attn.c_k.weight"] = (kv_width, width)
        shapes[f"{block}.attn.c_v.weight"] = (kv_width, width)
        shapes[f"{block}.attn.c_proj.weight"] = (width, width)
        shapes[f"{block}.mlp.c_fc.weight"] = (4 * width, width)
        shapes[f"{block}.mlp.c_proj.weight"] = (width, 4 * width)
    for layer in config.value_layers(variant):
        shapes[f"value_embeds.{layer}.weight"] = (config.vocab_rows, kv_width)
        gate = f"transformer.h.{layer}.attn.ve_gate.weight"
        shapes[gate] = (config.n_kv_head, variant.gate_channels)
    if variant.lambdas:
        shapes["resid_lambdas"] = shapes["x0_lambdas"] = (config.n_layer,)
    if variant.bigram:
        shapes["bigram_embed.embed.weight"] = (config.bigram_rows, width)
        shapes["bigram_lambdas"] = (config.n_layer,)
    if variant.smear:
        shapes["smear_gate.weight"] = (1, SMEAR_CHANNELS)
        shapes["smear_lambda"] = shapes["backout_lambda"] = (1,)
    return shapes
