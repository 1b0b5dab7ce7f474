"""The work that a model has to do, counted from its sizes: FLOPs of a prefill, bytes of a decode
step.

Counted is what the result needs, not what a kernel spends. A kernel that computes masked scores, or
reads a bf16 copy of 4-bit weights, shows a lower MFU or MBU, as it should.
"""

from __future__ import annotations

import math

from engine.attention import UNLIMITED, Window
from engine.models.base import Model
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import tensor_shapes


def block_parameters(model: Model) -> int:
    """Parameters that every position of a prompt is multiplied by.

    Not among them: embedding tables, of which one row is looked up, and the output head, which runs
    for the last position alone. (Norm weights are; they are some thousandths.)
    """
    if isinstance(model, NanochatModel):
        shapes = tensor_shapes(model.config, model.variant)
        return sum(
            math.prod(shape) for name, shape in shapes.items() if name.startswith("transformer.h.")
        )
    table = model.shape.vocab_size * model.shape.n_embd
    tied = bool(getattr(model, "tied", False))
    return max(0, model.parameters() - table * (1 if tied else 2))


def windows(model: Model) -> list[Window]:
    """The attention window of each layer."""
    if isinstance(model, NanochatModel):
        return model.config.windows(model.variant)
    return [UNLIMITED] * model.shape.n_layer


def seen(length: int, window: Window) -> int:
    """Keys that the last of `length` positions attends to, its own included."""
    left = window[0]
    return length if left < 0 else min(length, left + 1)


def prefill_flops(model: Model, tokens: int) -> int:
    """FLOPs of one prompt at batch 1.

    2 * P * T for the products of the blocks (P parameters, T tokens; Kaplan et al. 2020), plus
    4 * H * D for each pair of a query and a key that it may see, in each layer (two products, two
    FLOPs per multiply-add), plus the output head once.
    """
    shape = model.shape
    pairs = 0
    for window in windows(model):
        # Triangular up to the window's width, then constant.
        full = seen(tokens, window)
        pairs += full * (full + 1) // 2 + (tokens - full) * full
    attention = 4 * shape.n_head * shape.head_dim * pairs
    head = 2 * shape.vocab_size * shape.n_embd
    return 2 * block_parameters(model) * tokens + attention + head


def shares_prefix(model: Model, rows: int) -> bool:
    """Whether the engine lets `rows` rows attend to one copy of the prompt (`Engine.generate`)."""
    return rows > 1 and model.device.type == "cpu"


def kv_read(model: Model, rows: int, prompt: int, generated: int, *, shared: bool) -> int:
    """Bytes of keys and values that one decode step reads, when each row holds `prompt` positions
    and `generated` more, the step's own included. `shared`: the prompt's are read once for all."""
    shape = model.shape
    positions = 0
    for window in windows(model):
        visible = seen(prompt + generated, window)
        own = min(visible, generated)
        positions += (visible - own) * (1 if shared else rows) + own * rows
    return positions * 2 * shape.n_kv_head * shape.head_dim * model.dtype.itemsize


def kv_stored(model: Model, rows: int, prompt: int, generated: int, *, shared: bool) -> int:
    """Bytes of keys and values that are held by then. Windows do not shorten what is held."""
    positions = prompt * (1 if shared else rows) + generated * rows
    return positions * model.shape.kv_bytes_per_token(model.dtype)


def mean_kv_read(model: Model, rows: int, prompt: int, steps: int, *, shared: bool) -> float:
    """`kv_read` averaged over the first `steps` decode steps."""
    read = (kv_read(model, rows, prompt, step, shared=shared) for step in range(1, steps + 1))
    return sum(read) / steps


def step_bytes(model: Model, rows: int, prompt: int, steps: int) -> float:
    """Bytes that a decode step has to read, averaged over `steps`: the weights once, in their
    narrowest form, and the keys and values."""
    shared = shares_prefix(model, rows)
    return model.weight_bytes() + mean_kv_read(model, rows, prompt, steps, shared=shared)


def mbu(bytes_read: float, seconds: float, bytes_per_s: float) -> float:
    """Model bandwidth utilisation: bytes that had to be read / time / what the machine can do."""
    return bytes_read / seconds / bytes_per_s


def mfu(flops: float, seconds: float, flops_per_s: float) -> float:
    """Model FLOPs utilisation (Chowdhery et al. 2022): FLOPs needed / time / what the machine can
    do."""
    return flops / seconds / flops_per_s
