"""SmolLM2 as it is shipped, against what `transformers` computed with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine import Engine, LoadedModel, SamplingParams, load_model
from engine.models.layers import Int4Linear, Int8Linear, Rotary, pair_up
from engine.models.pieces import PLAIN

DATA = Path(__file__).parent.parent / "data" / "smollm2"
KEPT = ("columns", "sums", "best")
TEXT = "Once upon a time, in a village by the sea, there lived"


@pytest.mark.parametrize("text", range(3))
def test_logits_are_those_of_transformers(exact: LoadedModel, text: int) -> None:
    """What was kept of theirs, and why it is enough, stands in `make.py` beside it."""
    with np.load(DATA / "logits.npz") as saved:
        theirs = {name: saved[f"{name}{text}"] for name in ("text", "tokens", *KEPT)}
    tokens = exact.tokenizer.encode(str(theirs["text"]))
    assert tokens == theirs["tokens"].tolist()
    logits = exact.logits(tokens)
    columns, sums = logits[:, ::64], logits.unflatten(1, (-1, 256)).sum(-1)
    torch.testing.assert_close(columns, torch.tensor(theirs["columns"]), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(sums, torch.tensor(theirs["sums"]), atol=0.02, rtol=0)
    assert logits.argmax(-1).tolist() == theirs["best"].tolist()


def test_decoding_with_the_cache_is_the_full_forward_pass(exact):
    tokens = exact.tokenizer.encode(TEXT * 3)
    cache = exact.model.new_cache(1, len(tokens))
    full = exact.logits(tokens)
    with torch.inference_mode():
        for start, end in ((0, 7), (7, 8), (8, 20), (20, 21), (21, len(tokens))):
            chunk = torch.tensor([tokens[start:end]])
            logits = exact.model.forward(chunk, cache, all_positions=True)[0]
            torch.testing.assert_close(logits, full[start:end], atol=1e-3, rtol=1e-4)


def test_row_zero_is_the_same_alone_and_among_eight(exact):
    prompt = exact.chat_format.render([], "Name a colour.", None)
    params = SamplingParams((0.9,), max_tokens=12, seed=3)

    def rows(samples: int) -> list[tuple[int | None, ...]]:
        steps = list(Engine(exact).generate(prompt, samples, params))
        return [tuple(step.tokens[row] for step in steps) for row in range(samples)]

    alone, among = rows(1), rows(8)
    ours = tuple(token for token in among[0] if token is not None)
    assert ours == alone[0]


def test_the_shipped_weights_stay_as_small_as_they_are(smollm2_path, exact):
    shipped = load_model(str(smollm2_path), device="cpu")
    assert shipped.info.dtype == "Q4_1, Q8_0"
    assert shipped.info.parameters == exact.info.parameters == 134_515_008
    assert shipped.info.weight_bytes < smollm2_path.stat().st_size
    assert shipped.info.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2
    # Close to the exact weights: the distribution over the next token moves by a few thousandths.
    tokens = exact.tokenizer.encode(TEXT)
    p, q = (loaded.logits(tokens).log_softmax(-1) for loaded in (exact, shipped))
    assert float((p.exp() * (p - q)).sum(-1).mean()) < 0.01


def test_four_bit_products_are_those_of_the_dequantised_weights():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (96, 128), generator=generator, dtype=torch.uint8)
    scales = torch.rand(96, 4, generator=generator) / 64
    minimums = torch.rand(96, 4, generator=generator) / -8
    linear = Int4Linear.pack(codes, scales, minimums)
    weight = codes.view(96, 4, 32) * scales[..., None] + minimums[..., None]
    x = torch.randn(20, 128, generator=generator)
    expected = x @ weight.view(96, 128).T
    for rows in (1, 4, 20):  # on both sides of the width at which the kernel changes
        out = linear(x[:rows].bfloat16()).float()
        torch.testing.assert_close(out, expected[:rows], atol=0.06, rtol=0.03)


def test_eight_bit_products_are_close_to_the_weights():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 128, generator=generator)
    linear = Int8Linear.quantise(weight)
    x = torch.randn(8, 128, generator=generator)
    for rows in (1, 8):
        out = linear(x[:rows].bfloat16()).float()
        torch.testing.assert_close(out, x[:rows] @ weight.T, atol=0.25, rtol=0.03)


def test_pairing_up_turns_halves_into_adjacent_pairs():
    """Turning (i, i + D/2) and then pairing up is pairing up and then turning (2i, 2i + 1)."""
    x = torch.randn(1, 3, 2, 8)
    rotary = Rotary(torch.tensor([1.0, 0.5, 0.25, 0.125]))
    table = rotary.table(slice(5, 8))
    cos, sin = table.real, table.imag
    a, b = x.chunk(2, -1)
    halves = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def paired(t: torch.Tensor) -> torch.Tensor:
        rows = t.reshape(3, 16).T  # (heads * D, positions), as the rows of a weight
        return pair_up(rows, 8).T.contiguous().view(1, 3, 2, 8)

    torch.testing.assert_close(PLAIN.rotate_pairs(paired(x), table), paired(halves))
