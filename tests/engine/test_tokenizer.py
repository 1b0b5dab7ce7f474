"""The tokenizer against the `tokenizers` library and against nanochat, and against hostile
files."""

from __future__ import annotations

import json
import pickle
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import tiktoken
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from engine.byte_level import SPLITTERS
from engine.errors import EngineError, ModelFileError
from engine.loading.gguf import Metadata, read_gguf
from engine.tokenizer import Tokenizer

DATA = Path(__file__).parent.parent / "data" / "nanochat"
PICKLE = DATA / "V6" / "tokenizer" / "tokenizer.pkl"


@pytest.fixture(scope="module")
def metadata(smollm2_path: Path) -> Metadata:
    return read_gguf(smollm2_path).metadata


@pytest.fixture(scope="module")
def tokenizer(metadata: Metadata) -> Tokenizer:
    return Tokenizer.from_gguf(metadata)


@pytest.fixture(scope="module")
def nanochat() -> Tokenizer:
    return Tokenizer.from_nanochat_pickle(PICKLE)


def reference(metadata: Metadata, splitter: str) -> tokenizers.Tokenizer:
    """SmolLM2's vocabulary in the `tokenizers` library, with the pre-tokenizer of `splitter`."""
    names = metadata.texts("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in metadata.texts("tokenizer.ggml.merges")]
    vocab = {name: id for id, name in enumerate(names)}
    whole_pieces = SPLITTERS[splitter].whole_pieces
    built = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=whole_pieces))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if splitter == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        built.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    elif splitter == "gpt-2":
        built.pre_tokenizer = byte_level
    else:
        # The patterns as Meta, Qwen and Mistral publish them.
        pattern = tokenizers.Regex(PUBLISHED[splitter])
        split = pre_tokenizers.Split(pattern, behavior="isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        built.pre_tokenizer = pre_tokenizers.Sequence([split, plain])
    if splitter in ("qwen2", "deepseek-r1-qwen"):
        built.normalizer = normalizers.NFC()
    built.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return built


PUBLISHED: dict[str, str] = {
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "tekken": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
PUBLISHED["deepseek-r1-qwen"] = PUBLISHED["qwen2"]

WORDS = [
    *("the answer is 84. ", "Hello, world! ", "it's IT'S we'll WE'LL don't", "AbcDEFghI", "a_b_c"),
    *(
        "def f(x):\n    return x ** 2\n",
        "\t\tif (a && b) { c++; }\r\n",
        "--==>>",
        "`code`",
        "$x^2$",
    ),
    *("https://example.org/a?b=c&d=%20", "...!!!???", "<|im_end|>", "<|im_start|>assistant"),
    *("12345", "3.14159", "1,000,000", " 7 ", "   42", "x1y22z333", " 2024-01-31\n", "½²Ⅷ٣४"),
    *(
        "日本語のテキスト",
        "你好,世界。",
        "한국어 문장",
        "привет мир",
        "مرحبا بالعالم",
        "שלום",
        "ǅǄ ʰªº",
    ),
    *(
        "naïve café Zürich",
        "e\u0301 o\u0308 \u1100\u1161",
        "😀",
        "👨‍👩‍👧‍👦",
        "🇩🇪🏳️‍🌈",
        "\U00040000 \U0010ffff",
    ),
    *(
        "\u200b\ufeff",
        "\u202eabc\u202c",
        "\x00\x01\x04\x06\x7f\x1b[31m",
        "\x13\x14\x16\x1d",
        "a\x04b-\x06-",
    ),
    *("   ", "\n\n\n", "\r\n\r\n", "\t \t", "\xa0\u3000\u2003\x85", " \n \n  x", "trailing  "),
]


def varied_texts(n: int) -> list[str]:
    """The samples above (also glued and cut in other ways), deterministic."""
    rng = random.Random(0)
    texts = list(WORDS)
    while len(texts) < n:
        text = "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8)))
        start = rng.randrange(len(text) + 1)
        texts.append(text[start : start + rng.randint(1, 60)])
    return texts


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_ids_equal_those_of_the_tokenizers_library(metadata: Metadata, splitter: str) -> None:
    tokenizer = Tokenizer.from_gguf(
        Metadata({**metadata, "tokenizer.ggml.pre": splitter}, metadata.source)
    )
    library = reference(metadata, splitter)
    library.encode_special_tokens = True  # their names as ordinary text, as here
    for text in varied_texts(2500):
        assert tokenizer.encode(text) == library.encode(text).ids, repr(text)


def test_every_token_of_smollm2_that_is_text_is_encoded_as_itself(tokenizer: Tokenizer) -> None:
    texts = {id: tokenizer.decode([id]) for id in range(17, tokenizer.vocab_size)}
    whole = {id: text for id, text in texts.items() if "\ufffd" not in text}
    assert len(whole) > 48_000
    assert all(tokenizer.encode(text) == [id] for id, text in whole.items())


def test_building_from_gguf_is_fast_and_imports_no_torch(metadata: Metadata) -> None:
    start = time.perf_counter()
    Tokenizer.from_gguf(metadata)
    assert time.perf_counter() - start < 1  # 0.09 s on an idle core
    program = "import sys, engine.tokenizer; print({'torch', 'transformers'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"


def test_text_is_never_a_special_token(tokenizer: Tokenizer, nanochat: Tokenizer) -> None:
    for subject in (tokenizer, nanochat):
        for name in subject.special_tokens:
            for text in (name, f"a{name}b", name * 3, f" {name}\n"):
                ids = subject.encode(text)
                assert not any(map(subject.is_special, ids))
                assert subject.decode(ids) == text


def test_text_survives_the_round_trip(nanochat: Tokenizer) -> None:
    for text in varied_texts(500):
        assert nanochat.decode(nanochat.encode(text)) == text


def test_lone_surrogates_become_replacement_characters(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b\ud83d\ude00")) == "a\ufffdb😀"


def test_bytes_that_the_vocabulary_lacks_are_left_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("\x04") == []
    assert tokenizer.encode("-\x04-") == tokenizer.encode("--")
    assert tokenizer.encode("a\x04b") == tokenizer.encode("a") + tokenizer.encode("b")


@pytest.mark.parametrize("run", [" ", "\n ", "a"])
def test_runs_of_a_million_characters_are_encoded(
    tokenizer: Tokenizer, nanochat: Tokenizer, run: str
) -> None:
    text = "x" + run * (1_100_000 // len(run)) + "x"
    for subject in (tokenizer, nanochat):
        assert subject.decode(subject.encode(text)) == text


def test_ids_need_not_be_in_the_order_of_the_merges(metadata: Metadata) -> None:
    names = metadata.texts("tokenizer.ggml.tokens")
    kinds = metadata.integers("tokenizer.ggml.token_type")
    order = list(range(len(names)))
    random.Random(0).shuffle(order)
    shuffled = Tokenizer.from_gguf(
        Metadata(
            {
                **metadata,
                "tokenizer.ggml.tokens": [names[i] for i in order],
                "tokenizer.ggml.token_type": [kinds[i] for i in order],
            }
        )
    )
    straight = Tokenizer.from_gguf(metadata)
    for text in varied_texts(300):
        assert [order[id] for id in shuffled.encode(text)] == straight.encode(text)
        assert shuffled.decode(shuffled.encode(text)) == straight.decode(straight.encode(text))


def test_special_tokens_have_names_and_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49_152
    assert tokenizer.special("<|im_start|>") == 1
    assert tokenizer.special("<|im_end|>") == 2
    assert tokenizer.special("the") is None
    assert tokenizer.is_special(2)
    assert not tokenizer.is_special(1000)
    assert tokenizer.token_bytes(2) == b"<|im_end|>"
    assert tokenizer.token_bytes(49_152) == tokenizer.token_bytes(-1) == b""
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "<|im_start|>hi<|im_end|>"


def test_mixed_parts_keep_ids_and_join_the_text_between_them(tokenizer: Tokenizer) -> None:
    parts = tokenizer.split_specials("<|im_start|>user\n")
    assert parts == [1, "user\n"]
    ids = tokenizer.encode_mixed([*parts, "\n  hi <|im_end|>", 2, "", 2])
    assert ids == [1, *tokenizer.encode("user\n\n  hi <|im_end|>"), 2, 2]
    assert tokenizer.split_specials("") == []
    assert tokenizer.encode_mixed([]) == []


# Decoding, also piece by piece.


def test_encoding_and_decoding_equal_nanochat(nanochat: Tokenizer) -> None:
    for row in json.loads((DATA / "head" / "encode.json").read_text())["rows"]:
        assert nanochat.encode(row["text"]) == row["ids"], row["text"]
    for row in json.loads((DATA / "head" / "decode.json").read_text())["rows"]:
        assert nanochat.decode(row["ids"]) == row["text"]
        assert b"".join(map(nanochat.token_bytes, row["ids"])).hex() == row["bytes_hex"]
        stream = nanochat.stream()
        pieces = [*map(stream.push, row["ids"]), stream.flush()]
        assert "".join(pieces) == row["text"]


def test_a_stream_gives_characters_only_when_they_are_complete(nanochat: Tokenizer) -> None:
    stream = nanochat.stream()
    assert [stream.push(byte) for byte in "é😀".encode()] == ["", "é", "", "", "", "😀"]
    assert stream.flush() == ""
    assert [stream.push(byte) for byte in (0xF0, 0x9F, 0x41)] == ["", "", "\ufffdA"]
    assert stream.push(0xE6) == ""
    assert stream.flush() == "\ufffd"
    assert stream.push(0x41) == "A"


def test_a_stream_of_any_ids_adds_up_to_their_text(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    bytes_only = [id for id in range(300) if len(tokenizer.token_bytes(id)) == 1]
    for _ in range(200):
        ids = [
            rng.choice(bytes_only) if rng.random() < 0.7 else rng.randrange(tokenizer.vocab_size)
            for _ in range(30)
        ]
        stream = tokenizer.stream()
        assert "".join([*map(stream.push, ids), stream.flush()]) == tokenizer.decode(ids)


# Hugging Face's tokenizer.json.


@pytest.mark.parametrize("splitter", ["smollm", "llama-bpe", "qwen2"])
def test_a_tokenizer_json_gives_the_same_ids(
    metadata: Metadata, splitter: str, tmp_path: Path
) -> None:
    library = reference(metadata, splitter)
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    tokenizer = Tokenizer.from_tokenizer_json(path)
    assert tokenizer.special_tokens == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    library.encode_special_tokens = True
    for text in varied_texts(400):
        assert tokenizer.encode(text) == library.encode(text).ids, repr(text)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is broken"),
        ("[]", "is broken"),
        ("[" * 100_000, "is broken"),
        ('{"model": {"type": "WordPiece"}}', "'WordPiece'"),
        ('{"model": {"type": "Unigram"}}', "is broken"),
        ('{"model": {"type": "BPE", "byte_fallback": true}}', "is broken"),
        (
            '{"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0},'
            ' "merges": ["a b"]}, "decoder": null}',
            "cannot be used",
        ),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}, '
            '"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel"}}',
            "is broken",
        ),
    ],
)
def test_a_bad_tokenizer_json_ends_in_one_line(content: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelFileError, match=what) as caught:
        Tokenizer.from_tokenizer_json(path)
    assert str(path) in str(caught.value)


# Vocabularies that are not supported, or broken.


def small_metadata(**changes: object) -> Metadata:
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b", "ab", "<|x|>"],
        "tokenizer.ggml.token_type": [1, 1, 1, 3],
        "tokenizer.ggml.merges": ["a b"],
    }
    for key, value in changes.items():
        values[f"tokenizer.ggml.{key}"] = value  # type: ignore[assignment]
    return Metadata(values, "model.gguf")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model": "llama"}, "no scores"),
        ({"model": "bert"}, "WordPiece"),
        ({"model": "rwkv"}, "'rwkv'"),
        ({"pre": "deepseek-llm"}, "'deepseek-llm'"),
        ({"token_type": [1]}, "4 tokens and 1 token types"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"merges": ["a c"]}, "merge 'a c' makes no token"),
        ({"tokens": [], "token_type": [], "merges": []}, "has no tokens"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_ends_in_one_line(
    changes: dict[str, object], what: str
) -> None:
    with pytest.raises(ModelFileError, match=what) as caught:
        Tokenizer.from_gguf(small_metadata(**changes))
    assert str(caught.value).startswith("model.gguf")


def test_tokens_that_no_merge_makes_are_not_made_from_text() -> None:
    tokenizer = Tokenizer.from_gguf(
        small_metadata(tokens=["a", "b", "ab", "aa"], token_type=[1, 1, 1, 1])
    )
    assert tokenizer.encode("aab") == [0, 2]
    assert tokenizer.decode([3]) == "aa"


# Pickles.


class Evil:
    """Pickles as a call."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call = (call, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def encoding_pickle(**changes: object) -> bytes:
    """The pickle of an Encoding with other fields."""
    encoding = tiktoken.Encoding(
        "x",
        pat_str=r"\w+|\W",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<|bos|>": 256},
    )
    state = {**encoding.__getstate__(), **changes}  # type: ignore[dict-item]
    state = {key: value for key, value in state.items() if value is not None}
    with mock.patch.object(tiktoken.Encoding, "__getstate__", return_value=state):
        return pickle.dumps(encoding, 4)


HOSTILE = {
    "a call": (pickle.dumps(Evil(print, "boo")), "builtins.print"),
    "a call in an old protocol": (pickle.dumps(Evil(print, "boo"), 0), "print"),
    "a call inside of the fields": (encoding_pickle(name=Evil(eval, "1")), "builtins.eval"),
    "another object": (pickle.dumps(Path("x")), "pathlib"),
    "another object of tiktoken": (b"\x80\x04ctiktoken.load\nread_file\n.", "tiktoken.load"),
    "the class and not an object": (b"\x80\x04\x8c\rtiktoken.core\x8c\x08Encoding\x93.", "else"),
    "an encoding by its name": (
        b"\x80\x04\x8c\rtiktoken.core\x8c\x08Encoding\x93)\x81\x8c\x04gpt2b.",
        "names the encoding 'gpt2'",
    ),
    "a list": (pickle.dumps([1]), "something else"),
    "a number": (b"\x80\x04K\x01.", "something else"),
    "arguments": (b"\x80\x04\x8c\rtiktoken.core\x8c\x08Encoding\x93}\x81.", "something else"),
    "no state": (b"\x80\x04\x8c\rtiktoken.core\x8c\x08Encoding\x93)\x81.", "exactly"),
    "an old protocol": (b"\x80\x02}.", "protocol 2"),
    "nothing": (b"", "is broken"),
    "half": (PICKLE.read_bytes()[:1500], "is broken"),
    "an empty stack": (b"\x80\x04\x94.", "is broken"),
    "a memo that is not there": (b"\x80\x04j\xff\xff\xff\xff.", "is broken"),
    "absurd lengths": (b"\x80\x04B\xff\xff\xff\xff", "is broken"),
    "a huge memo index": (b"\x80\x04Kr\xff\xff\xff\xff.", "something else"),
    "a huge bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40), "something else"),
    "tuples as keys": (b"\x80\x04})" + b"\x85" * 100_000 + b"K\x01s.", "something else"),
    "html": (b"<!DOCTYPE html>", "something else"),
    "a field too few": (encoding_pickle(name=None), "exactly"),
    "a field too many": (encoding_pickle(explicit_n_vocab=257), "exactly"),
    "a pattern that is no text": (encoding_pickle(pat_str=b"a"), "no text"),
    "a pattern without end": (encoding_pickle(pat_str="a" * 100_000), "no text"),
    "a pattern that is no pattern": (encoding_pickle(pat_str="(a"), "no regular expression"),
    "ranks that are no numbers": (encoding_pickle(mergeable_ranks={b"a": "b"}), "wrong kind"),
    "ranks of text": (encoding_pickle(mergeable_ranks={"a": 1}), "wrong kind"),
    "ranks below zero": (encoding_pickle(mergeable_ranks={b"a": -1}), "wrong kind"),
    "absurd ranks": (encoding_pickle(mergeable_ranks={b"a": 1 << 30}), "wrong kind"),
    "no ranks": (encoding_pickle(mergeable_ranks={}), "no tokens"),
    "an id twice": (encoding_pickle(special_tokens={"<|bos|>": 0}), "one id to two tokens"),
}


@pytest.mark.parametrize(("content", "what"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_pickle_that_is_no_encoding_is_refused_in_one_line(
    content: bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokenizer.pkl"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=what) as caught:
        Tokenizer.from_nanochat_pickle(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", [4, 5])
def test_pickles_of_both_protocols_are_read(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.pkl"
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {b"x" * n: 254 + n for n in range(2, 600)}  # long tokens, and ids of two bytes
    ranks[b"bb"] = 70_000
    specials = {"<|bos|>": 70_001, "<|größer|>": 70_002}
    encoding = tiktoken.Encoding(
        "x", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens=specials
    )
    path.write_bytes(pickle.dumps(encoding, protocol))
    tokenizer = Tokenizer.from_nanochat_pickle(path)
    assert tokenizer.special_tokens == specials
    assert tokenizer.vocab_size == 70_003
    for text in ("xxxx bb é", "x" * 599, "<|bos|>"):
        assert tokenizer.encode(text) == encoding.encode_ordinary(text)


def test_damaged_pickles_raise_nothing_but_model_file_errors(tmp_path: Path) -> None:
    original = PICKLE.read_bytes()
    rng = random.Random(0)
    path = tmp_path / "tokenizer.pkl"
    refused = 0
    for _ in range(600):
        damaged = bytearray(original)
        for _ in range(rng.choice((1, 1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            Tokenizer.from_nanochat_pickle(path).encode("What is 12*7?")
        except ModelFileError:
            refused += 1
    assert refused > 200


def test_a_pattern_that_cannot_cope_with_a_text_raises_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.pkl"
    path.write_bytes(encoding_pickle(pat_str=r"(?:a|a)+(?=b)|[\s\S]"))
    tokenizer = Tokenizer.from_nanochat_pickle(path)
    assert tokenizer.decode(tokenizer.encode("aab")) == "aab"
    with pytest.raises(EngineError, match="cannot split this text"):
        tokenizer.encode("a" * 60)
