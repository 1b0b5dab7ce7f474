"""One face for the tensors of a model, whatever file they lie in.

    source = GGUFTensors(file)                              # or HubTensors(tensors, architecture)
    weight = source.find("blk.0.attn_q.weight")             # GGUF's names, for both
    weight.copy_to(torch.empty(weight.shape))

A source counts what was asked for, so that a loader can end by naming what was left over.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.loading import quants
from engine.loading.finite import is_finite
from engine.loading.gguf import GGUFFile, GGUFTensor
from engine.loading.quants import Codes4
from engine.loading.safetensors import SafeTensor

_CHUNK = 1 << 20
"""Weights that are multiplied out at a time, so that a large matrix needs no float32 copy of its
own."""


class StoredTensor(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> str:
        """The name of its number format: "Q4_1", "BF16"."""
        ...

    def copy_to(self, out: Tensor) -> None:
        """Write its values into `out`, a contiguous CPU tensor of its shape, in `out`'s dtype."""
        ...

    def split_4bit(self) -> Codes4 | None:
        """Its codes, scales and minimums, where it is a matrix of 4-bit codes in groups of 32."""
        ...


class TensorSource(Protocol):
    path: Path

    def find(self, name: str) -> StoredTensor | None: ...

    def tensors(self) -> Iterable[StoredTensor]:
        """All of them, without counting them as asked for."""
        ...

    def release(self) -> None:
        """What was read so far is not needed in memory any more."""
        ...

    def left_over(self) -> list[str]:
        """The names, as in the file, of what `find` was never asked for."""
        ...

    def formats(self) -> str:
        """The formats of the matrices, the commonest first: "Q4_1, Q8_0"."""
        ...


class GGUFTensors:
    """Of a GGUF file, whose names are the canonical ones."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self.path = file.path
        self._tensors = file.tensors
        self._unread = set(file.tensors)

    def find(self, name: str) -> StoredTensor | None:
        self._unread.discard(name)
        tensor = self._tensors.get(name)
        return None if tensor is None else _Quantised(tensor)

    def tensors(self) -> Iterable[StoredTensor]:
        return map(_Quantised, self._tensors.values())

    def release(self) -> None:
        self._file.release()

    def left_over(self) -> list[str]:
        return sorted(self._unread)

    def formats(self) -> str:
        return _formats(self._tensors.values())


class _Quantised:
    def __init__(self, tensor: GGUFTensor) -> None:
        self._tensor = tensor
        self.shape = tensor.shape
        self.format = tensor.format

    def copy_to(self, out: Tensor) -> None:
        if self.format not in quants.SUPPORTED:
            self._tensor.dequantize()  # which says so
        width = self.shape[-1]
        rows = math.prod(self.shape) // width
        row_bytes = len(self._tensor.data) // rows
        flat = out.view(rows, width)
        step = max(1, _CHUNK // width)
        for at in range(0, rows, step):
            count = min(step, rows - at)
            data = self._tensor.data[at * row_bytes : (at + count) * row_bytes]
            values = torch.from_numpy(quants.dequantize(data, self.format, (count, width)))
            self._require_numbers(values)
            flat[at : at + count] = values

    def split_4bit(self) -> Codes4 | None:
        codes = self._tensor.split_4bit()
        if codes is not None:
            self._require_numbers(torch.from_numpy(codes.scales))
            self._require_numbers(torch.from_numpy(codes.minimums))
        return codes

    def _require_numbers(self, values: Tensor) -> None:
        if not is_finite(values):
            raise ModelFileError(
                f"{self._tensor.source}: {self._tensor.name} has values that are not numbers (NaN"
                " or infinite); the training diverged or the file is damaged."
            )


class HubTensors:
    """Of safetensors files with the names of `transformers`."""

    def __init__(self, path: Path, tensors: Mapping[str, SafeTensor], post_norms: bool) -> None:
        """`post_norms`: the family has norms behind attention and MLP, which changes what the
        others are called."""
        self.path = path
        # A model with images or a head of another kind calls the text part so.
        for prefix in ("model.language_model.", "language_model.model."):
            inner = {
                "model." + name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            if inner:
                head = tensors.get("language_model.lm_head.weight", tensors.get("lm_head.weight"))
                tensors = inner if head is None else {**inner, "lm_head.weight": head}
                break
        # Older checkpoints carry the rotary frequencies, which follow from the config.
        self._tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if not name.endswith("rotary_emb.inv_freq")
        }
        self._unread = set(self._tensors)
        self._post_norms = post_norms

    def find(self, name: str) -> StoredTensor | None:
        theirs = hub_name(name, self._post_norms)
        self._unread.discard(theirs)
        tensor = self._tensors.get(theirs)
        return None if tensor is None else _Plain(tensor)

    def tensors(self) -> Iterable[StoredTensor]:
        return map(_Plain, self._tensors.values())

    def release(self) -> None:
        """Nothing is held: tensors are read when they are asked for."""

    def left_over(self) -> list[str]:
        return sorted(self._unread)

    def formats(self) -> str:
        return _formats(self._tensors.values())


def hub_name(name: str, post_norms: bool) -> str:
    """What `transformers` calls the tensor that has this name in a GGUF file."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("blk."):
        return f"{_WHOLE[stem]}.{kind}" if stem in _WHOLE else name
    _, layer, part = stem.split(".")
    names = _BLOCK | _POST_NORMS if post_norms else _BLOCK
    return f"model.layers.{layer}.{names[part]}.{kind}"


_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class _Plain:
    def __init__(self, tensor: SafeTensor) -> None:
        self._tensor = tensor
        self.shape = tensor.shape
        self.format = tensor.format

    def copy_to(self, out: Tensor) -> None:
        self._tensor.copy_to(out)

    def split_4bit(self) -> Codes4 | None:
        return None


class _Formatted(Protocol):
    @property
    def format(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def _formats(tensors: Iterable[_Formatted]) -> str:
    matrices = Counter(tensor.format for tensor in tensors if len(tensor.shape) > 1)
    return ", ".join(name for name, _ in matrices.most_common())
