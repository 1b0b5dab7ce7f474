"""Vocabularies in the manner of SentencePiece against the `tokenizers` library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import generate_merges

from engine.chat_format import TemplateFormat
from engine.errors import ModelFileError
from engine.loading.gguf import Metadata
from engine.tokenizer import Tokenizer
from tests.engine.test_tokenizer import varied_texts

SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@pytest.fixture(scope="module")
def pieces() -> list[str]:
    """A small vocabulary: special tokens, bytes, then what BPE finds in texts, best first."""
    library = tokenizers.Tokenizer(models.BPE())
    library.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL, show_progress=False)
    texts = [*varied_texts(300), Path(__file__).read_text(), *["the theme of them all"] * 50]
    library.train_from_iterator([word for text in texts for word in text.split("\n")], trainer)
    vocab = library.get_vocab()
    found = [piece for piece in sorted(vocab, key=vocab.__getitem__) if piece not in SPECIAL]
    return [*SPECIAL, *BYTES, *found]


def scores_of(pieces: list[str]) -> list[float]:
    """As SentencePiece writes them: 0 for what is not learned, then falling."""
    first = len(SPECIAL) + len(BYTES)
    return [0.0 if id < first else float(first - id) for id in range(len(pieces))]


def reference(pieces: list[str], kind: str) -> tokenizers.Tokenizer:
    """As `transformers` converts a SentencePiece model: `kind` is "llama", "mistral" or "gemma"."""
    vocab = {piece: id for id, piece in enumerate(pieces)}
    unlearned = {*BYTES, *SPECIAL}
    learned = {p: s for p, s in zip(pieces, scores_of(pieces), strict=True) if p not in unlearned}
    merges = generate_merges(vocab, learned)
    library = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    undo = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "gemma":
        library.normalizer = normalizers.Replace(" ", "▁")
        library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif kind == "llama":
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        library.normalizer = normalizers.Sequence(steps)
        undo.append(decoders.Strip(" ", 1, 0))
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
        undo.append(decoders.Strip(" ", 1, 0))
    library.decoder = decoders.Sequence(undo)
    library.add_special_tokens(SPECIAL)
    return library


def gguf_metadata(pieces: list[str], **changes: Any) -> Metadata:
    first = len(SPECIAL) + len(BYTES)
    values = {
        "model": "llama",
        "tokens": pieces,
        "scores": scores_of(pieces),
        "token_type": [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - first)],
        "unknown_token_id": 0,
    }
    values.update(changes)
    return Metadata({f"tokenizer.ggml.{key}": v for key, v in values.items()}, "model.gguf")


def tokenizer_of(kind: str, form: str, pieces: list[str], folder: Path) -> Tokenizer:
    if form == "gguf":
        return Tokenizer.from_gguf(gguf_metadata(pieces, add_space_prefix=kind != "gemma"))
    path = folder / "tokenizer.json"
    reference(pieces, kind).save(str(path))
    return Tokenizer.from_tokenizer_json(path)


KINDS = [
    ("llama", "json"),
    ("mistral", "json"),
    ("gemma", "json"),
    ("llama", "gguf"),
    ("gemma", "gguf"),
]


@pytest.mark.parametrize(("kind", "form"), KINDS)
def test_ids_and_texts_equal_those_of_the_tokenizers_library(kind, form, pieces, tmp_path):
    library = reference(pieces, kind)
    library.encode_special_tokens = True
    tokenizer = tokenizer_of(kind, form, pieces, tmp_path)
    for text in varied_texts(300):
        ids = tokenizer.encode(text)
        assert ids == library.encode(text, add_special_tokens=False).ids, repr(text)
        assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False)
        stream = tokenizer.stream()
        assert "".join([*map(stream.push, ids), stream.flush()]) == tokenizer.decode(ids)


@pytest.mark.parametrize(("kind", "form"), KINDS)
def test_text_is_never_a_special_token(kind, form, pieces, tmp_path):
    tokenizer = tokenizer_of(kind, form, pieces, tmp_path)
    special = set(tokenizer.special_tokens.values())
    for text in ("<s>", "</s> hello <unk>", "<0x0A>", "a</s>"):
        ids = tokenizer.encode(text)
        assert not special & {*ids}
        assert tokenizer.decode(ids) == text
    assert tokenizer.special("</s>") == 2
    assert tokenizer.split_specials("<s>hi</s>") == [1, "hi", 2]


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma"])
def test_text_behind_a_special_token_is_encoded_as_the_library_does(kind, pieces, tmp_path):
    library = reference(pieces, kind)
    tokenizer = tokenizer_of(kind, "json", pieces, tmp_path)
    text = "<s>the theme</s>\nof them <s> all"
    expected = library.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode_mixed(tokenizer.split_specials(text)) == expected


def test_merges_that_lead_to_special_tokens_are_not_made(pieces, tmp_path):
    tokenizer_of("gemma", "json", pieces, tmp_path)
    path = tmp_path / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    vocab["s>"] = vocab.get("s>", len(vocab))
    document["model"]["merges"] += [["s", ">"], ["<", "s>"]]
    path.write_text(json.dumps(document))
    tokenizer = Tokenizer.from_tokenizer_json(path)
    assert tokenizer.special("<s>") not in tokenizer.encode("<s>")
    assert tokenizer.decode(tokenizer.encode("<s>")) == "<s>"


def test_a_character_without_a_token_is_never_split_in_a_stream(pieces, tmp_path):
    tokenizer = tokenizer_of("gemma", "json", pieces, tmp_path)
    stream = tokenizer.stream()
    ids = tokenizer.encode("\U0001f9ff!")
    assert len(ids) > 4
    assert [text for text in map(stream.push, ids) if text] == ["\U0001f9ff", "!"]


def test_html_tags_are_text_and_marks_of_turns_are_not(pieces, tmp_path):
    """Gemma has tokens for both; only the former may come out of what a user writes."""
    added = ["<h1>", "<start_of_turn>", "<think>"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259), 4, 4, 4]
    metadata = gguf_metadata(
        [*pieces, *added],
        scores=[*scores_of(pieces), 0.0, 0.0, 0.0],
        token_type=kinds,
        add_space_prefix=False,
    )
    tokenizer = Tokenizer.from_gguf(metadata)
    html, turn, think = range(len(pieces), len(pieces) + 3)
    ids = tokenizer.encode("<h1>a<start_of_turn><think>")
    assert html in ids
    assert turn not in ids
    assert think not in ids
    assert tokenizer.special("<start_of_turn>") == turn
    assert tokenizer.special("<h1>") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": [1.0]},
        {"scores": None},
        {"token_type": [1]},
        {"tokens": ["a", "a"], "scores": [0.0, 0.0], "token_type": [1, 1]},
        {"tokens": [], "scores": [], "token_type": []},
    ],
)
def test_a_broken_vocabulary_ends_in_one_line(changes, pieces):
    with pytest.raises(ModelFileError) as caught:
        Tokenizer.from_gguf(gguf_metadata(pieces, **changes))
    assert "\n" not in str(caught.value)


def test_a_unigram_tokenizer_json_is_read(tmp_path):
    library = tokenizers.Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁the", -2.0), ("a", -3.0), ("t", -3.5)], 0)
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    library.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    library.add_special_tokens(["<unk>"])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    tokenizer = Tokenizer.from_tokenizer_json(path)
    assert tokenizer.encode("the tat") == library.encode("the tat").ids
    assert tokenizer.decode(tokenizer.encode("the tat")) == "the tat"
    library = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("s", -1.0)], 0))
    library.add_special_tokens(["<unk>", "</s>"])
    library.save(str(path))
    assert 1 not in Tokenizer.from_tokenizer_json(path).encode("</s>\ufdd0</s>")


@pytest.mark.parametrize(("kind", "form"), KINDS)
def test_a_stored_tokenizer_is_the_same_one(kind, form, pieces, tmp_path):
    tokenizer = tokenizer_of(kind, form, pieces, tmp_path)
    again = Tokenizer.from_stored(tokenizer.stored())
    assert again.special_tokens == tokenizer.special_tokens
    for text in varied_texts(50):
        ids = tokenizer.encode(text)
        assert again.encode(text) == ids
        assert again.encode_after(text) == tokenizer.encode_after(text)
        assert again.decode(ids) == tokenizer.decode(ids)
    assert json.dumps({k: v for k, v in tokenizer.stored().items() if isinstance(v, (str, bool))})


LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}"
    "{{ '[INST] ' + message.content + ' [/INST]' }}{% else %}"
    "{{ ' ' + message.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
ZEPHYR = (
    "{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + eos_token"
    " + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}{{ '<s>' + message.role + '\n' +"
    " message.content | trim + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>model\n' }}{% endif %}"
)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma"])
@pytest.mark.parametrize("template", [LLAMA2, ZEPHYR, GEMMA], ids=["llama 2", "zephyr", "gemma"])
def test_prompts_equal_those_of_apply_chat_template(kind, template, pieces, tmp_path):
    tokenizer = tokenizer_of(kind, "json", pieces, tmp_path)
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    library = PreTrainedTokenizerFast(tokenizer_object=reference(pieces, kind), **names)
    chat_format = TemplateFormat(tokenizer, template, names)
    for text in ("the theme", "  of them", "", "a\nb <s>"):
        ours = chat_format.render([], text)
        typed = text.replace("<s>", "<_s>")  # the library would make a special token of it
        messages = [{"role": "user", "content": typed}]
        theirs = library.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, return_dict=False
        )
        if text == typed:
            assert ours == theirs, repr(text)
        else:
            assert ours.count(1) == theirs.count(1)


@pytest.mark.parametrize("template", [LLAMA2, ZEPHYR, GEMMA], ids=["llama 2", "zephyr", "gemma"])
def test_a_second_turn_follows_as_in_apply_chat_template(template, pieces, tmp_path):
    """What stands behind the answer, whose first token may be made of the opening's last text."""
    tokenizer = tokenizer_of("llama", "json", pieces, tmp_path)
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    library = PreTrainedTokenizerFast(tokenizer_object=reference(pieces, "llama"), **names)
    chat_format = TemplateFormat(tokenizer, template, names)
    messages = [
        {"role": "user", "content": "the theme"},
        {"role": "assistant", "content": "of them"},
        {"role": "user", "content": "all"},
    ]
    theirs = library.apply_chat_template(
        messages, chat_template=template, add_generation_prompt=True, return_dict=False
    )
    behind = [*chat_format.closing([2]), *chat_format.following("all")]
    assert theirs[-len(behind) - 1 :] == [2, *behind]
