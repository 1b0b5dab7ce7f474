"""SmolLM2 as it is shipped, against `transformers` on the same weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from engine import Engine, LoadedModel, SamplingParams, load_model
from engine.models.layers import Int4Linear, Int8Linear, Rotary, pair_up
from engine.models.pieces import PLAIN

TEXTS = (
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The three laws of thermodynamics say that energy",
)


@pytest.fixture(scope="module")
def exact(smollm2_path: Path) -> LoadedModel:
    return load_model(str(smollm2_path), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def reference(smollm2_path: Path):
    """`LlamaForCausalLM` with the file's weights, read and dequantised by the `gguf` package."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = {}
    for tensor in gguf.GGUFReader(smollm2_path).tensors:
        weight = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        weight = weight.reshape([int(size) for size in reversed(tensor.shape)])
        if tensor.name == "token_embd.weight":
            state["model.embed_tokens.weight"] = weight
        elif tensor.name == "output_norm.weight":
            state["model.norm.weight"] = weight
        else:
            _, layer, name, _ = tensor.name.split(".")
            if name in ("attn_q", "attn_k"):  # adjacent pairs to halves, as transformers turns them
                weight = weight.unflatten(0, (-1, 32, 2)).transpose(1, 2).flatten(0, 2)
            state[f"model.layers.{layer}.{names[name]}.weight"] = weight
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize("text", TEXTS)
def test_logits_are_those_of_transformers(exact, reference, text):
    tokens = exact.tokenizer.encode(text)
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0]
    logits = exact.logits(tokens)
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-4)
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


def test_decoding_with_the_cache_is_the_full_forward_pass(exact):
    tokens = exact.tokenizer.encode(TEXTS[0] * 3)
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
    tokens = exact.tokenizer.encode(TEXTS[0])
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
