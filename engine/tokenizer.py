"""Text to token ids and back, for byte-level BPE vocabularies: nanochat's, GPT-2's and their
descendants'.

    tokenizer = Tokenizer.from_gguf(read_gguf(path).metadata)
    ids = tokenizer.encode("Why is the sky blue?")
    tokenizer.decode(ids)

    stream = tokenizer.stream()              # one per row that is being generated
    for id in ids:
        print(stream.push(id), end="")       # whole characters only
    print(stream.flush())

Merging is done by a `tiktoken.Encoding`, whatever file the vocabulary comes from: there a token's
rank among the merges is what counts, and in every vocabulary that was trained as BPE ids are ranks.
It never learns about special tokens, so that no text a user types can become one: `encode` is for
text, `special` and `split_specials` for those who build prompts.

Results equal those of the `tokenizers` library, byte for byte, with two exceptions that are told at
`encode`.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiktoken

from engine.errors import EngineError, ModelFileError
from engine.loading.gguf import Metadata
from engine.loading.tiktoken_pickle import MAX_VOCABULARY, read_encoding


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


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# GPT-2's after digits were set apart one by one. What stands before a digit stands at the end of a
# piece, where whitespace is taken whole: hence the rule ahead of `\s+(?!\S)`.
_DIGITS_THEN_GPT2 = (
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
    "gpt-2": Splitter(_GPT2),
    "smollm": Splitter(_DIGITS_THEN_GPT2),
    "llama-bpe": Splitter(_LLAMA3, whole_pieces=True),
    "qwen2": Splitter(_QWEN2, nfc=True),
    "deepseek-r1-qwen": Splitter(_QWEN2, nfc=True),
    "tekken": Splitter(_TEKKEN, whole_pieces=True),
}
"""By the name in a GGUF file (`tokenizer.ggml.pre`)."""

# Token types of GGUF. "User defined" ones are those that the `tokenizers` library calls added but
# not special, like Qwen's <think>: templates write them, users do not.
_CONTROL, _USER_DEFINED = 3, 4
_NORMAL = 1


def _printable_bytes() -> dict[int, int]:
    """GPT-2's way to write bytes as characters: character number to byte."""
    themselves = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in themselves]
    return {byte: byte for byte in themselves} | {0x100 + i: b for i, b in enumerate(others)}


class _OutsideTheAlphabet(dict[int, int]):
    def __missing__(self, character: int) -> int:
        return 0xFFFF  # No Latin-1 character: encoding it fails.


_PRINTABLE_BYTES = _OutsideTheAlphabet(_printable_bytes())

# tiktoken's splitter takes a stack frame per character of a run of whitespace and panics after a
# million.
_LONGEST_WHITESPACE = 100_000
_WHITESPACE = re.compile(r"\s{2,}")


class Tokenizer:
    """A byte-level BPE vocabulary. Made by one of its `from_` methods.

    Attributes:
        vocab_size: number of ids, special ones included. A model may have more rows, as padding.
        special_tokens: name to id, `{"<|im_end|>": 2, ...}`.
    """

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
        self._tokens = tokens
        self._splitter = splitter
        self._ids = ids
        self.special_tokens = dict(special_tokens)
        self.vocab_size = len(tokens)
        self._special_ids = frozenset(self.special_tokens.values())
        names = sorted(self.special_tokens, key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, names))) if names else None
        absent = bytes(byte for byte in range(256) if bytes([byte]) not in ranks)
        self._absent = absent
        self._any_absent = re.compile(b"[" + re.escape(absent) + b"]") if absent else None

    @classmethod
    def from_gguf(cls, metadata: Metadata) -> Tokenizer:
        """The tokenizer of a GGUF file.

        Raises ModelFileError for a broken vocabulary and for kinds of tokenizer that are not
        supported: those that are not byte-level BPE (SentencePiece, WordPiece), and splitters that
        are not in `SPLITTERS`.
        """
        source = metadata.source
        model = metadata.text("tokenizer.ggml.model")
        if model != "gpt2":
            kind = {"llama": "SentencePiece ", "bert": "WordPiece ", "t5": "Unigram "}.get(
                model, ""
            )
            raise ModelFileError(
                f"{source} has a {kind}tokenizer ({model!r:.40}), which is not supported; use a "
                "model with a byte-level BPE tokenizer, such as SmolLM2, Llama 3 or Qwen 2.5."
            )
        pre = metadata.text("tokenizer.ggml.pre", "gpt-2")
        if pre not in SPLITTERS:
            raise ModelFileError(
                f"{source} splits text in a way that is not supported ({pre!r:.40}); "
                f"supported are {', '.join(SPLITTERS)}."
            )
        names = metadata.texts("tokenizer.ggml.tokens")
        kinds = metadata.integers("tokenizer.ggml.token_type", [_NORMAL] * len(names))
        if len(kinds) != len(names):
            raise ModelFileError(
                f"{source} is broken: {len(names)} tokens and {len(kinds)} token types; "
                "download it again."
            )
        special_tokens = {
            name: id
            for id, (name, kind) in enumerate(zip(names, kinds, strict=True))
            if kind in (_CONTROL, _USER_DEFINED) and name
        }
        merges = metadata.texts("tokenizer.ggml.merges")
        return _from_merges(names, merges, special_tokens, SPLITTERS[pre], source)

    @classmethod
    def from_nanochat_pickle(cls, path: str | Path) -> Tokenizer:
        """The tokenizer in a nanochat `tokenizer.pkl`. Nothing in the file is run.

        Raises ModelFileError for a file that is missing, broken or holds anything but a tiktoken
        Encoding.
        """
        fields = read_encoding(Path(path))
        ids = [*fields.mergeable_ranks.values(), *fields.special_tokens.values()]
        tokens = [b""] * (max(ids) + 1)
        for token, id in fields.mergeable_ranks.items():
            tokens[id] = token
        for name, id in fields.special_tokens.items():
            tokens[id] = name.encode("utf-8", "replace")
        splitter = Splitter(fields.pat_str, whole_pieces=True)
        return cls(tokens, fields.mergeable_ranks, fields.special_tokens, splitter, source=path)

    @classmethod
    def from_tokenizer_json(cls, path: str | Path) -> Tokenizer:
        """The tokenizer in a Hugging Face `tokenizer.json` of byte-level BPE.

        Raises ModelFileError for a file that is missing, broken or of another kind.
        """
        return _from_tokenizer_json(Path(path))

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

    def encode_mixed(self, parts: Iterable[int | str]) -> list[int]:
        """Ids as they are, and the text between them as ordinary text. Texts that meet are encoded
        as one."""
        ids: list[int] = []
        text = ""
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            if text:
                ids += self.encode(text)
                text = ""
            ids.append(part)
        return ids + self.encode(text) if text else ids

    def split_specials(self, text: str) -> list[int | str]:
        """`text` with the names of special tokens turned into ids: for text that no user wrote
        (chat templates)."""
        if self._specials is None:
            return [text] if text else []
        parts: list[int | str] = []
        at = 0
        for match in self._specials.finditer(text):
            if match.start() > at:
                parts.append(text[at : match.start()])
            parts.append(self.special_tokens[match.group()])
            at = match.end()
        if at < len(text):
            parts.append(text[at:])
        return parts

    def special(self, name: str) -> int | None:
        """The id of the special token `name`; None if there is none."""
        return self.special_tokens.get(name)

    def is_special(self, id: int) -> bool:
        return id in self._special_ids

    def token_bytes(self, id: int) -> bytes:
        """What `id` stands for: raw bytes, not always whole characters. Nothing for a model's
        padding ids."""
        return self._tokens[id] if 0 <= id < self.vocab_size else b""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`. Invalid UTF-8 becomes U+FFFD, special tokens their names."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def stream(self) -> StreamDecoder:
        """A decoder for tokens that come one at a time."""
        return StreamDecoder(self)


class StreamDecoder:
    """Decodes one token after the other into whole characters.

    A token may end inside a character; its bytes are held back until the next tokens complete it,
    or until they cannot any more. All that `push` and `flush` returned, joined, is what
    `Tokenizer.decode` returns for all the ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The characters that are complete with this token."""
        return self._decoder.decode(self._tokenizer.token_bytes(id))

    def flush(self) -> str:
        """U+FFFD for what is still held back, else nothing. The decoder can be used anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _cut_long_whitespace(text: str) -> list[str]:
    """`text` in parts, cut inside of runs of whitespace that are too long for tiktoken's
    splitter."""
    if len(text) <= _LONGEST_WHITESPACE:
        return [text]
    cuts = [0]
    for run in _WHITESPACE.finditer(text):
        cuts += range(run.start() + _LONGEST_WHITESPACE, run.end(), _LONGEST_WHITESPACE)
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]


def _from_merges(
    names: Sequence[str],
    merges: Sequence[str],
    special_tokens: Mapping[str, int],
    splitter: Splitter,
    source: str | Path,
) -> Tokenizer:
    """A tokenizer from tokens as they are printed and merges in their order ("Ġ t").

    Raises ModelFileError where the merges do not belong to the tokens.
    """
    special_ids = set(special_tokens.values())
    tokens: list[bytes] = []
    for id, name in enumerate(names):
        try:
            if id in special_ids:
                raise UnicodeError
            tokens.append(name.translate(_PRINTABLE_BYTES).encode("latin-1"))
        except UnicodeError:
            tokens.append(name.encode("utf-8", "replace"))
    id_of = {name: id for id, name in enumerate(names) if id not in special_ids}
    singles = sorted(id_of[chr(c)] for c in _PRINTABLE_BYTES if chr(c) in id_of)
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
        return Tokenizer(
            tokens, {tokens[id]: id for id in order}, special_tokens, splitter, source=source
        )
    ranks = {tokens[id]: rank for rank, id in enumerate(order)}
    return Tokenizer(tokens, ranks, special_tokens, splitter, ids=order, source=source)


def _from_tokenizer_json(path: Path) -> Tokenizer:
    """See `Tokenizer.from_tokenizer_json`."""

    def unsupported(what: str) -> ModelFileError:
        return ModelFileError(
            f"{path} {what}, which is not supported; use a model with a byte-level BPE tokenizer."
        )

    try:
        document = json.loads(path.read_bytes())
        model = document["model"]
        if model["type"] != "BPE":
            raise unsupported(f"is a tokenizer of type {model['type']!r:.40}")
        if any(model.get(key) for key in _OTHER_BPE):
            raise unsupported("is a BPE tokenizer of another kind than byte-level")
        steps = document.get("pre_tokenizer") or {}
        pattern = _json_pattern(steps.get("pretokenizers", [steps]))
        normalizer = (document.get("normalizer") or {"type": None})["type"]
        if pattern is None or normalizer not in (None, "NFC"):
            raise unsupported("splits or normalises text in its own way")
        splitter = Splitter(pattern, bool(model.get("ignore_merges")), normalizer == "NFC")
        special_tokens = {token["content"]: token["id"] for token in document["added_tokens"]}
        id_of = {**model["vocab"], **special_tokens}
        names = [""] * (max(id_of.values()) + 1) if max(id_of.values()) < MAX_VOCABULARY else []
        for name, id in id_of.items():
            names[id] = name
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        return _from_merges(names, merges, special_tokens, splitter, path)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is broken: it is not what a tokenizer.json should be; download it again."
        ) from error


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
            return _GPT2
        case [{"type": "Digits", "individual_digits": True}], True:
            return _DIGITS_THEN_GPT2
        case [{"type": "Split", "pattern": {"Regex": str(p)}, "behavior": "Isolated"}], False:
            # Nothing may fall between the matches.
            return p + r"|(?s:.)"
    return None
