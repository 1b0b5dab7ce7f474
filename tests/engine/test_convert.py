"""A GGUF model written as a folder of safetensors, against what `transformers` and `tokenizers`
make of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import Engine, LoadedModel, SamplingParams, load_model
from engine.chat_format import Turn
from engine.convert import convert
from engine.errors import EngineError, ModelFileError
from engine.loading import hub_folder
from engine.loading.gguf import Metadata, read_gguf
from engine.loading.safetensors_writer import Part, write_sharded
from engine.tokenizer import Tokenizer
from engine.tokenizer_json import from_gguf
from tests.engine.test_families import CONFIGS, TOKENS
from tests.engine.test_sentencepiece import gguf_metadata, pieces  # noqa: F401
from tests.engine.test_tokenizer import varied_texts
from tests.engine.tiny_models import build, write_gguf

ARCHITECTURES = {name: each for name, (each, _) in CONFIGS.items() if each is not None}


@pytest.fixture(scope="module")
def converted(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model in float32, which holds its values exactly."""
    folder = tmp_path_factory.mktemp("converted") / "smollm2"
    convert(str(smollm2_path), folder, dtype="float32")
    return folder


# The default model.


@torch.inference_mode()
def test_transformers_computes_what_this_engine_does(converted: Path, exact: LoadedModel):
    model = AutoModelForCausalLM.from_pretrained(converted).eval()
    assert model.dtype == torch.float32
    prompt = exact.chat_format.render([], "Why is the sky blue?")
    theirs = model(torch.tensor([prompt])).logits[0]
    torch.testing.assert_close(theirs, exact.logits(prompt), atol=2e-3, rtol=1e-3)
    assert model.generation_config.eos_token_id == [2, 0]


def test_this_engine_loads_it_and_says_the_same(converted: Path, exact: LoadedModel):
    again = load_model(str(converted), device="cpu", dtype="float32")
    for field in ("parameters", "context", "chat_format", "stop_tokens", "tool_dialect"):
        assert getattr(again.info, field) == getattr(exact.info, field)
    prompt = exact.chat_format.render([], "Name three colours.", "Be brief.")
    assert again.chat_format.render([], "Name three colours.", "Be brief.") == prompt
    params = SamplingParams((0.0,), max_tokens=10)

    def greedy(loaded: LoadedModel) -> list[int | None]:
        return [step.tokens[0] for step in Engine(loaded).generate(prompt, 1, params)]

    assert greedy(again) == greedy(exact)


def test_its_tokenizer_and_template_are_those_of_the_file(converted: Path, exact: LoadedModel):
    theirs, ours = AutoTokenizer.from_pretrained(converted), exact.tokenizer
    for text in ["", *varied_texts(300)]:
        expected = ours.encode_mixed(ours.split_specials(text))
        assert theirs(text)["input_ids"] == expected, repr(text)
        assert theirs.decode(expected) == ours.decode(expected)
    assert (theirs.eos_token, theirs.pad_token_id) == ("<|im_end|>", 2)
    assert theirs.model_max_length == 8192
    answer = ours.encode("Blue.")
    said = [("user", "Which?"), ("assistant", "Blue."), ("user", "Why?")]
    rendered = theirs.apply_chat_template(
        [{"role": role, "content": content} for role, content in said],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert rendered == exact.chat_format.render([Turn("Which?", answer)], "Why?")


# Each family, and each kind of vocabulary.


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.inference_mode()
def test_every_family_is_what_it_was(tmp_path: Path, name: str):
    reference = build(CONFIGS[name][1])
    write_gguf(reference, tmp_path / "model.gguf", ARCHITECTURES[name])
    convert(str(tmp_path / "model.gguf"), tmp_path / "out", dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert type(model) is type(reference) or name == "mistral"  # llama.cpp calls that a llama
    expected = reference(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(
        model(torch.tensor([TOKENS])).logits[0], expected, atol=1e-4, rtol=1e-4
    )
    again = load_model(str(tmp_path / "out"), device="cpu", dtype="float32")
    torch.testing.assert_close(again.logits(TOKENS), expected, atol=1e-4, rtol=1e-4)


def agree(document: dict[str, Any], metadata: Metadata, path: Path) -> None:
    """The document as the `tokenizers` library and as we read it, against the metadata."""
    path.write_text(json.dumps(document))
    library = tokenizers.Tokenizer.from_file(str(path))
    ours, again = Tokenizer.from_gguf(metadata), Tokenizer.from_tokenizer_json(path)
    assert again.special_tokens == ours.special_tokens
    for text in varied_texts(150):
        mixed = ours.encode_mixed(ours.split_specials(text))
        assert library.encode(text, add_special_tokens=False).ids == mixed, repr(text)
        assert again.encode(text) == ours.encode(text), repr(text)
        assert again.decode(mixed) == ours.decode(mixed)


@pytest.mark.parametrize("splitter", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
def test_byte_level_vocabularies_are_written_as_they_are(
    smollm2_path: Path, tmp_path: Path, splitter: str
):
    values = read_gguf(smollm2_path).metadata
    metadata = Metadata({**values, "tokenizer.ggml.pre": splitter}, values.source)
    agree(from_gguf(metadata, None), metadata, tmp_path / "tokenizer.json")


@pytest.mark.parametrize("prefix", [True, False])
def test_vocabularies_of_sentencepiece_are_written_as_they_are(
    pieces: list[str],  # noqa: F811
    tmp_path: Path,
    prefix: bool,
):
    metadata = gguf_metadata(pieces, add_space_prefix=prefix)
    document = from_gguf(metadata, bos=1)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    library = tokenizers.Tokenizer.from_file(str(path))
    ours, again = Tokenizer.from_gguf(metadata), Tokenizer.from_tokenizer_json(path)
    for text in varied_texts(150):
        ids = ours.encode(text)
        assert library.encode(text).ids == [1, *ids], repr(text)
        assert library.decode(ids) == ours.decode(ids)
        assert again.encode(text) == ids


# What can go wrong.


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    write_gguf(build(CONFIGS["llama"][1]), tmp_path / "model.gguf", "llama")
    return str(tmp_path / "model.gguf")


def test_nothing_is_overwritten(tiny: str, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("mine")
    for taken in (tmp_path / "file", tmp_path / "folder"):
        with pytest.raises(EngineError, match="nothing is overwritten"):
            convert(tiny, taken)
    assert (tmp_path / "folder" / "file").read_text() == "mine"


def test_an_empty_folder_is_taken_and_bfloat16_is_the_default(tiny: str, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    told: list[tuple[int, int]] = []
    convert(tiny, empty, progress=lambda what, done, total: told.append((done, total)))
    assert {path.name for path in empty.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    size = 2 * sum(p.numel() for p in build(CONFIGS["llama"][1]).parameters())
    assert told[-1] == (size, size)
    assert json.loads((empty / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_what_is_cut_off_leaves_nothing(tiny: str, tmp_path: Path):

    def interrupt(what: str, done: int, total: int) -> None:
        assert len(os.listdir(tmp_path)) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tiny, tmp_path / "out", progress=interrupt)
    assert os.listdir(tmp_path) == ["model.gguf"]


def test_a_disk_that_is_full_is_said_before_anything_is_written(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = type("Usage", (), {"free": 1 << 10})
    monkeypatch.setattr(hub_folder.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(EngineError, match="are free there"):
        convert(tiny, tmp_path / "out")
    assert os.listdir(tmp_path) == ["model.gguf"]


def test_values_that_a_dtype_cannot_hold_are_said(tmp_path: Path):
    model = build(CONFIGS["llama"][1])
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 3] = 1e6
    write_gguf(model, tmp_path / "model.gguf", "llama")
    with pytest.raises(ModelFileError, match="too large for float16"):
        convert(str(tmp_path / "model.gguf"), tmp_path / "out", dtype="float16")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: (folder / "config.json").write_text("{}"), "is safetensors already"),
        (lambda folder: (folder / "model_000001.pt").write_text("{}"), "is a nanochat checkpoint"),
    ],
)
def test_only_gguf_files_are_converted(tmp_path: Path, make, message: str):
    make(tmp_path)
    with pytest.raises(ModelFileError, match=message):
        convert(str(tmp_path), tmp_path / "out")


def test_a_large_model_comes_in_shards(tmp_path: Path):
    values = {name: torch.randn(8, 16) for name in ("a", "b", "c", "d", "e")}
    parts = [Part(name, (8, 16), value_of(values[name])) for name in values]
    write_sharded(tmp_path, parts, torch.float32, lambda done: None, largest=1200)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert files == [f"model-{at:05d}-of-00003.safetensors" for at in (1, 2, 3)]
    from engine.loading.safetensors import read_sharded

    found = read_sharded(tmp_path)
    assert set(found) == set(values)
    for name, tensor in found.items():
        out = torch.empty(8, 16)
        tensor.copy_to(out)
        assert torch.equal(out, values[name])
    assert transformers.utils.SAFE_WEIGHTS_INDEX_NAME in os.listdir(tmp_path)


def value_of(value: torch.Tensor):
    return lambda out: out.copy_(value)
