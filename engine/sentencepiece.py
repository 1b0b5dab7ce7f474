"""Vocabularies in the manner of SentencePiece (Llama 2, TinyLlama, Mistral, Gemma), and every other
`tokenizer.json` that tiktoken cannot express: the `tokenizers` library does the work.

    tokenizer = from_gguf(metadata)          # through `Tokenizer.from_gguf`
    tokenizer = from_document(document, path)

In such a vocabulary a space is written `▁`, one may be put before the text, and characters that
have no token become single bytes (`<0xE2>`). The library is given the vocabulary without its
special tokens, so that it cannot make one out of text.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.byte_level import (
    BYTE,
    CONTROL,
    PRINTABLE_BYTES,
    USER_DEFINED,
    read_texts,
    stored_texts,
    token_kinds,
)
from engine.errors import EngineError, ModelFileError
from engine.loading.gguf import Metadata
from engine.loading.tiktoken_pickle import MAX_VOCABULARY
from engine.tokenizer import StreamDecoder, Tokenizer

SPACE = "▁"

GUARD = "\ufdd0"
"""Stands before the names of special tokens in vocabularies whose every name can come out of text.
It is no character (Unicode keeps it free), and taken out of texts."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")

_PLAIN = re.compile(r"[\s▁]+|(?!</?think>)</?[a-z][a-z0-9]{0,15}>")
"""Added tokens that text may become: runs of whitespace, and the HTML tags that Gemma has tokens
for. The others mark turns, tools or thoughts, which users must not be able to write."""


class LibraryTokenizer(Tokenizer):
    """A vocabulary that the `tokenizers` library encodes with."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_tokens: Mapping[str, int],
        document: Mapping[str, Any],
        *,
        strips_space: bool,
        source: str | Path = "vocabulary",
    ) -> None:
        """Build it.

        Args:
            document: a tokenizer.json without special tokens.
            strips_space: a space that begins a text is not part of it, as one is put there before
                encoding.
            source: the file, for error messages.

        Raises:
            ModelFileError: the library does not take the document.
        """
        super().__init__(tokens, special_tokens)
        self._document = document
        self._strips_space = strips_space
        self._library = _library(document, source)
        inside = _without_first_space(document)
        self._inside = self._library if inside is None else _library(inside, source)

    def encode(self, text: str) -> list[int]:
        return _encoded(self._library, self._unguarded(text))

    def encode_after(self, text: str) -> list[int]:
        return _encoded(self._inside, self._unguarded(text))

    def _unguarded(self, text: str) -> str:
        return text.replace(GUARD, "") if self._document["model"]["type"] == "Unigram" else text

    def decode(self, ids: Iterable[int]) -> str:
        text = super().decode(ids)
        return text[1:] if self._strips_space and text.startswith(" ") else text

    def stream(self) -> StreamDecoder:
        return _Stripping(self) if self._strips_space else StreamDecoder(self)

    def stored(self) -> dict[str, Any]:
        return {
            "kind": "library",
            **stored_texts("token", self._tokens),
            "document": np.frombuffer(json.dumps(self._document).encode(), np.uint8),
            "strips_space": self._strips_space,
            "special_names": list(self.special_tokens),
            "special_ids": list(self.special_tokens.values()),
        }


class _Stripping(StreamDecoder):
    """Drops the space that begins the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._begun = False

    def push(self, id: int) -> str:
        text = super().push(id)
        if text and not self._begun:
            self._begun = True
            return text.removeprefix(" ")
        return text


def from_stored(stored: Mapping[str, Any]) -> LibraryTokenizer:
    """See `Tokenizer.from_stored`."""
    return LibraryTokenizer(
        read_texts("token", stored),
        dict(zip(stored["special_names"], stored["special_ids"], strict=True)),
        json.loads(stored["document"].tobytes()),
        strips_space=stored["strips_space"],
    )


def from_gguf(metadata: Metadata) -> LibraryTokenizer:
    """See `Tokenizer.from_gguf`; for its model `llama`, BPE by the scores of tokens."""
    return from_document(document_of(metadata), Path(metadata.source))


def document_of(metadata: Metadata) -> dict[str, Any]:
    """The vocabulary of a GGUF file as a tokenizer.json.

    Raises:
        ModelFileError: it is broken.
    """
    source = metadata.source
    names = metadata.texts("tokenizer.ggml.tokens")
    kinds = token_kinds(metadata, len(names))
    scores = metadata.get("tokenizer.ggml.scores")
    if (
        not isinstance(scores, list)
        or len(scores) != len(names)
        or not all(isinstance(score, float) for score in scores)
    ):
        raise ModelFileError(f"{source} is broken: its tokens have no scores; download it again.")
    # llama.cpp's converter writes user-defined tokens with plain spaces; runs of them are reached
    # by merges.
    names = [
        name.replace(" ", SPACE) if kind == USER_DEFINED and not name.strip(" ") else name
        for name, kind in zip(names, kinds, strict=True)
    ]
    added = [
        added_token(id, name, special=kind == CONTROL)
        for id, (name, kind) in enumerate(zip(names, kinds, strict=True))
        if kind == CONTROL or (kind == USER_DEFINED and name.strip(SPACE))
    ]
    special = {token["content"] for token in added if not _is_plain(token)}
    vocab = {name: id for id, name in enumerate(names)}
    if len(vocab) != len(names) or not names:
        what = "tokens appear twice" if names else "it has no tokens"
        raise ModelFileError(f"{source} is broken: {what}; download it again.")
    mergeable = {
        name: score
        for name, score, kind in zip(names, scores, kinds, strict=True)
        if kind not in (CONTROL, BYTE) and name not in special and isinstance(score, float)
    }
    prefix = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    unknown = metadata.integer("tokenizer.ggml.unknown_token_id", 0)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]}
        if prefix
        else replace,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *([strip] if prefix else []),
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": names[unknown] if 0 <= unknown < len(names) else None,
            "fuse_unk": True,
            "byte_fallback": any(kind == BYTE for kind in kinds),
            "vocab": vocab,
            "merges": _merges(mergeable, vocab),
        },
    }


def _merges(scores: Mapping[str, float], vocab: Mapping[str, int]) -> list[list[str]]:
    """The merges that lead to the tokens, best score first: SentencePiece always merges the two
    neighbours whose token has the best score."""
    merges = []
    for name, score in scores.items():
        parts = (
            (name[:at], name[at:])
            for at in range(1, len(name))
            if name[:at] in scores and name[at:] in scores
        )
        merges += [(-score, vocab[left], vocab[right], left, right) for left, right in parts]
    merges.sort()
    return [[left, right] for *_, left, right in merges]


def from_document(document: dict[str, Any], source: Path) -> LibraryTokenizer:
    """The tokenizer of a parsed tokenizer.json.

    Raises:
        ModelFileError: the library does not take it, or it is of a kind that is not supported.
        KeyError, TypeError, AttributeError, ValueError: it is broken.
    """
    model = document["model"]
    if model["type"] not in ("BPE", "Unigram"):
        raise ModelFileError(
            f"{source} is a tokenizer of type {model['type']!r:.40}, which is not supported; use a"
            " model with a BPE or Unigram tokenizer."
        )
    added = document.get("added_tokens") or []
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: names with scores
        vocab = {name: id for id, (name, _) in enumerate(vocab)}
    plain = [token for token in added if token["content"] in vocab and _is_plain(token)]
    special = {token["content"]: token["id"] for token in added if token not in plain}
    id_of = {**vocab, **special}
    size = max(id_of.values()) + 1
    if not all(type(id) is int and 0 <= id < MAX_VOCABULARY for id in id_of.values()):
        raise ValueError("ids are no small numbers")
    byte_level = '"ByteLevel"' in json.dumps([document.get("pre_tokenizer"), document["decoder"]])
    tokens = [b""] * size
    for name, id in vocab.items():
        tokens[id] = _printed_bytes_of(name) if byte_level else _bytes_of(name)
    for name, id in special.items():
        tokens[id] = name.encode("utf-8", "replace")
    document = {
        **document,
        "model": _without_specials(model, special),
        "added_tokens": plain,
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    strips = not byte_level and _puts_space_first(document)
    return LibraryTokenizer(tokens, special, document, strips_space=strips, source=source)


def _without_specials(model: dict[str, Any], special: Mapping[str, int]) -> dict[str, Any]:
    """The model with no way from text to its special tokens."""
    if model["type"] == "Unigram":
        # Every name is a piece of text there, and ids are places in the list.
        guarded = [[GUARD * (name in special) + name, score] for name, score in model["vocab"]]
        return {**model, "vocab": guarded}
    unknown = model.get("unk_token")
    gone = {name for name in special if name != unknown}
    merges = []
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if not gone & {left, right} and left + right not in special:
            merges.append([left, right])
    vocab = {name: id for name, id in model["vocab"].items() if name not in gone}
    return {**model, "vocab": vocab, "merges": merges}


def added_token(id: int, content: str, *, special: bool) -> dict[str, Any]:
    """As it stands in a tokenizer.json."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, **flags, "special": special}


def _is_plain(token: Mapping[str, Any]) -> bool:
    """Whether text may become this added token."""
    return not token["special"] and _PLAIN.fullmatch(token["content"]) is not None


def _bytes_of(name: str) -> bytes:
    if match := _BYTE.fullmatch(name):
        return bytes([int(match[1], 16)])
    return name.replace(SPACE, " ").encode("utf-8", "replace")


def _printed_bytes_of(name: str) -> bytes:
    try:
        return name.translate(PRINTABLE_BYTES).encode("latin-1")
    except UnicodeError:
        return name.encode("utf-8", "replace")


def _steps(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A document's normalizers and pre-tokenizers, out of their sequences."""
    steps: list[dict[str, Any]] = []
    for key, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        step = document.get(key)
        if step:
            steps += step[inner] if step["type"] == "Sequence" else [step]
    return steps


def _puts_space_first(document: Mapping[str, Any]) -> bool:
    return any(
        step["type"] == "Prepend"
        or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in _steps(document)
    )


def _without_first_space(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document for text that does not begin the prompt; None where that is no other one."""
    changed = copy.deepcopy({key: document.get(key) for key in ("normalizer", "pre_tokenizer")})
    first = [step for step in _steps(changed) if step.get("prepend_scheme") == "first"]
    for step in first:
        step["prepend_scheme"] = "never"
    return {**document, **changed} if first else None


def _library(document: Mapping[str, Any], source: str | Path) -> Any:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(json.dumps(document))
    except BaseException as error:  # its Rust code may panic, which is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        reason = " ".join(str(error).split())[:120]
        raise ModelFileError(
            f"{source} has a tokenizer that cannot be used ({reason}); download it again."
        ) from None


def _encoded(library: Any, text: str) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    try:
        ids: list[int] = library.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise EngineError("The tokenizer's own rules cannot cope with this text.") from None
    return ids
