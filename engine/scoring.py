"""What the model thought of a token: probability, entropy, rank, and what else could have stood
there.

Read off the logits that the step computed anyway; nothing is run a second time. Two distributions
are told apart: the model's own, at temperature 1 before top-k, and the one that was sampled from.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.messages import Alternative, TokenScore
from engine.tokenizer import Tokenizer


def score(
    logits: Tensor,
    tokens: Sequence[int],
    tokenizer: Tokenizer,
    alternatives: int,
    *,
    temperatures: Sequence[float | None] = (),
    top_k: int | None = None,
) -> list[TokenScore]:
    """Scores of `tokens`, one for each row of logits (len(tokens) or 1, vocab_size).

    `temperatures` are those that the rows were sampled at, None where the token was not sampled.
    """
    rows = len(tokens)
    logits = logits.expand(rows, -1)
    chosen = logits.gather(1, torch.tensor(tokens, device=logits.device)[:, None])
    total = logits.logsumexp(-1, keepdim=True)
    # H = -sum p log p = total - sum p * logit
    entropy = total[:, 0] - ((logits - total).exp_() * logits).sum(-1)
    rank = (logits > chosen).sum(-1)
    values, ranked = logits.topk(min(alternatives, logits.size(-1)))
    sampled = _sampled(logits, chosen, temperatures, top_k) if any(temperatures) else None

    def pieces(ids: Sequence[int], logprobs: Sequence[float]) -> tuple[Alternative, ...]:
        return tuple(
            Alternative(token, tokenizer.token_bytes(token), logprob)
            for token, logprob in zip(ids, logprobs, strict=True)
        )

    out = []
    columns = (chosen - total)[:, 0], entropy, rank, values - total, ranked
    for row, (logprob, nats, place, logprobs, ids) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        temperature = temperatures[row] if temperatures else None
        drawn: float | None = None
        if temperature == 0:
            drawn = 0.0 if place == 0 else None
        elif temperature is not None and sampled is not None and (top_k is None or place < top_k):
            drawn = sampled[row]
        piece = tokenizer.token_bytes(tokens[row])
        out.append(
            TokenScore(tokens[row], piece, logprob, drawn, nats, place, pieces(ids, logprobs))
        )
    return out


def _sampled(
    logits: Tensor, chosen: Tensor, temperatures: Sequence[float | None], top_k: int | None
) -> list[float]:
    """Log-probabilities in softmax(top-k(logits) / temperature); rows at temperature 0 or None hold
    nothing."""
    scale = torch.tensor([[t or 1.0] for t in temperatures], device=logits.device)
    kept = logits if top_k is None else logits.topk(min(top_k, logits.size(-1))).values
    out: list[float] = (chosen / scale - (kept / scale).logsumexp(-1, keepdim=True))[:, 0].tolist()
    return out
