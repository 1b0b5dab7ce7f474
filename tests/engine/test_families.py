"""Each family against `transformers`, on tiny random models through safetensors and GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import numpy as np
import pytest
import torch
import transformers

from engine import Engine, LoadedModel, SamplingParams, load_model
from engine.errors import EngineError, ModelFileError
from engine.native import library
from tests.engine.tiny_models import VOCAB, build, write_gguf, write_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

CONFIGS: dict[str, tuple[str | None, Any]] = {
    # name: (GGUF architecture, or None where GGUF cannot say it; config)
    "llama": ("llama", transformers.LlamaConfig(**SIZES)),
    "llama tied": ("llama", transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama 3": ("llama", transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "llama with biases": (
        "llama",
        transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    ),
    "llama, linear": (
        "llama",
        transformers.LlamaConfig(
            **SIZES, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        ),
    ),
    "llama, wide heads": ("llama", transformers.LlamaConfig(**SIZES, head_dim=32)),
    "qwen2": ("qwen2", transformers.Qwen2Config(**SIZES)),
    "qwen2 tied, yarn": (
        "qwen2",
        transformers.Qwen2Config(**SIZES, tie_word_embeddings=True, rope_parameters=YARN),
    ),
    "qwen2, windows": (
        None,
        transformers.Qwen2Config(
            **SIZES, use_sliding_window=True, sliding_window=7, max_window_layers=2
        ),
    ),
    "qwen3": ("qwen3", transformers.Qwen3Config(**SIZES, head_dim=32)),
    "mistral": ("llama", transformers.MistralConfig(**SIZES, sliding_window=None)),
    "mistral, window": (None, transformers.MistralConfig(**SIZES, sliding_window=9)),
    "gemma3": (
        "gemma3",
        transformers.Gemma3TextConfig(
            **{**SIZES, "num_hidden_layers": 7},
            head_dim=32,
            query_pre_attn_scalar=32,
            sliding_window=8,
        ),
    ),
    "gemma3, scaled": (
        None,
        transformers.Gemma3TextConfig(
            **{**SIZES, "num_hidden_layers": 7},
            head_dim=32,
            query_pre_attn_scalar=48,
            sliding_window=8,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        ),
    ),
}
TOKENS = [(7 * i * i + 3 * i) % VOCAB for i in range(60)]


def saved(tmp_path: Path, config: Any, form: str, architecture: str | None = None) -> Any:
    """The reference model, and the path of ours."""
    model = build(config)
    if form == "gguf":
        assert architecture is not None
        write_gguf(model, tmp_path / "model.gguf", architecture)
        return model, tmp_path / "model.gguf"
    shards = {"max_shard_size": "60KB"} if form == "sharded" else {}
    model.save_pretrained(tmp_path, **shards)
    write_tokenizer(tmp_path)
    return model, tmp_path


def load(path: Path, **options: Any) -> LoadedModel:
    return load_model(str(path), device="cpu", **options)


@torch.inference_mode()
def in_steps(loaded: LoadedModel) -> torch.Tensor:
    """The logits of TOKENS two at a time, narrow enough for the integer kernels."""
    cache = loaded.model.new_cache(1, len(TOKENS))
    steps = [
        loaded.model.forward(torch.tensor([TOKENS[at : at + 2]]), cache, all_positions=True)[0]
        for at in range(0, len(TOKENS), 2)
    ]
    return torch.cat(steps)


FORMS = [
    pytest.param(name, form, id=f"{name}-{form}")
    for name, (architecture, _) in CONFIGS.items()
    for form in ("safetensors", "gguf")
    if form == "safetensors" or architecture
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_logits_are_those_of_transformers(tmp_path, name, form):
    architecture, config = CONFIGS[name]
    reference, path = saved(tmp_path, config, form, architecture)
    loaded = load(path, dtype="float32")
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]
    logits = loaded.logits(TOKENS)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert loaded.info.parameters == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize("name", ["llama 3", "qwen3", "mistral, window", "gemma3"])
def test_cached_decoding_is_the_full_pass(tmp_path, name):
    _, config = CONFIGS[name]
    _, path = saved(tmp_path, config, "safetensors")
    loaded = load(path, dtype="float32")
    full = loaded.logits(TOKENS)
    cache = loaded.model.new_cache(1, len(TOKENS))
    with torch.inference_mode():
        for start, end in ((0, 7), (7, 8), (8, 30), (30, 31), (31, len(TOKENS))):
            chunk = torch.tensor([TOKENS[start:end]])
            logits = loaded.model.forward(chunk, cache, all_positions=True)[0]
            torch.testing.assert_close(logits, full[start:end], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["mistral, window", "gemma3"])
def test_rows_that_share_a_prefix_see_the_same_window_as_one_alone(tmp_path, name):
    _, config = CONFIGS[name]
    _, path = saved(tmp_path, config, "safetensors")
    loaded = load(path, dtype="float32")
    params = SamplingParams((0.0,), max_tokens=24)

    def answer(samples: int) -> list[int | None]:
        return [step.tokens[0] for step in Engine(loaded).generate(TOKENS, samples, params)]

    assert answer(1) == answer(3)


def test_shards_are_one_model(tmp_path):
    reference, path = saved(tmp_path, CONFIGS["qwen3"][1], "sharded")
    assert len(list(path.glob("*.safetensors"))) > 1
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]
    logits = load(path, dtype="float32").logits(TOKENS)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "types"),
    [("llama", "Q4_0"), ("qwen2", "Q4_1"), ("qwen3", "Q4_0"), ("gemma3", "Q8_0")],
)
def test_quantised_files_keep_their_bits_and_their_values(tmp_path, name, types):
    """The tiny model through 4 bits, against `transformers` with the dequantised weights."""
    architecture, config = CONFIGS[name]
    model = build(config)
    kind = gguf.GGMLQuantizationType[types]
    path = tmp_path / "model.gguf"
    write_gguf(model, path, architecture, lambda tensor: kind)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                packed = gguf.quants.quantize(parameter.numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(packed, kind)))
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(
        load(path, dtype="float32").logits(TOKENS), expected, atol=1e-4, rtol=1e-4
    )
    packed = load(path)
    assert packed.info.dtype == types
    p = expected.log_softmax(-1)
    for logits in (packed.logits(TOKENS), in_steps(packed)):
        assert float((p.exp() * (p - logits.log_softmax(-1))).sum(-1).mean()) < 0.01
    if types.startswith("Q4"):
        dense = packed.model.shape.n_layer * 64 * (64 * 4 + 96 * 3) * 2
        assert packed.info.weight_bytes < dense


def test_a_mixture_of_types_is_stacked(tmp_path):
    """Q4_K_M files hold v in other bits than q and k."""
    architecture, config = CONFIGS["llama"]
    model = build(config)
    q4, q8 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0
    path = tmp_path / "model.gguf"
    write_gguf(model, path, architecture, lambda tensor: q8 if "attn_v" in tensor else q4)
    exact, packed = load(path, dtype="float32"), load(path)
    p, q = exact.logits(TOKENS).log_softmax(-1), in_steps(packed).log_softmax(-1)
    assert float((p.exp() * (p - q)).sum(-1).mean()) < 0.01
    assert packed.info.dtype == "Q4_0, Q8_0"


@pytest.mark.parametrize("native", ["1", "0"], ids=["native", "PyTorch's kernels"])
def test_the_k_types_that_q4_k_m_files_are_made_of(tmp_path, monkeypatch, native):
    """Q4_K stays in 4 bits, Q6_K in 8 beside it. The `gguf` package cannot make such blocks, so
    they are random."""
    monkeypatch.setenv("CHAT_TUI_NATIVE", native)
    random = np.random.default_rng(0)
    sizes = {**SIZES, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    model = build(transformers.LlamaConfig(**sizes, tie_word_embeddings=True))
    halves = {"Q4_K": (0, 2), "Q6_K": (208,)}

    def blocks(kind: gguf.GGMLQuantizationType, shape: tuple[int, int]) -> np.ndarray:
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        rows = random.integers(0, 256, (shape[0], shape[1] // weights, size), np.uint8)
        for at in halves[kind.name]:
            scale = np.array([3e-4 if kind.name == "Q6_K" else 1e-3], np.float16)
            rows[..., at : at + 2] = scale.view(np.uint8)
        return rows.reshape(shape[0], -1)

    def kind_of(name: str) -> gguf.GGMLQuantizationType:
        six = "attn_v" in name or "ffn_down" in name or "token_embd" in name
        return gguf.GGMLQuantizationType.Q6_K if six else gguf.GGMLQuantizationType.Q4_K

    path = tmp_path / "model.gguf"
    with mock.patch.object(gguf.quants, "quantize", lambda value, kind: blocks(kind, value.shape)):
        write_gguf(model, path, "llama", kind_of)
    exact, packed = load(path, dtype="float32"), load(path)
    assert packed.info.dtype == "Q4_K, Q6_K"
    plain = load(path, dtype="bfloat16")
    expected = exact.logits(TOKENS)

    def error(loaded: LoadedModel) -> float:
        return float((in_steps(loaded) - expected).norm() / expected.norm())

    assert error(packed) < 1.5 * error(plain) < 0.3
    block = packed.model.weights.blocks[0]  # type: ignore[attr-defined]
    head = packed.model.weights.head  # type: ignore[attr-defined]
    parts = (*block.qkv.parts, block.gate_up, head)
    kernels = ["Int4Linear", "DenseLinear", "Int4Linear", "Int8Linear"]
    if library.load():
        assert [part.bits for part in parts] == [4, 8, 4, 8]
    else:
        assert [type(part).__name__ for part in parts] == kernels
    # One matrix serves as the embedding and, for wide inputs, as the head.
    weights = packed.model.weights  # type: ignore[attr-defined]
    assert weights.head.dense.data_ptr() == weights.embedding.data_ptr()


def test_of_a_model_with_images_the_text_part_is_loaded(tmp_path):
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = transformers.Gemma3Config(
        text_config=CONFIGS["gemma3"][1].to_dict(),
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=VOCAB - 1,
    )
    reference = transformers.Gemma3ForConditionalGeneration(config).float().eval()
    reference.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    loaded = load(tmp_path, dtype="float32")
    tokens = [token % 300 for token in TOKENS]
    with torch.inference_mode():
        expected = reference(input_ids=torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(loaded.logits(tokens), expected, atol=1e-4, rtol=1e-4)
    assert any("images" in note for note in loaded.info.assumptions)
    # There is no chat template to teach it a notation in.
    assert (loaded.info.chat_format, loaded.info.tool_dialect) == ("plain", "none")


def test_a_model_is_found_by_any_of_its_files_and_by_its_folder(tmp_path):
    _, folder = saved(tmp_path, CONFIGS["llama"][1], "safetensors")
    assert load(folder / "model.safetensors").info.path == str(folder)
    assert load(folder / "config.json").info.path == str(folder)
    write_gguf(build(CONFIGS["llama"][1]), folder / "sub.gguf", "llama")
    other = tmp_path / "other"
    other.mkdir()
    (folder / "sub.gguf").rename(other / "m.Q4_K_M.gguf")
    assert load(other).info.path == str(other / "m.Q4_K_M.gguf")
    # As ollama calls its files.
    (other / "m.Q4_K_M.gguf").rename(tmp_path / "sha256-0123")
    assert load(tmp_path / "sha256-0123").info.family == "llama"


@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_nothing_is_assumed_of_models_that_say_all_themselves(tmp_path, form):
    _, path = saved(tmp_path, CONFIGS["llama"][1], form, "llama")
    with pytest.raises(EngineError, match="Nothing can be assumed"):
        load(path, assume={"softcap": 20.0})


def changed(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"num_hidden_layers": 10**12}, "impossible size"),
        ({"num_hidden_layers": -1}, "impossible size"),
        ({"num_key_value_heads": 3}, "impossible sizes: 4 heads"),
        ({"hidden_size": "64"}, "'hidden_size' should be a whole number"),
        ({"hidden_size": 32}, "by its metadata it should be"),
        ({"num_hidden_layers": 3}, "does not have, such as model.layers.3"),
        ({"num_hidden_layers": 5}, "tensor blk.4.attn_norm.weight is missing"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_parameters": {"rope_theta": float("nan")}}, "make no sense"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, changes, message):
    _, path = saved(tmp_path, CONFIGS["llama"][1], "safetensors")
    changed(path, **changes)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
