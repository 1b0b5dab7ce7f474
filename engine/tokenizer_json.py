"""Hugging Face's `tokenizer.json`, read and written. It is read as byte-level BPE where it is that,
else with the `tokenizers` library, whose own format it is.

    tokenizer = read(path)                   # through `Tokenizer.from_tokenizer_json`
    document = from_gguf(metadata)           # the vocabulary of a GGUF file, to be written as JSON
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import sentencepiece
from engine.byte_level import (
    CONTROL,
    DIGITS_THEN_GPT2,
    GPT2,
    USER_DEFINED,
    Splitter,
    from_merges,
    splitter_of,
    token_kinds,
)
from engine.errors import ModelFileError
from engine.loading.gguf import Metadata
from engine.loading.tiktoken_pickle import MAX_VOCABULARY
from engine.tokenizer import Tokenizer


def read(path: Path) -> Tokenizer:
    """See `Tokenizer.from_tokenizer_json`."""
    try:
        document = json.loads(path.read_bytes())
        splitter = _splitter(document)
        if splitter is None:
            return sentencepiece.from_document(document, path)
        model = document["model"]
        special_tokens = {token["content"]: token["id"] for token in document["added_tokens"]}
        id_of = {**model["vocab"], **special_tokens}
        names = [""] * (max(id_of.values()) + 1) if max(id_of.values()) < MAX_VOCABULARY else []
        for name, id in id_of.items():
            names[id] = name
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        return from_merges(names, merges, special_tokens, splitter, path)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is broken: it is not what a tokenizer.json should be; download it again."
        ) from error


def _splitter(document: dict[str, Any]) -> Splitter | None:
    """How text is split, where this is byte-level BPE of a kind that tiktoken can express."""
    model = document["model"]
    if model["type"] != "BPE" or any(model.get(key) for key in _OTHER_BPE):
        return None
    steps = document.get("pre_tokenizer") or {}
    pattern = _json_pattern(steps.get("pretokenizers", [steps]))
    normalizer = (document.get("normalizer") or {"type": None})["type"]
    if pattern is None or normalizer not in (None, "NFC"):
        return None
    return Splitter(pattern, bool(model.get("ignore_merges")), normalizer == "NFC")


_OTHER_BPE = ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")


def _json_pattern(steps: list[dict[str, Any]]) -> str | None:
    """The splitting pattern that a tokenizer.json's pre-tokenizers come to; None where we know
    none."""
    *before, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    uses_gpt2 = last.get("use_regex", True)
    match before, uses_gpt2:
        case [], True:
            return GPT2
        case [{"type": "Digits", "individual_digits": True}], True:
            return DIGITS_THEN_GPT2
        case [{"type": "Split", "pattern": {"Regex": str(p)}, "behavior": "Isolated"}], False:
            # Nothing may fall between the matches.
            return p + r"|(?s:.)"
    return None


def from_gguf(metadata: Metadata, bos: int | None) -> dict[str, Any]:
    """The tokenizer.json of a GGUF file's vocabulary.

    Args:
        bos: the token that begins a text which is encoded with its special tokens; None: none does.

    Raises:
        ModelFileError: the vocabulary is broken or of a kind that is not supported.
    """
    if metadata.text("tokenizer.ggml.model") == "llama":
        document = sentencepiece.document_of(metadata)
    else:
        document = _byte_level_document(metadata)
    if bos is not None:
        name = metadata.texts("tokenizer.ggml.tokens")[bos]
        text = {"Sequence": {"id": "A", "type_id": 0}}
        begin = {"SpecialToken": {"id": name, "type_id": 0}}
        other = {"Sequence": {"id": "B", "type_id": 1}}
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text, {"SpecialToken": {"id": name, "type_id": 1}}, other],
            "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}},
        }
    return document


def _byte_level_document(metadata: Metadata) -> dict[str, Any]:
    splitter = splitter_of(metadata)
    names = metadata.texts("tokenizer.ggml.tokens")
    vocab = {name: id for id, name in enumerate(names)}
    if len(vocab) != len(names):
        raise ModelFileError(
            f"{metadata.source} is broken: tokens appear twice; download it again."
        )
    kinds = token_kinds(metadata, len(names))
    steps = _steps_of(splitter.pattern)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            sentencepiece.added_token(id, name, special=kind == CONTROL)
            for id, (name, kind) in enumerate(zip(names, kinds, strict=True))
            if kind in (CONTROL, USER_DEFINED) and name
        ],
        "normalizer": {"type": "NFC"} if splitter.nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": splitter.whole_pieces,
            "vocab": vocab,
            "merges": [merge.split(" ", 1) for merge in metadata.texts("tokenizer.ggml.merges")],
        },
    }


_BYTE_LEVEL: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _steps_of(pattern: str) -> list[dict[str, Any]]:
    """The pre-tokenizers that split as `pattern` does: what `_json_pattern` undoes."""
    if pattern == GPT2:
        return [_BYTE_LEVEL]
    if pattern == DIGITS_THEN_GPT2:
        return [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return [{**split, "invert": False}, {**_BYTE_LEVEL, "use_regex": False}]
