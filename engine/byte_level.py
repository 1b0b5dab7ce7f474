"""Byte-level BPE vocabularies: nanochat's, GPT-2's and their descendants'.

    tokenizer = from_gguf(metadata)          # through `Tokenizer.from_gguf`

Merging is done by a `tiktoken.Encoding`, whatever file the vocabulary comes from: there a token's
rank among the merges is what counts, and in every vocabulary that was trained as BPE ids are ranks.
It never learns about special tokens.

Results equal those of the `tokenizers` library, byte for byte, with two exceptions that are told at
`encode`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken

from engine.errors import EngineError, ModelFileError
from engine.loading.gguf import Metadata
from engine.loading.tiktoken_pickle import read_encoding
from engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class Splitter:
    """How a vocabulary's text is cut into pieces before anything is merged.

    Attributes:
        pattern: the regular expression whose matches are the pieces.
        whole_pieces: a piece that is in the vocabulary is that token, also where the merges do not
            lead to it.
        nfc: text is normalised to Unicode's NFC before.
    """

    pattern: str
    whole_pieces: bool = False
    nfc: bool = False


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# GPT-2's after digits were set apart one by one. What stands before a digit stands at the end of a
# piece, where whitespace is taken whole: hence the rule ahead of `\s+(?!\S)`.
DIGITS_THEN_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPLITTERS: dict[str, Splitter] = {
    "gpt-2": Splitter(GPT2),
    "smollm": Splitter(DIGITS_THEN_GPT2),
    "llama-bpe": Splitter(_LLAMA3, whole_pieces=True),
    "qwen2": Splitter(_QWEN2, nfc=True),
    "deepseek-r1-qwen": Splitter(_QWEN2, nfc=True),
    "tekken": Splitter(_TEKKEN, whole_pieces=True),
}
"""By the name in a GGUF file (`tokenizer.ggml.pre`)."""

_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "phi-2": "gpt-2", "megrez": "qwen2"}
"""Other names that llama.cpp knows for these."""

# Token types of GGUF. "User defined" ones are those that the `tokenizers` library calls added but
# not special, like Qwen's <think>: templates write them, users do not.
NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6


def _printable_bytes() -> dict[int, int]:
    """GPT-2's way to write bytes as characters: character number to byte."""
    themselves = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in themselves]
    return {byte: byte for byte in themselves} | {0x100 + i: b for i, b in enumerate(others)}


class _OutsideTheAlphabet(dict[int, int]):
    def __missing__(self, character: int) -> int:
        return 0xFFFF  # No Latin-1 character: encoding it fails.


PRINTABLE_BYTES = _OutsideTheAlphabet(_printable_bytes())

# tiktoken's splitter takes a stack frame per character of a run of whitespace and panics after a
# million.
_LONGEST_WHITESPACE = 100_000
_WHITESPACE = re.compile(r"\s{2,}")


class BytePairTokenizer(Tokenizer):
    """A byte-level BPE vocabulary."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int],
        splitter: Splitter,
        *,
        ids: Sequence[int] | None = None,
        source: str | Path = "vocabulary",
    ) -> None:
        """Build the tables.

        Args:
            tokens: what each id stands for; a special token's is its name.
            ranks: the tokens that ordinary text can become, to their ranks among the merges.
            special_tokens: name to id.
            splitter: how text is cut first.
            ids: rank to id; None where they are the same.
            source: the file, for error messages.

        Raises:
            ModelFileError: the pattern is no regular expression, or there are no tokens.
        """
        if not ranks:
            raise ModelFileError(f"{source} has no tokens; convert or download it again.")
        try:
            self._encoding = tiktoken.Encoding(
                "vocabulary",
                pat_str=splitter.pattern,
                mergeable_ranks=dict(ranks),
                special_tokens={},
            )
        except ValueError as error:
            raise ModelFileError(
                f"{source} has a splitting pattern that is no regular expression; copy it again."
            ) from error
        super().__init__(tokens, special_tokens)
        self._ranks = ranks
        self._splitter = splitter
        self._ids = ids
        absent = bytes(byte for byte in range(256) if bytes([byte]) not in ranks)
        self._absent = absent
        self._any_absent = re.compile(b"[" + re.escape(absent) + b"]") if absent else None

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as ordinary text: the name of a special token is the characters it is
        written with.

        Bytes that the vocabulary lacks are left out, as the `tokenizers` library does (SmolLM2
        lacks some control characters and the first bytes of unassigned planes). Lone surrogates
        become U+FFFD. Not as that library does it: a run of more than 100,000 whitespace characters
        is cut there, and user-defined tokens are text too.

        Raises EngineError where the vocabulary's own pattern cannot split the text.
        """
        if self._splitter.nfc:
            text = unicodedata.normalize("NFC", text)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            data = text.encode()
        ranks: list[int] = []
        for part in _cut_long_whitespace(text):
            try:
                if self._any_absent and self._any_absent.search(data):
                    ranks += self._encode_without_absent(part)
                else:
                    ranks += self._encoding.encode_ordinary(part)
            except BaseException as error:
                # A panic of tiktoken's Rust code, which is no Exception. Its tables are intact.
                if type(error).__name__ != "PanicException":
                    raise
                raise EngineError(
                    "The tokenizer's pattern cannot split this text; "
                    "shorten its longest run of like characters."
                ) from None
        return ranks if self._ids is None else [self._ids[rank] for rank in ranks]

    def stored(self) -> dict[str, Any]:
        # In the order of their ranks, so that ranks need not be kept.
        by_rank = sorted(self._ranks, key=self._ranks.__getitem__)
        ranked = [self._ranks[token] for token in by_rank]
        return {
            "kind": "byte-level",
            **stored_texts("token", self._tokens),
            **stored_texts("ranked", by_rank),
            "ranks": np.array(ranked, np.int32),
            "ids": None if self._ids is None else np.array(self._ids, np.int32),
            "special_names": list(self.special_tokens),
            "special_ids": list(self.special_tokens.values()),
            "splitter": asdict(self._splitter),
        }

    def _encode_without_absent(self, text: str) -> list[int]:
        """Split with the bytes that the vocabulary lacks, merge without them: their neighbours can
        meet."""
        import regex  # type: ignore[import-untyped]  # a dependency of tiktoken

        ranks: list[int] = []
        for piece in regex.findall(self._splitter.pattern, text):
            data = piece.encode().translate(None, self._absent)
            if data:
                ranks += self._encoding._encode_single_piece(data)
        return ranks


def from_gguf(metadata: Metadata) -> BytePairTokenizer:
    """See `Tokenizer.from_gguf`; for its model `gpt2`."""
    splitter = splitter_of(metadata)
    names = metadata.texts("tokenizer.ggml.tokens")
    kinds = token_kinds(metadata, len(names))
    special_tokens = {
        name: id
        for id, (name, kind) in enumerate(zip(names, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED) and name
    }
    merges = metadata.texts("tokenizer.ggml.merges")
    return from_merges(names, merges, special_tokens, splitter, metadata.source)


def splitter_of(metadata: Metadata) -> Splitter:
    """How a GGUF vocabulary's text is cut.

    Raises:
        ModelFileError: in a way that is not supported.
    """
    pre = metadata.text("tokenizer.ggml.pre", "gpt-2")
    pre = _ALIASES.get(pre, pre)
    if pre not in SPLITTERS:
        raise ModelFileError(
            f"{metadata.source} splits text in a way that is not supported ({pre!r:.40}); "
            f"supported are {', '.join(SPLITTERS)}."
        )
    return SPLITTERS[pre]


def token_kinds(metadata: Metadata, count: int) -> list[int]:
    """The token types of a GGUF vocabulary of `count` tokens."""
    kinds = metadata.integers("tokenizer.ggml.token_type", [NORMAL] * count)
    if len(kinds) != count:
        raise ModelFileError(
            f"{metadata.source} is broken: {count} tokens and {len(kinds)} token types; "
            "download it again."
        )
    return kinds


def from_nanochat_pickle(path: Path) -> BytePairTokenizer:
    """See `Tokenizer.from_nanochat_pickle`."""
    fields = read_encoding(path)
    ids = [*fields.mergeable_ranks.values(), *fields.special_tokens.values()]
    tokens = [b""] * (max(ids) + 1)
    for token, id in fields.mergeable_ranks.items():
        tokens[id] = token
    for name, id in fields.special_tokens.items():
        tokens[id] = name.encode("utf-8", "replace")
    splitter = Splitter(fields.pat_str, whole_pieces=True)
    return BytePairTokenizer(
        tokens, fields.mergeable_ranks, fields.special_tokens, splitter, source=path
    )


def from_stored(stored: Mapping[str, Any]) -> BytePairTokenizer:
    """See `Tokenizer.from_stored`."""
    ranked = read_texts("ranked", stored)
    ids = stored["ids"]
    return BytePairTokenizer(
        read_texts("token", stored),
        dict(zip(ranked, stored["ranks"].tolist(), strict=True)),
        dict(zip(stored["special_names"], stored["special_ids"], strict=True)),
        Splitter(**stored["splitter"]),
        ids=None if ids is None else ids.tolist(),
    )


def stored_texts(name: str, texts: Sequence[bytes]) -> dict[str, Any]:
    """Byte strings as two arrays: all of them joined, and their lengths."""
    joined = np.frombuffer(b"".join(texts), np.uint8)
    return {f"{name}_bytes": joined, f"{name}_sizes": np.array([*map(len, texts)], np.int32)}


def read_texts(name: str, stored: Mapping[str, Any]) -> list[bytes]:
    """What `stored_texts` was given."""
    joined = stored[f"{name}_bytes"].tobytes()
    ends = [*itertools.accumulate(stored[f"{name}_sizes"].tolist())]
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _cut_long_whitespace(text: str) -> list[str]:
    """`text` in parts, cut inside of runs of whitespace that are too long for tiktoken's
    splitter."""
    if len(text) <= _LONGEST_WHITESPACE:
        return [text]
    cuts = [0]
    for run in _WHITESPACE.finditer(text):
        cuts += range(run.start() + _LONGEST_WHITESPACE, run.end(), _LONGEST_WHITESPACE)
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]


def from_merges(
    names: Sequence[str],
    merges: Sequence[str],
    special_tokens: Mapping[str, int],
    splitter: Splitter,
    source: str | Path,
) -> BytePairTokenizer:
    """A tokenizer from tokens as they are printed and merges in their order ("Ġ t").

    Raises ModelFileError where the merges do not belong to the tokens.
    """
    special_ids = set(special_tokens.values())
    tokens: list[bytes] = []
    for id, name in enumerate(names):
        try:
            if id in special_ids:
                raise UnicodeError
            tokens.append(name.translate(PRINTABLE_BYTES).encode("latin-1"))
        except UnicodeError:
            tokens.append(name.encode("utf-8", "replace"))
    id_of = {name: id for id, name in enumerate(names) if id not in special_ids}
    singles = sorted(id_of[chr(c)] for c in PRINTABLE_BYTES if chr(c) in id_of)
    # Spaces do not occur in printed tokens, so a merge without them is the token that it makes.
    # Where several make the same one, the first is the one that happens.
    merged = dict.fromkeys(id_of.get(merge.replace(" ", ""), -1) for merge in merges)
    if -1 in merged:
        orphan = next(merge for merge in merges if merge.replace(" ", "") not in id_of)
        raise ModelFileError(
            f"{source} is broken: merge {orphan!r:.60} makes no token; download it again."
        )
    order = [*dict.fromkeys((*singles, *merged))]
    in_order = order == sorted(order)
    if splitter.whole_pieces:
        # Tokens that no merge leads to can only be reached so.
        order = [*dict.fromkeys((*order, *(id for id in id_of.values() if tokens[id])))]
    if in_order:
        return BytePairTokenizer(
            tokens, {tokens[id]: id for id in order}, special_tokens, splitter, source=source
        )
    ranks = {tokens[id]: rank for rank, id in enumerate(order)}
    return BytePairTokenizer(tokens, ranks, special_tokens, splitter, ids=order, source=source)
