"""Conversions: the second start maps what the first one made, whatever happened in between."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import gguf
import pytest
import torch
import transformers

from engine import LoadedModel, load_model
from engine.loading import converted, gguf_model
from engine.paths import cache_dir
from tests.engine.test_families import SIZES, TOKENS, in_steps
from tests.engine.tiny_models import build, write_gguf


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny quantised model, and a cache of its own."""
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path / "home"))
    return write(tmp_path / "model.gguf")


def write(path: Path, seed: int = 0) -> Path:
    q4, q8 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0
    model = build(transformers.Qwen2Config(**SIZES), seed)
    write_gguf(model, path, "qwen2", lambda name: q8 if "output" in name else q4)
    return path


def load(path: Path) -> LoadedModel:
    return load_model(str(path), device="cpu")


def conversions() -> list[Path]:
    return sorted((cache_dir() / "converted").iterdir())


def refuse_to_read(path: Path) -> None:
    raise AssertionError(f"{path} was read again")


def test_the_second_start_does_not_read_the_model(path: Path, monkeypatch) -> None:
    first = load(path)
    monkeypatch.setattr(gguf_model, "read_gguf", refuse_to_read)
    second = load(path)
    assert torch.equal(first.logits(TOKENS), second.logits(TOKENS))
    assert torch.equal(in_steps(first), in_steps(second))
    assert first.info == second.info
    assert first.chat_format.stop_tokens == second.chat_format.stop_tokens
    assert first.tokenizer.encode("the thing") == second.tokenizer.encode("the thing")
    assert len(conversions()) == 1


def test_a_conversion_is_what_is_built_in_memory(path: Path) -> None:
    mapped = load(path).logits(TOKENS)
    with mock.patch.object(converted, "converted_place", return_value=None):
        assert torch.equal(load(path).logits(TOKENS), mapped)


def test_a_changed_file_is_converted_anew_and_its_old_conversion_removed(path: Path) -> None:
    before = load(path).logits(TOKENS)
    write(path, seed=1)
    os.utime(path, ns=(1, 1))
    assert not torch.equal(load(path).logits(TOKENS), before)
    assert len(conversions()) == 1


def test_conversions_of_files_that_are_gone_are_removed(path: Path) -> None:
    load(path)
    other = write(path.with_name("other.gguf"))
    path.unlink()
    load(other)
    assert len(conversions()) == 1


@pytest.mark.parametrize(
    "damage", ["cut", "emptied", "flipped", "zeroed", "no trailer", "replaced"]
)
def test_a_damaged_conversion_is_made_again(path: Path, damage: str) -> None:
    expected = load(path).logits(TOKENS)
    (place,) = conversions()
    data = bytearray(place.read_bytes())
    match damage:
        case "cut":
            del data[len(data) // 2 :]
        case "emptied":
            data.clear()
        case "flipped":
            data[100] ^= 4
        case "zeroed":
            data[:4096] = bytes(4096)
        case "no trailer":
            del data[-8:]
        case "replaced":
            data[:] = os.urandom(len(data))
    place.unlink()
    place.write_bytes(data)
    assert torch.equal(load(path).logits(TOKENS), expected)
    assert converted.read_converted(place) is not None


def test_any_flipped_bit_is_found(path: Path) -> None:
    load(path)
    (place,) = conversions()
    whole = place.read_bytes()
    gaps = 0
    for at in range(0, len(whole), 997):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        place.unlink()
        place.write_bytes(data)
        gaps += converted.read_converted(place) is not None
    # Only the gaps between tensors are nobody's.
    assert gaps < len(whole) / 997 / 10


def test_a_full_disk_costs_the_conversion_and_not_the_model(path: Path) -> None:
    expected = load(path).logits(TOKENS)
    (place,) = conversions()
    place.unlink()
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch.object(converted.os, "replace", side_effect=full):
        assert torch.equal(load(path).logits(TOKENS), expected)
    assert conversions() == []
    with mock.patch.object(converted.tempfile, "mkstemp", side_effect=full):
        assert torch.equal(load(path).logits(TOKENS), expected)
    with mock.patch.object(converted.shutil, "disk_usage", return_value=mock.Mock(free=1000)):
        assert torch.equal(load(path).logits(TOKENS), expected)
    assert conversions() == []


_FORKED = """
import os, resource, sys, time
import torch
import engine.load
from engine import chat_format, tokenizer

path, count, at_once = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "at once"
children = []
for _ in range(count):
    child = os.fork()
    if not child:
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter(), time.process_time()
        loaded = engine.load.load_model(path, device="cpu")
        # Of wall and processor, the smaller: a machine that is busy with other things is not slow.
        seconds = min(time.perf_counter() - start[0], time.process_time() - start[1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
        total = float(loaded.logits([1, 2, 3]).sum())
        os.write(1, f"{seconds} {peak * 1024} {total}\\n".encode())
        os._exit(0)
    children.append(child)
    if not at_once:
        os.waitpid(child, 0)
for child in children if at_once else ():
    os.waitpid(child, 0)
"""
"""Torch is imported once for all; each child loads as a program does that has just imported it."""


def loaded_by_forks(path: Path, count: int, how: str) -> list[tuple[float, float, float]]:
    """Of each of `count` processes: seconds of loading, bytes that it added at its peak, and a sum
    of logits."""
    command = [sys.executable, "-c", _FORKED, str(path), str(count), how]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    lines = subprocess.check_output(command, env=environment, text=True).splitlines()
    assert len(lines) == count
    return [(float(a), float(b), float(c)) for a, b, c in map(str.split, lines)]


forks = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere torch does not like to be forked"
)


@forks
def test_programs_that_convert_at_once_do_not_hurt_each_other(path: Path) -> None:
    sums = {total for _, _, total in loaded_by_forks(path, 3, "at once")}
    assert sums == {float(load(path).logits([1, 2, 3]).sum())}
    assert len(conversions()) == 1


def test_a_big_model_keeps_no_second_copy_of_its_weights(path: Path, monkeypatch) -> None:
    with_copy = load(path)
    monkeypatch.setattr(gguf_model, "DENSE_SHARE", 1 << 50)
    without = load(path)
    assert without.model.weights.blocks[0].qkv.linear.dense is None  # type: ignore[attr-defined]
    assert without.info == with_copy.info
    p, q = (loaded.logits(TOKENS).log_softmax(-1) for loaded in (with_copy, without))
    assert float((p.exp() * (p - q)).sum(-1).mean()) < 0.01
    assert torch.equal(in_steps(with_copy), in_steps(without))


@forks
def test_the_default_model_loads_fast_and_in_little_memory(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    first, *later = loaded_by_forks(smollm2_path, 4, "one by one")
    kept = sum(file.stat().st_size for file in (tmp_path / "cache" / "converted").iterdir())
    assert first[0] < 6
    assert min(later)[0] < 0.5
    # Beside the weights: the vocabulary as Python objects, some 30 MB.
    assert first[1] < 1.3 * kept + 40e6
    assert min(later)[1] < 1.3 * kept
