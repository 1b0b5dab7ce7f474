"""The GGUF reader against the `gguf` package, and against files that are broken."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.loading import quants
from engine.loading.gguf import Metadata, read_gguf

QUANTISED = {
    # Where the float16 numbers of a block are, so that random blocks do not hold infinities.
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "IQ4_NL": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
SHAPE = (6, 512)


def random_blocks(format: str, shape: tuple[int, int], seed: int = 0) -> quants.Bytes:
    """Random bytes that are a matrix of `shape` in `format`: (rows, bytes per row)."""
    rng = np.random.default_rng(seed)
    _, weights, size = next(entry for entry in quants.FORMATS.values() if entry.name == format)
    rows, width = shape
    blocks = rng.integers(0, 256, (rows * width // weights, size), np.uint8)
    for at in QUANTISED[format]:
        halves = rng.normal(0, 1, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8)
    return blocks.reshape(rows, -1)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with every kind of metadata and of supported tensor, written by the `gguf` package."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -100)
    writer.add_uint16("a.uint16", 60_000)
    writer.add_int16("a.int16", -30_000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_uint64("a.uint64", 1 << 63)
    writer.add_int64("a.int64", -(1 << 62))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 1e-300)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "größer 😀")
    writer.add_array("tokens", ["a", "", "日本語", "Ġthe"])
    writer.add_array("types", [1, 2, 3])
    writer.add_array("scores", [0.5, -1.0])
    rng = np.random.default_rng(1)
    writer.add_tensor("f32", rng.normal(size=(3, 5)).astype(np.float32))
    writer.add_tensor("f16", rng.normal(size=(7,)).astype(np.float16))
    kind = gguf.GGMLQuantizationType.BF16
    bf16 = gguf.quantize(rng.normal(size=(2, 32)).astype(np.float32), kind)
    writer.add_tensor("bf16", bf16, raw_dtype=kind)
    for format in QUANTISED:
        kind = gguf.GGMLQuantizationType[format]
        writer.add_tensor(format, random_blocks(format, SHAPE), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_is_what_was_written(small_file: Path) -> None:
    metadata = read_gguf(small_file).metadata
    assert metadata == {
        "general.architecture": "llama",
        "a.uint8": 200,
        "a.int8": -100,
        "a.uint16": 60_000,
        "a.int16": -30_000,
        "a.uint32": 4_000_000_000,
        "a.int32": -2_000_000_000,
        "a.uint64": 1 << 63,
        "a.int64": -(1 << 62),
        "a.float32": 0.5,
        "a.float64": 1e-300,
        "a.bool": True,
        "a.string": "größer 😀",
        "tokens": ["a", "", "日本語", "Ġthe"],
        "types": [1, 2, 3],
        "scores": [0.5, -1.0],
    }


def test_tensors_are_views_with_shapes_in_torch_order(small_file: Path) -> None:
    tensors = read_gguf(small_file).tensors
    reference = {tensor.name: tensor for tensor in gguf.GGUFReader(small_file).tensors}
    assert tensors.keys() == reference.keys()
    for name, tensor in tensors.items():
        assert tensor.format == reference[name].tensor_type.name
        assert tensor.shape == tuple(reversed(reference[name].shape.tolist()))
        assert tensor.data.tobytes() == reference[name].data.tobytes()
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable


def test_every_supported_format_dequantizes_as_the_gguf_package_does(small_file: Path) -> None:
    tensors = read_gguf(small_file).tensors
    assert {tensor.format for tensor in tensors.values()} == quants.SUPPORTED - {"F64"}
    for reference in gguf.GGUFReader(small_file).tensors:
        expected = gguf.dequantize(reference.data, reference.tensor_type)
        values = tensors[reference.name].dequantize()
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, expected.reshape(values.shape), reference.name)


def test_large_tensors_are_dequantized_piece_by_piece_with_nothing_lost() -> None:
    shape = (1025, 1024)  # two whole pieces and a bit
    for format in ("Q4_1", "Q6_K"):
        blocks = random_blocks(format, shape)
        expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType[format])
        np.testing.assert_array_equal(quants.dequantize(blocks.ravel(), format, shape), expected)


@pytest.mark.parametrize("format", sorted(quants.SPLITS_4BIT))
def test_4bit_codes_hold_exactly_the_weights(small_file: Path, format: str) -> None:
    tensor = read_gguf(small_file).tensors[format]
    split = tensor.split_4bit()
    assert split is not None
    assert split.codes.shape == SHAPE
    assert split.codes.dtype == np.uint8
    assert split.codes.max() == 15
    assert split.scales.shape == split.minimums.shape == (SHAPE[0], SHAPE[1] // 32)
    scales, minimums = (np.repeat(part, 32, axis=1) for part in split[1:])
    np.testing.assert_array_equal(scales * split.codes + minimums, tensor.dequantize())
    assert tensor.split_8bit() is None


def test_8bit_codes_hold_exactly_the_weights(small_file: Path) -> None:
    tensor = read_gguf(small_file).tensors["Q8_0"]
    split = tensor.split_8bit()
    assert split is not None
    assert split.codes.dtype == np.int8
    assert split.codes.flags.c_contiguous
    scales = np.repeat(split.scales, 32, axis=1)
    np.testing.assert_array_equal(scales * split.codes, tensor.dequantize())
    assert tensor.split_4bit() is None


def test_the_default_model_is_read_and_split_in_a_fraction_of_a_second(smollm2_path: Path) -> None:
    start = time.perf_counter()
    file = read_gguf(smollm2_path)
    read = time.perf_counter()
    split = {name: t.split_4bit() or t.split_8bit() for name, t in file.tensors.items()}
    done = time.perf_counter()
    assert len(file.metadata.texts("tokenizer.ggml.tokens")) == 49_152
    assert sum(codes is not None for codes in split.values()) == 211
    # 0.04 s and 0.15 s on two idle cores; the bounds leave room for busy ones.
    assert read - start < 1
    assert done - read < 3


def test_importing_the_reader_is_light() -> None:
    program = "import sys, engine.loading.gguf; print({'torch', 'gguf'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"


# Broken files.


def header(n_tensors: int = 0, n_entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor_entry(
    dimensions: tuple[int, ...] = (32,), kind: int = 2, offset: int = 0, name: str = "w"
) -> bytes:
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return text("k") + struct.pack("<IIQ", 9, kind, count) + body


PADDING = bytes(256)

BROKEN = {
    "empty": (b"", "is empty"),
    "text": (b"<!DOCTYPE html><html>", "not a GGUF file"),
    "shorter than its magic": (b"GG", "not a GGUF file"),
    "cut off in the header": (header()[:10], "ends inside its header"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "version 1": (header(version=1), "version 1"),
    "version 4": (header(version=4), "version 4"),
    "absurd tensor count": (header(n_tensors=1 << 60) + PADDING, "more than fit"),
    "absurd entry count": (header(n_entries=1 << 60) + PADDING, "more than fit"),
    "absurd key length": (header(n_entries=1) + struct.pack("<Q", 1 << 62) + PADDING, "bytes long"),
    "absurd array": (header(n_entries=1) + array(4, 1 << 62) + PADDING, "more than fit"),
    "absurd string array": (header(n_entries=1) + array(8, 1 << 50) + PADDING, "more than fit"),
    "string array past the end": (
        header(n_entries=1) + array(8, 2, text("a") + struct.pack("<Q", 1 << 63)),
        "beyond the end",
    ),
    "string array cut off": (
        header(n_entries=1) + array(8, 2, text("12345678") + b"1234"),
        "beyond the end",
    ),
    "nested too deep": (
        header(n_entries=1) + array(9, 1, struct.pack("<IQ", 9, 1) * 8 + PADDING),
        "unknown type 9",
    ),
    "unknown value type": (
        header(n_entries=1) + text("k") + struct.pack("<I", 13),
        "unknown type 13",
    ),
    "unknown element type": (header(n_entries=1) + array(13, 1) + PADDING, "unknown type 13"),
    "a key twice": (
        header(n_entries=2) + (text("k") + struct.pack("<IB", 0, 1)) * 2 + PADDING,
        "appears twice",
    ),
    "alignment": (
        header(n_entries=1) + text("general.alignment") + struct.pack("<II", 4, 12) + PADDING,
        "not a power of two",
    ),
    "alignment of another type": (
        header(n_entries=1) + text("general.alignment") + struct.pack("<IB", 7, 1) + PADDING,
        "should be a whole number",
    ),
    "no dimensions": (header(1) + tensor_entry(()) + PADDING, "0 dimensions"),
    "many dimensions": (header(1) + tensor_entry((1, 1, 1, 1, 1)) + PADDING, "5 dimensions"),
    "empty tensor": (header(1) + tensor_entry((32, 0)) + PADDING, "is empty"),
    "unknown tensor type": (header(1) + tensor_entry(kind=99) + PADDING, "unknown type 99"),
    "removed tensor type": (header(1) + tensor_entry(kind=4) + PADDING, "unknown type 4"),
    "rows that are no blocks": (header(1) + tensor_entry((33,)) + PADDING, "no multiple"),
    "unaligned": (header(1) + tensor_entry(offset=8) + PADDING, "no multiple of 32"),
    "past the end": (header(1) + tensor_entry(offset=1 << 20) + PADDING, "beyond the end"),
    "huge dimensions": (header(1) + tensor_entry((1 << 63, 1 << 63)) + PADDING, "beyond the end"),
    "overlapping": (
        header(2) + tensor_entry((64,)) + tensor_entry((32,), offset=32, name="v") + PADDING,
        "overlaps",
    ),
    "a tensor twice": (header(2) + tensor_entry() + tensor_entry(offset=32) + PADDING, "twice"),
    "one of several parts": (
        header(n_entries=1) + text("split.count") + struct.pack("<IH", 2, 3) + PADDING,
        "merge them first",
    ),
}


@pytest.mark.parametrize(("content", "what"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_ends_in_one_line_that_names_it(
    content: bytes, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=what) as caught:
        read_gguf(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 200


def test_a_name_out_of_a_broken_file_brings_no_control_characters_into_the_message(
    tmp_path: Path,
) -> None:
    path = tmp_path / "escape.gguf"
    path.write_bytes(header(1) + tensor_entry(name="\x1b[31m\n" * 100, kind=99) + PADDING)
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    assert str(caught.value).isprintable()


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelFileError, match="cannot be read"):
            read_gguf(path)


def test_a_format_known_by_name_only_is_refused_when_its_numbers_are_asked_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "iq.gguf"
    path.write_bytes(header(1) + tensor_entry((256,), kind=16) + PADDING)
    tensor = read_gguf(path).tensors["w"]
    with pytest.raises(ModelFileError, match="IQ2_XXS, which is not supported"):
        tensor.dequantize()


def test_random_damage_raises_nothing_but_model_file_errors(
    small_file: Path, tmp_path: Path
) -> None:
    original = small_file.read_bytes()
    end_of_header = original.index(b"Q6_K") + 64
    rng = random.Random(0)
    path = tmp_path / "damaged.gguf"
    messages = []
    for _ in range(1500):
        damaged = bytearray(original)
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            damaged[rng.randrange(end_of_header)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        if rng.random() < 0.4:
            del damaged[rng.randrange(rng.choice((end_of_header, len(damaged)))) :]
        path.write_bytes(damaged)
        try:
            file = read_gguf(path)
            for tensor in file.tensors.values():
                with np.errstate(all="ignore"):
                    tensor.dequantize()
        except ModelFileError as error:
            messages.append(str(error))
    assert len(messages) > 500
    assert all(message.isprintable() for message in messages)


# Typed access to metadata.


def test_metadata_of_the_wrong_kind_names_the_file_and_the_key() -> None:
    metadata = Metadata({"n": 3, "x": 0.5, "b": True, "s": "text", "l": ["a"], "i": [1]}, "m.gguf")
    assert metadata.integer("n") == 3
    assert metadata.number("n") == 3.0
    assert metadata.number("x") == 0.5
    assert metadata.flag("b") is True
    assert metadata.text("s") == "text"
    assert metadata.texts("l") == ["a"]
    assert metadata.integers("i") == [1]
    assert metadata.integer("absent", 7) == 7
    for read, key in (
        (metadata.integer, "b"),
        (metadata.integer, "x"),
        (metadata.number, "s"),
        (metadata.flag, "n"),
        (metadata.text, "n"),
        (metadata.texts, "i"),
        (metadata.integers, "l"),
        (metadata.integer, "absent"),
    ):
        with pytest.raises(ModelFileError, match=f"m.gguf.*'{key}'"):
            read(key)
