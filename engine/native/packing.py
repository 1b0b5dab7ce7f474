"""Weights in 4 or 8 bits, laid out for `step.c`: blocks of as many outputs as a vector has lanes by
32 inputs, read from the first byte to the last.

    4 bits   4 * lanes words of 8 codes, scales, zeros    w = scale * (code - 8) + zero
    8 bits   8 * lanes words of 4 codes, scales           w = scale * code

Scales and zeros are bfloat16. Outputs are filled up to whole blocks with zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32
"""Weights of one output that share a scale, as in GGUF's types."""


def pack_4bit(codes: Tensor, scales: Tensor, minimums: Tensor, lanes: int) -> Tensor:
    """From codes 0..15 (out, in) and float32 scales and minimums (out, in / 32), w = scale * code +
    minimum -> uint8 (out / lanes, in / 32, 20 * lanes)."""
    words = _words(codes.to(torch.uint8), lanes, 8)
    pairs = words[..., 0::2] | (words[..., 1::2] << 4)
    zeros = minimums + 8 * scales
    return _joined(pairs, _per_group(scales, lanes), _per_group(zeros, lanes))


def pack_8bit(weight: Tensor, lanes: int) -> Tensor:
    """From float weights (out, in): the largest magnitude of each group becomes 127 -> uint8
    (out / lanes, in / 32, 34 * lanes)."""
    groups = weight.float().view(weight.size(0), -1, GROUP)
    # The product multiplies by the bf16 scale, so the codes are rounded against that one.
    scales = (groups.abs().amax(2) / 127).clamp_min(1e-30).to(torch.bfloat16).float()
    codes = (groups / scales[..., None]).round_().clamp_(-127, 127).to(torch.int8)
    words = _words(codes.view(weight.shape), lanes, 4)
    return _joined(words, _per_group(scales, lanes))


def _words(codes: Tensor, lanes: int, per_word: int) -> Tensor:
    """(out, in) -> (out / lanes, in / 32, 32 / per_word, lanes, per_word)."""
    blocks = _filled(codes, lanes).view(
        -1, lanes, codes.size(1) // GROUP, GROUP // per_word, per_word
    )
    return blocks.permute(0, 2, 3, 1, 4)


def _per_group(values: Tensor, lanes: int) -> Tensor:
    """(out, in / 32) -> bfloat16 (out / lanes, in / 32, lanes)."""
    blocks = _filled(values, lanes).view(-1, lanes, values.size(1))
    return blocks.transpose(1, 2).to(torch.bfloat16)


def _filled(rows: Tensor, lanes: int) -> Tensor:
    missing = -rows.size(0) % lanes
    return torch.cat((rows, rows.new_zeros(missing, rows.size(1)))) if missing else rows


def _joined(*parts: Tensor) -> Tensor:
    """Side by side, as bytes, (out / lanes, in / 32, ...)."""
    return torch.cat([part.contiguous().flatten(2).view(torch.uint8) for part in parts], 2)
