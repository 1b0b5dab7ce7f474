"""Whatever is in a model's files: it loads, or it is refused in one line, soon, and without
allocating what the file claims."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine import load_model, memory
from engine.errors import EngineError, ModelFileError
from tests.engine.test_families import SIZES
from tests.engine.tiny_models import build, write_gguf, write_tokenizer

resource = pytest.importorskip("resource", reason="limits memory")
NANOCHAT = Path(__file__).parent.parent / "data" / "nanochat" / "V3"
ROOM = 1 << 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """What is loaded, and the file of it that is damaged."""
    folder = tmp_path_factory.mktemp("models")
    model = build(transformers.Qwen2Config(**SIZES))
    q4 = gguf.GGMLQuantizationType.Q4_0
    write_gguf(model, folder / "model.gguf", "qwen2", lambda name: q4)
    model.save_pretrained(folder / "tensors")
    write_tokenizer(folder / "tensors")
    shutil.copytree(NANOCHAT, folder / "nanochat")
    nanochat = folder / "nanochat" / "chatsft_checkpoints" / "d4" / "model_000123.pt"
    tensors = folder / "tensors"
    return {
        "gguf": (folder / "model.gguf", folder / "model.gguf"),
        "safetensors": (tensors, tensors / "model.safetensors"),
        "config": (tensors, tensors / "config.json"),
        "generation config": (tensors, tensors / "generation_config.json"),
        "tokenizer": (tensors, tensors / "tokenizer.json"),
        "nanochat": (nanochat, nanochat),
        "nanochat meta": (nanochat, nanochat.with_name("meta_000123.json")),
        "nanochat tokenizer": (nanochat, folder / "nanochat" / "tokenizer" / "tokenizer.pkl"),
    }


@contextmanager
def little_memory() -> Iterator[None]:
    """Allocations of more than `ROOM` fail, and not with an error of ours."""
    if sys.platform != "linux":
        yield
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def loads_or_is_refused(model: Path) -> None:
    start = time.perf_counter()
    message = ""
    with little_memory():
        try:
            load_model(str(model), device="cpu")
        except EngineError as error:
            message = str(error)
    assert "\n" not in message
    assert len(message) < 1000
    assert time.perf_counter() - start < 2


damages = st.tuples(
    st.sampled_from(["flip", "flip", "byte", "cut", "run", "digits", "insert"]),
    # Headers, and what is anywhere.
    st.one_of(st.integers(0, 3000), st.floats(0, 1, exclude_max=True)),
    st.integers(0, 255),
)


def damaged(whole: bytes, damage: tuple[str, float, int]) -> bytes:
    kind, place, value = damage
    at = int(place * len(whole)) if isinstance(place, float) else place % len(whole)
    data = bytearray(whole)
    match kind:
        case "flip":
            data[at] ^= 1 << value % 8
        case "byte":
            data[at] = value
        case "cut":
            del data[at:]
        case "run":
            data[at : at + 8] = bytes([value]) * 8
        case "digits":
            data[at : at + 1] = b"9" * (value % 20)
        case "insert":
            data[at:at] = bytes([value]) * 3
    return bytes(data)


@pytest.mark.parametrize(
    "name",
    [
        "gguf",
        "safetensors",
        "config",
        "generation config",
        "tokenizer",
        "nanochat",
        "nanochat meta",
        "nanochat tokenizer",
    ],
)
def test_a_damaged_file_loads_or_is_refused_in_one_line(files, name: str) -> None:
    model, file = files[name]
    whole = file.read_bytes()

    @settings(
        max_examples=120,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(damages)
    def check(damage: tuple[str, float, int]) -> None:
        file.write_bytes(damaged(whole, damage))
        loads_or_is_refused(model)

    try:
        check()
    finally:
        file.write_bytes(whole)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    ),
    st.data(),
)
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_any_value_in_a_config_loads_or_is_refused(files, value, data) -> None:
    model, path = files["config"]
    whole = path.read_bytes()
    config = json.loads(whole)
    config[data.draw(st.sampled_from([*sorted(config), "rope_scaling", "head_dim"]))] = value
    try:
        path.write_text(json.dumps(config))
        loads_or_is_refused(model)
    finally:
        path.write_bytes(whole)


def refused(model: Path, message: str) -> None:
    start = time.perf_counter()
    with little_memory(), pytest.raises(EngineError) as caught:
        load_model(str(model), device="cpu")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 2


def header(content: object, size: int = 0) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


HUGE = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not fit into its 0 bytes"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "header of 1152921504606846976 bytes"),
        (header(b"[" * 100_000), "no JSON"),
        (header([]), "no JSON object"),
        (header({"a": HUGE}), "does not lie inside the file"),
        (header({"a": {**HUGE, "shape": [-1]}}), "not described"),
        (header({"a": {**HUGE, "dtype": "F99"}}), "not described"),
        (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 8), "does not lie"),
        (header({"a": 3}), "not described"),
    ],
)
def test_safetensors_that_claim_what_is_not_there_are_refused(files, tmp_path, content, message):
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(content)
    refused(tmp_path / "model", message)


def test_tensors_that_overlap_are_refused(files, tmp_path):
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    (tmp_path / "model" / "model.safetensors").write_bytes(header({"a": entry, "b": entry}, 8))
    refused(tmp_path / "model", "overlap")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(files, tmp_path, value):
    model = build(transformers.Qwen2Config(**SIZES))
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 3] = value
    q4 = gguf.GGMLQuantizationType.Q4_0
    shutil.copytree(files["safetensors"][0], tmp_path / "tensors")
    model.save_pretrained(tmp_path / "tensors")
    refused(tmp_path / "tensors", "values that are not numbers")
    write_gguf(model, tmp_path / "plain.gguf", "qwen2")
    refused(tmp_path / "plain.gguf", "values that are not numbers")
    with np.errstate(all="ignore"):
        write_gguf(model, tmp_path / "packed.gguf", "qwen2", lambda name: q4)
    refused(tmp_path / "packed.gguf", "values that are not numbers")


def test_a_model_that_does_not_fit_into_memory_is_refused_before_it_is_read(files):
    for name in ("gguf", "safetensors", "nanochat"):
        with mock.patch.object(memory, "free_memory", return_value=100_000):
            refused(files[name][0], "does not fit into memory")


def test_a_vocabulary_that_does_not_fit_the_model_is_refused(files, tmp_path):
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    model = build(transformers.Qwen2Config(**{**SIZES, "vocab_size": 100}))
    model.save_pretrained(tmp_path / "model")
    refused(tmp_path / "model", "do not belong together")


def test_folders_without_a_whole_model_are_refused(files, tmp_path):
    refused(tmp_path, "there is no model in it: neither")
    whole = files["safetensors"][0]
    for missing, message in (
        ("model.safetensors", "there is no model in it"),
        ("tokenizer.json", "cannot be read: No such file"),
    ):
        shutil.copytree(whole, tmp_path / missing)
        (tmp_path / missing / missing).unlink()
        refused(tmp_path / missing, message)


def test_a_missing_shard_is_named(files, tmp_path):
    model = build(transformers.Qwen2Config(**SIZES))
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "model", max_shard_size="60KB")
    shard = sorted((tmp_path / "model").glob("*-of-*.safetensors"))[1]
    shard.unlink()
    refused(tmp_path / "model", f"{shard.name} is missing")


def test_an_index_does_not_lead_out_of_its_folder(files, tmp_path):
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    save_file({"a": torch.zeros(2)}, tmp_path / "outside.safetensors")
    index = '{"weight_map": {"a": "../outside.safetensors"}}'
    (tmp_path / "model" / "model.safetensors.index.json").write_text(index)
    refused(tmp_path / "model", "index.json is broken")


def test_code_in_a_folder_is_not_run(files, tmp_path):
    """Neither modelling code nor pickled weights."""
    shutil.copytree(files["safetensors"][0], tmp_path / "model")
    (tmp_path / "model" / "modeling_qwen2.py").write_text("raise SystemExit(7)")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    load_model(str(tmp_path / "model"), device="cpu")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match="there is no model in it"):
        load_model(str(tmp_path / "model"), device="cpu")
