"""The chat format of a folder as `transformers` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelFileError
from engine.loading.chat_formats import from_folder
from engine.tokenizer import Tokenizer
from tests.engine.tiny_models import write_tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_tokenizer_json(folder / "tokenizer.json")


def write(folder: Path, file: str, **content: Any) -> None:
    (folder / file).write_text(json.dumps(content))


def test_the_template_stands_in_a_file_of_its_own(folder: Path, tokenizer: Tokenizer) -> None:
    (folder / "chat_template.jinja").write_text(CHATML)
    write(folder, "tokenizer_config.json", chat_template=PLAIN, eos_token="<|im_end|>")
    assert from_folder(folder, tokenizer).name == "chatml"


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        [{"name": "tool_use", "template": PLAIN}, {"name": "default", "template": CHATML}],
    ],
    ids=["one", "several"],
)
def test_the_template_stands_in_the_settings(
    folder: Path, tokenizer: Tokenizer, template: object
) -> None:
    write(folder, "tokenizer_config.json", chat_template=template)
    chat_format = from_folder(folder, tokenizer)
    assert chat_format.name == "chatml"
    text = tokenizer.decode(chat_format.render([], "Hi"))
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_stop_tokens_are_collected_from_all_files(folder: Path, tokenizer: Tokenizer) -> None:
    ids = tokenizer.special_tokens
    settings = {"eos_token": {"content": "<|im_end|>"}}
    write(folder, "tokenizer_config.json", **settings)
    write(folder, "generation_config.json", eos_token_id=[5, 7])
    write(folder, "config.json", eos_token_id=9)
    stops = from_folder(folder, tokenizer).stop_tokens
    assert stops == {5, 7, 9, ids["<|im_end|>"], ids["<|endoftext|>"]}


def test_ids_that_are_none_of_the_vocabulary_are_left_out(
    folder: Path, tokenizer: Tokenizer
) -> None:
    write(folder, "generation_config.json", eos_token_id=[10**9, -1, "x", None, True, 3])
    assert 3 in from_folder(folder, tokenizer).stop_tokens
    assert max(from_folder(folder, tokenizer).stop_tokens) < tokenizer.vocab_size


@pytest.mark.parametrize(("adds", "first"), [(True, "<|im_start|>"), (False, "H")])
def test_without_a_template_the_text_is_continued(
    folder: Path, tokenizer: Tokenizer, adds: bool, first: str
) -> None:
    write(folder, "tokenizer_config.json", bos_token="<|im_start|>", add_bos_token=adds)
    chat_format = from_folder(folder, tokenizer)
    assert chat_format.name == "plain"
    assert tokenizer.decode(chat_format.render([], "Hello")[:1]) == first
    assert "continues the text" in chat_format.note


def test_a_template_that_fails_is_said(folder: Path, tokenizer: Tokenizer) -> None:
    write(folder, "tokenizer_config.json", chat_template="{{ raise_exception('no') }}")
    assert "it fails: no" in from_folder(folder, tokenizer).note


@pytest.mark.parametrize("file", ["tokenizer_config.json", "generation_config.json"])
def test_a_broken_file_is_named(folder: Path, tokenizer: Tokenizer, file: str) -> None:
    (folder / file).write_text("{")
    with pytest.raises(ModelFileError, match=file):
        from_folder(folder, tokenizer)
