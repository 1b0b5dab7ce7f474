"""Reads Hugging Face's `tokenizer.json`: as byte-level BPE where it is that, else with the
`tokenizers` library, whose own format it is.

    tokenizer = read(path)                   # through `Tokenizer.from_tokenizer_json`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.byte_level import DIGITS_THEN_GPT2, GPT2, Splitter, from_merges
from engine.errors import ModelFileError
from engine.loading.tiktoken_pickle import MAX_VOCABULARY
from engine.tokenizer import Tokenizer


def read(path: Path) -> Tokenizer:
    """See `Tokenizer.from_tokenizer_json`."""
    try:
        document = json.loads(path.read_bytes())
        splitter = _splitter(document)
        if splitter is None:
            from engine import sentencepiece

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
