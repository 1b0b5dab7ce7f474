"""What the model thought of a token: probability, entropy, rank, and what else could have stood
there.

Read off the logits that the step computed anyway; nothing is run a second time. Two distributions
are told apart: the model's own, at temperature 1 before top-k, and the one that was sampled from.
`measure` is the arithmetic, on the device of the logits, and `read` what the host makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.messages import Alternative, TokenScore
from engine.native import library
from engine.native import logits as logits_of
from engine.native.logits import MOST
from engine.sampling import Kept
from engine.tokenizer import Tokenizer


def measure(
    logits: Tensor, ids: Tensor, alternatives: int, scale: Tensor | None, kept: Kept | None
) -> Tensor:
    """What `read` wants to know of `ids` (B,), without waiting for the device.

    Args:
        logits: float32 (B, vocab_size).
        scale: (B, 1), the temperatures that rows were sampled at, 1 where they were not; None where
            no row was sampled at one.
        kept: of the sampling, with `scale`.

    Returns: float64 (B, 4 + 2 * alternatives): the logarithm of the probability, and of that in the
        distribution that was sampled from; entropy; rank; the alternatives' logarithms and ids.
    """
    chosen = logits.gather(1, ids[:, None])
    total = logits.logsumexp(-1, keepdim=True)
    # H = -sum p log p = total - sum p * logit
    entropy = total - ((logits - total).exp_() * logits).sum(-1, keepdim=True)
    rank = (logits > chosen).sum(-1, keepdim=True)
    values, ranked = logits.topk(min(alternatives, logits.size(-1)))
    drawn = torch.full_like(chosen, math.nan)
    if scale is not None and kept is not None:
        whole = kept.most == logits.size(-1) and kept.of_row is None
        among = logits if whole else kept.cut(logits.topk(kept.most).values)
        drawn = chosen / scale - (among / scale).logsumexp(-1, keepdim=True)
    cells = (chosen - total, drawn, entropy, rank, values - total, ranked)
    return torch.cat([cell.double() for cell in cells], 1)


def measured(
    logits: Tensor,
    tokens: Sequence[int],
    alternatives: int,
    temperatures: Sequence[float | None],
    top_ks: Sequence[int | None],
) -> list[list[float]]:
    """`measure` for a host that knows everything; logits (len(tokens) or 1, vocab_size)."""
    device, vocab = logits.device, logits.size(-1)
    counts = [min(top_k or vocab, vocab) for top_k in top_ks]
    native = library.load() if device.type == "cpu" else None
    if native and all(count <= MOST or count == vocab for count in (alternatives, *counts)):
        scales = [temperature or 1.0 for temperature in temperatures]
        return logits_of.measure(native, logits, tokens, alternatives, scales, counts)
    scale = kept = None
    if any(temperatures):
        scale = torch.tensor([[t or 1.0] for t in temperatures], device=device)
        kept = Kept.of(top_ks, logits.size(-1), device)
    ids = torch.tensor(tokens, device=device)
    cells: list[list[float]] = measure(
        logits.expand(len(tokens), -1), ids, alternatives, scale, kept
    ).tolist()
    return cells


def read(
    measured: Sequence[Sequence[float]],
    tokens: Sequence[int],
    tokenizer: Tokenizer,
    temperatures: Sequence[float | None],
    top_ks: Sequence[int | None],
) -> list[TokenScore]:
    """Scores out of the rows of `measure`, one for each of `tokens`. `temperatures` are those that
    they were sampled at, None where one was not; `top_ks` are the rows' too."""
    out = []
    for token, cells, temperature, top_k in zip(
        tokens, measured, temperatures, top_ks, strict=True
    ):
        logprob, drawn, entropy, rank, *others = cells
        count = len(others) // 2
        alternatives = tuple(
            Alternative(int(id), tokenizer.token_bytes(int(id)), other)
            for other, id in zip(others[:count], others[count:], strict=True)
        )
        sampled = _sampled(drawn, rank, temperature, top_k)
        piece = tokenizer.token_bytes(token)
        out.append(TokenScore(token, piece, logprob, sampled, entropy, int(rank), alternatives))
    return out


def _sampled(
    drawn: float, rank: float, temperature: float | None, top_k: int | None
) -> float | None:
    """`TokenScore.sampled_logprob`."""
    if temperature is None or (top_k is not None and rank >= top_k):
        return None
    if temperature == 0:
        return 0.0 if rank == 0 else None
    return drawn
