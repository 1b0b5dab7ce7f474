"""nanochat in the form of its Hugging Face port, against `transformers`; base models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import NanoChatConfig

from engine import Engine, SamplingParams, load_model
from engine.errors import ModelFileError
from tests.engine.tiny_models import VOCAB, build, write_tokenizer

DATA = Path(__file__).parent.parent / "data" / "nanochat"
TOKENS = [(7 * i * i + 3 * i) % VOCAB for i in range(60)]


@pytest.fixture
def port(tmp_path: Path) -> Any:
    config = NanoChatConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    model = build(config)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    return model


def test_logits_are_those_of_transformers(port, tmp_path):
    loaded = load_model(str(tmp_path), device="cpu", dtype="float32")
    with torch.inference_mode():
        expected = port(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(loaded.logits(TOKENS), expected, atol=1e-4, rtol=1e-4)
    assert (loaded.info.family, loaded.info.variant) == ("nanochat", "V0")
    assert loaded.info.parameters == sum(p.numel() for p in port.parameters())


def test_the_config_says_cap_and_rotary_base(port, tmp_path):
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.update(final_logit_softcapping=2.0)
    config["rope_parameters"]["rope_theta"] = 500.0
    path.write_text(json.dumps(config))
    variant = load_model(str(tmp_path), device="cpu").model.variant  # type: ignore[attr-defined]
    assert (variant.softcap, variant.rotary_base) == (2.0, 500.0)
    asked = load_model(str(tmp_path), device="cpu", assume={"softcap": 20.0})
    assert asked.model.variant.softcap == 20.0  # type: ignore[attr-defined]
    assert any("softcap 20" in note for note in asked.info.assumptions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 2}, "3"),
        ({"hidden_act": "silu"}, "not that of a nanochat"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": 10**15}, "not a plausible size"),
    ],
)
def test_a_port_that_does_not_fit_its_config_is_refused(port, tmp_path, changes, message):
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match=message):
        load_model(str(tmp_path), device="cpu")


def test_a_base_model_continues_the_text(tmp_path, monkeypatch):
    """As its text stands, from the start of a document on; there are no turns in it."""
    base = tmp_path / "base_checkpoints" / "d4"
    shutil.copytree(DATA / "V0" / "chatsft_checkpoints" / "d4", base)
    shutil.copytree(DATA / "V0" / "tokenizer", tmp_path / "tokenizer")
    monkeypatch.setenv("NANOCHAT_BASE_DIR", str(tmp_path))
    loaded = load_model("nanochat:base", device="cpu", dtype="float32")
    bos = loaded.tokenizer.special("<|bos|>")
    text = "Once upon a time"
    prompt = loaded.chat_format.render([], text, None)
    assert prompt == [bos, *loaded.tokenizer.encode(text)]
    assert loaded.chat_format.stop_tokens == {bos}
    assert loaded.info.chat_format == "plain"
    assert loaded.info.tool_dialect == "none"
    assert any("continues the text" in note for note in loaded.info.assumptions)
    assert list(Engine(loaded).generate(prompt, 1, SamplingParams(max_tokens=3)))
