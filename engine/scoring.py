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
from engine.sampling import beyond
from engine.tokenizer import Tokenizer


def score(
    logits: Tensor,
    tokens: Sequence[int],
    tokenizer: Tokenizer,
    alternatives: int,
    *,
    temperatures: Sequence[float | None] = (),
    top_ks: Sequence[int | None] = (),
) -> list[TokenScore]:
    """Scores of `tokens`, one for each row of logits (len(tokens) or 1, vocab_size).

    `temperatures` are those that the rows were sampled at, None where the token was not sampled;
    `top_ks` are the rows' too.
    """
    rows = len(tokens)
    logits = logits.expand(rows, -1)
    chosen = logits.gather(1, torch.tensor(tokens, device=logits.device)[:, None])
    total = logits.logsumexp(-1, keepdim=True)
    # H = -sum p log p = total - sum p * logit
    entropy = total[:, 0] - ((logits - total).exp_() * logits).sum(-1)
    rank = (logits > chosen).sum(-1)
    values, ranked = logits.topk(min(alternatives, logits.size(-1)))
    vocab = logits.size(-1)
    widths = [min(top_k or vocab, vocab) for top_k in top_ks] or [vocab] * rows
    sampled = _sampled(logits, chosen, temperatures, widths) if any(temperatures) else None

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
        elif temperature is not None and sampled is not None and place < widths[row]:
            drawn = sampled[row]
        piece = tokenizer.token_bytes(tokens[row])
        out.append(
            TokenScore(tokens[row], piece, logprob, drawn, nats, place, pieces(ids, logprobs))
        )
    return out


def _sampled(
    logits: Tensor, chosen: Tensor, temperatures: Sequence[float | None], widths: Sequence[int]
) -> list[float]:
    """Log-probabilities in softmax(top-k(logits) / temperature), with row i's k in `widths[i]`;
    rows at temperature 0 or None hold nothing."""
    scale = torch.tensor([[t or 1.0] for t in temperatures], device=logits.device)
    kept = logits if min(widths) == logits.size(-1) else logits.topk(max(widths)).values
    if len(set(widths)) > 1:
        kept = kept.masked_fill(beyond(widths, kept.device), -torch.inf)
    out: list[float] = (chosen / scale - (kept / scale).logsumexp(-1, keepdim=True))[:, 0].tolist()
    return out
