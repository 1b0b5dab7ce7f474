"""Writes a GGUF model as a folder that `transformers`, and the servers built on it, load:
config.json, safetensors, tokenizer.json, tokenizer_config.json, generation_config.json.

    write_hub_folder(read_gguf(path), Path("smollm2"), torch.bfloat16, progress)

The weights are multiplied out; nothing else changes: names, the order of rotary pairs and Gemma's
norms become those of the checkpoint that the file was made of. The folder appears whole or not at
all: it grows under another name beside its place, and a rename puts it there.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import tokenizer_json
from engine.errors import EngineError, ModelFileError
from engine.loading import chat_formats, families
from engine.loading.config_json import to_config
from engine.loading.families import Architecture
from engine.loading.finite import is_finite
from engine.loading.gguf import GGUFFile, Metadata
from engine.loading.llama import require_vocabulary
from engine.loading.safetensors_writer import Part, write_sharded
from engine.loading.tensors import GGUFTensors, StoredTensor, hub_name
from engine.models.layers import part_pairs
from engine.models.rope import Rope
from engine.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]


def write_hub_folder(file: GGUFFile, folder: Path, dtype: torch.dtype, progress: Progress) -> None:
    """Write the model in `file` to `folder`, which is made; an empty one is taken.

    Raises:
        EngineError: the folder is there and not empty, or cannot be written to; the model cannot be
            said in these files.
    """
    architecture = families.from_gguf(file.metadata)
    tokenizer = Tokenizer.from_gguf(file.metadata)
    source = GGUFTensors(file)
    require_vocabulary(source, tokenizer.vocab_size)
    model = _Model(architecture, source)
    ids = chat_formats.gguf_ids(file.metadata, tokenizer)
    ends = _ends(file.metadata, tokenizer, ids)
    documents = {
        "config.json": {**model.config(str(dtype).removeprefix("torch.")), **ends},
        "generation_config.json": ends,
        **_texts(file.metadata, tokenizer, ids, architecture.context),
    }
    parts = model.parts(dtype)
    total = sum(math.prod(part.shape) for part in parts) * dtype.itemsize
    what = f"Writing {folder.name}, {total / 1e6:,.0f} MB"
    with _appearing(folder, total) as unfinished:
        for name, document in documents.items():
            text = json.dumps(document, indent=2, ensure_ascii=False)
            (unfinished / name).write_text(text + "\n", "utf-8")

        def wrote(done: int) -> None:
            file.release()
            progress(what, done, total)

        write_sharded(unfinished, parts, dtype, wrote)


class _Model:
    """The network: which tensors it has, and what becomes of each."""

    def __init__(self, architecture: Architecture, source: GGUFTensors) -> None:
        self.a, self.source = architecture, source
        self.vocab_size = self.find("token_embd.weight").shape[0]
        self.tied = source.find("output.weight") is None
        self.biases = frozenset(
            name for name in self.matrices() if source.find(f"blk.0.{name}.bias") is not None
        )

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Of each block, to their shapes."""
        a = self.a
        q, kv = a.n_head * a.head_dim, a.n_kv_head * a.head_dim
        return {
            "attn_q": (q, a.n_embd),
            "attn_k": (kv, a.n_embd),
            "attn_v": (kv, a.n_embd),
            "attn_output": (a.n_embd, q),
            "ffn_gate": (a.n_hidden, a.n_embd),
            "ffn_up": (a.n_hidden, a.n_embd),
            "ffn_down": (a.n_embd, a.n_hidden),
        }

    def config(self, dtype: str) -> dict[str, Any]:
        a = self.a
        if (divisors := self.source.find("rope_freqs.weight")) is not None:
            if len(a.rope_kinds) > 1 or a.rope_kinds[0].scaling != "default":
                raise self.unsupported("rope_freqs.weight beside another scaling")
            values = torch.empty(divisors.shape)
            divisors.copy_to(values)
            a = replace(a, rope_kinds=(self.llama3(values),))
        try:
            return to_config(
                a, vocab_size=self.vocab_size, tied=self.tied, biases=self.biases, dtype=dtype
            )
        except ModelFileError as error:
            raise ModelFileError(f"{self.source.path}: {error}") from None

    def llama3(self, divisors: Tensor) -> Rope:
        """The scaling that a file's `divisors` were computed with. It does not say its constants;
        of those that were published, `original_context` differs."""
        base, dim = self.a.rope_kinds[0].base, self.a.head_dim
        plain = Rope(base).frequencies(dim)
        for exponent in range(24):
            rope = Rope(
                base, "llama3", factor=divisors.max().item(), original_context=1 << exponent
            )
            if torch.allclose(plain / divisors, rope.frequencies(dim), rtol=1e-4, atol=0):
                return rope
        raise self.unsupported("rope_freqs.weight that are none of Llama 3's")

    def parts(self, dtype: torch.dtype) -> list[Part]:
        """Every tensor, under its new name.

        Raises:
            ModelFileError: one is missing, of another shape than the metadata says, or unknown.
        """
        parts = [self.part(name, shape, dtype) for name, shape in self.expected()]
        if left := self.source.left_over():
            raise ModelFileError(
                f"{self.source.path}: {len(left)} tensors that a {self.a.family.name} model does"
                f" not have, such as {left[0][:80]}: this variant is not supported."
            )
        return parts

    def expected(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes."""
        a = self.a
        yield "token_embd.weight", (self.vocab_size, a.n_embd)
        norms = ["attn_norm", "ffn_norm"]
        if a.family.post_norms:
            norms += ["post_attention_norm", "post_ffw_norm"]
        for layer in range(a.n_layer):
            for name in norms:
                yield f"blk.{layer}.{name}.weight", (a.n_embd,)
            if a.family.qk_norm:
                yield f"blk.{layer}.attn_q_norm.weight", (a.head_dim,)
                yield f"blk.{layer}.attn_k_norm.weight", (a.head_dim,)
            for name, shape in self.matrices().items():
                yield f"blk.{layer}.{name}.weight", shape
                if name in self.biases:
                    yield f"blk.{layer}.{name}.bias", shape[:1]
        yield "output_norm.weight", (a.n_embd,)
        if not self.tied:
            yield "output.weight", (self.vocab_size, a.n_embd)

    def part(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Part:
        stored = self.find(name)
        if stored.shape != shape:
            raise ModelFileError(
                f"{self.source.path}: {name} is {list(stored.shape)}, by its metadata it should be"
                f" {list(shape)}."
            )
        kind = name.split(".")[-2]
        offset = self.a.family.norm_offset if kind.endswith("norm") else 0.0
        paired = self.a.family.pairs_in_gguf and kind in ("attn_q", "attn_k")

        def fill(out: Tensor) -> None:
            if offset:
                values = torch.empty(shape)
                stored.copy_to(values)
                out.copy_(values - offset)
            else:
                stored.copy_to(out)
            if paired:
                out.copy_(part_pairs(out, self.a.head_dim))
            if not is_finite(out):
                raise ModelFileError(
                    f"{self.source.path}: {name} has values that are too large for"
                    f" {str(dtype).removeprefix('torch.')}; choose another dtype."
                )

        return Part(hub_name(name, self.a.family.post_norms), shape, fill)

    def find(self, name: str) -> StoredTensor:
        stored = self.source.find(name)
        if stored is None:
            raise ModelFileError(f"{self.source.path}: tensor {name} is missing.")
        return stored

    def unsupported(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.source.path}: {what} cannot be written as config.json.")


def _ends(
    metadata: Metadata, tokenizer: Tokenizer, ids: Mapping[str, int | None]
) -> dict[str, Any]:
    """The tokens that begin, end and pad: what ends an answer here ends it there."""
    stops = chat_formats.from_gguf(metadata, tokenizer).stop_tokens
    named = {
        "bos_token_id": ids["bos"],
        "eos_token_id": sorted(stops, key=lambda id: (id != ids["eos"], id)) or None,
        "pad_token_id": ids["padding"],
    }
    return {key: value for key, value in named.items() if value is not None}


def _texts(
    metadata: Metadata, tokenizer: Tokenizer, ids: Mapping[str, int | None], context: int
) -> dict[str, dict[str, Any]]:
    """The vocabulary, and how `transformers` is to use it."""
    adds_bos = ids["bos"] is not None and metadata.flag("tokenizer.ggml.add_bos_token", True)
    names = chat_formats.gguf_names(ids, tokenizer)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "add_bos_token": adds_bos,
        "clean_up_tokenization_spaces": False,
        **{f"{key}_token": names.get(f"{key}_token") for key in ("bos", "eos", "unk", "pad")},
    }
    if template := metadata.text("tokenizer.chat_template", ""):
        settings["chat_template"] = template
    return {
        "tokenizer.json": tokenizer_json.from_gguf(metadata, ids["bos"] if adds_bos else None),
        "tokenizer_config.json": settings,
    }


@contextmanager
def _appearing(folder: Path, needed: int) -> Iterator[Path]:
    """A folder to write to, which becomes `folder` where nothing goes wrong, and else nothing."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise EngineError(f"{folder} is there already: nothing is overwritten; name another one.")
    place = Path(os.path.abspath(folder))
    unfinished = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(place.parent).free) < needed:
            raise EngineError(
                f"{folder} needs {needed >> 20:,} MiB and {free >> 20:,} MiB are free there."
            )
        unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        yield unfinished
        unfinished.chmod(0o777 & ~_umask())
        if place.is_dir():
            place.rmdir()
        unfinished.rename(place)
    except OSError as error:
        raise EngineError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
