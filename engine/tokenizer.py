"""Text to token ids and back, whatever kind of vocabulary a model has.

    tokenizer = Tokenizer.from_gguf(read_gguf(path).metadata)
    ids = tokenizer.encode("Why is the sky blue?")
    tokenizer.decode(ids)

    stream = tokenizer.stream()              # one per row that is being generated
    for id in ids:
        print(stream.push(id), end="")       # whole characters only
    print(stream.flush())

`encode` is for text and never gives a special token, so that no text a user types can become one;
`special` and `split_specials` are for those who build prompts. There are two kinds behind this
face: byte-level BPE, merged by tiktoken (`engine/byte_level.py`), and vocabularies in the manner of
SentencePiece, for which the `tokenizers` library does the work (`engine/sentencepiece.py`).
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import ModelFileError
from engine.loading.gguf import Metadata


class Tokenizer(ABC):
    """A vocabulary. Made by one of its `from_` methods.

    Attributes:
        vocab_size: number of ids, special ones included. A model may have more rows, as padding.
        special_tokens: name to id, `{"<|im_end|>": 2, ...}`.
    """

    def __init__(self, tokens: Sequence[bytes], special_tokens: Mapping[str, int]) -> None:
        """`tokens`: what each id stands for; a special token's is its name."""
        self._tokens = tokens
        self.special_tokens = dict(special_tokens)
        self.vocab_size = len(tokens)
        self._special_ids = frozenset(self.special_tokens.values())
        names = sorted(self.special_tokens, key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, names))) if names else None

    @staticmethod
    def from_gguf(metadata: Metadata) -> Tokenizer:
        """The tokenizer of a GGUF file.

        Raises ModelFileError for a broken vocabulary and for kinds of tokenizer that are not
        supported: WordPiece, Unigram, and byte-level BPE whose splitter is not in
        `byte_level.SPLITTERS`.
        """
        model = metadata.text("tokenizer.ggml.model")
        if model == "gpt2":
            from engine import byte_level

            return byte_level.from_gguf(metadata)
        if model == "llama":
            from engine import sentencepiece

            return sentencepiece.from_gguf(metadata)
        kind = {"bert": "WordPiece ", "t5": "Unigram "}.get(model, "")
        raise ModelFileError(
            f"{metadata.source} has a {kind}tokenizer ({model!r:.40}), which is not supported; use"
            " a model with a BPE tokenizer, such as SmolLM2, Llama, Qwen, Mistral or Gemma."
        )

    @staticmethod
    def from_nanochat_pickle(path: str | Path) -> Tokenizer:
        """The tokenizer in a nanochat `tokenizer.pkl`. Nothing in the file is run.

        Raises ModelFileError for a file that is missing, broken or holds anything but a tiktoken
        Encoding.
        """
        from engine import byte_level

        return byte_level.from_nanochat_pickle(Path(path))

    @staticmethod
    def from_tokenizer_json(path: str | Path) -> Tokenizer:
        """The tokenizer in a Hugging Face `tokenizer.json`.

        Raises ModelFileError for a file that is missing, broken or of a kind that is not supported.
        """
        from engine import tokenizer_json

        return tokenizer_json.read(Path(path))

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer that gave `stored()`."""
        from engine import byte_level, sentencepiece

        kinds = {"byte-level": byte_level.from_stored, "library": sentencepiece.from_stored}
        return kinds[stored["kind"]](stored)

    @abstractmethod
    def stored(self) -> dict[str, Any]:
        """All that is needed to build it again quickly: JSON values and numpy arrays."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text` as ordinary text: the name of a special token is the characters it is
        written with. Lone surrogates become U+FFFD.

        Raises EngineError where the vocabulary's own rules cannot cope with the text.
        """

    def encode_after(self, text: str) -> list[int]:
        """The ids of text that stands behind a special token; for most vocabularies as anywhere."""
        return self.encode(text)

    def encode_mixed(self, parts: Iterable[int | str], *, continues: bool = False) -> list[int]:
        """Ids as they are, and the text between them as ordinary text. Texts that meet are encoded
        as one. `continues`: other ids stand before these."""
        ids: list[int] = []
        text = ""

        def encoded() -> list[int]:
            return self.encode_after(text) if ids or continues else self.encode(text)

        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            if text:
                ids += encoded()
                text = ""
            ids.append(part)
        return ids + encoded() if text else ids

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
