"""From a model's tensors to a `Llama`: every family of `engine/loading/families.py`, out of a GGUF
file or safetensors.

    model = build_llama(architecture, GGUFTensors(file), device, dtype=None)

On a CPU, 4-bit tensors stay 4-bit and an output head of 5 to 8 bits becomes one of 8; everything
else, and everything where another dtype is asked for or the device is not a CPU, becomes dense.
Matrices that share their input are stacked into one, read straight to where they belong: beside the
weights as they are kept, at most one of them is in memory in another form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.loading import quants
from engine.loading.families import Architecture
from engine.loading.tensors import StoredTensor, TensorSource
from engine.memory import return_freed
from engine.models.base import Shape
from engine.models.layers import (
    Biased,
    DenseLinear,
    Linear,
    Stacked,
    eight_bit,
    four_bit,
    pair_up,
)
from engine.models.llama import Block, Llama, Weights
from engine.native import library
from engine.native.packing import GROUP

EIGHT_BIT = frozenset({"Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0"})
"""Formats that lose next to nothing in 8 bits."""

_T = TypeVar("_T")


def build_llama(
    architecture: Architecture,
    source: TensorSource,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    gguf: bool,
    keep: Callable[[_T], _T] = lambda value: value,
    keeps_dense: bool = True,
) -> Llama:
    """The network.

    Args:
        gguf: q, k and the norms are as llama.cpp's converter leaves them.
        keep: given each piece that is ready, returns it as it is to be held.
        keeps_dense: whether 4-bit weights are also held in 16 bits.

    Raises:
        ModelFileError: a tensor that is missing, left over, of the wrong shape, of a format that is
            not supported, or with values that are not numbers.
    """
    return _Builder(architecture, source, device, dtype, gguf, keep, keeps_dense).build()


def kept_bytes(source: TensorSource, device: torch.device, dtype: torch.dtype | None) -> int:
    """About how many bytes the network takes, without a second copy of what is in 4 bits."""
    integer_kernels = device.type == "cpu" and dtype is None
    size = (dtype or torch.bfloat16).itemsize
    total = 0
    for tensor in source.tensors():
        count = math.prod(tensor.shape)
        # A code, and two bf16 for each 32 of them.
        bits = _bits(tensor) if integer_kernels else 16
        total += count * 5 // 8 if bits == 4 else count * size
        if bits == 8:
            total += count * 17 // 16  # beside the same in 16
    return total


def require_vocabulary(source: TensorSource, size: int) -> None:
    """Raises ModelFileError where the embedding has fewer rows than the tokenizer has ids: before
    anything is built, which may take long."""
    embedding = source.find("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None else size
    if size > rows:
        raise vocabulary_mismatch(source.path, size, rows)


def vocabulary_mismatch(path: Path, ids: int, rows: int) -> ModelFileError:
    return ModelFileError(
        f"{path}: the tokenizer has {ids} ids and the model only {rows}: they do not belong"
        " together."
    )


def dense_bytes(source: TensorSource) -> int:
    """The bytes of what is in 4 bits, in 16."""
    return sum(2 * math.prod(tensor.shape) for tensor in source.tensors() if _bits(tensor) == 4)


def _bits(tensor: StoredTensor) -> int:
    """In how many bits a CPU's kernels take a weight. That of 4 bits wants multiples of 16
    outputs, that of 8 is a native one."""
    if len(tensor.shape) != 2:
        return 16
    if tensor.format in quants.SPLITS_4BIT and tensor.shape[0] % 16 == 0:
        return 4
    native = library.lanes() and tensor.shape[1] % GROUP == 0
    return 8 if tensor.format in EIGHT_BIT and native else 16


class _Builder:
    def __init__(
        self,
        architecture: Architecture,
        source: TensorSource,
        device: torch.device,
        dtype: torch.dtype | None,
        gguf: bool,
        keep: Callable[[Any], Any],
        keeps_dense: bool,
    ) -> None:
        self.architecture = architecture
        self.source = source
        self.device = device
        self.dtype = dtype or torch.bfloat16
        self.integer_kernels = device.type == "cpu" and dtype is None
        self.keep = keep
        self.keeps_dense = keeps_dense
        self.pairs_up = not (gguf and architecture.family.pairs_in_gguf)
        self.norm_offset = 0.0 if gguf else architecture.family.norm_offset

    def build(self) -> Llama:
        a = self.architecture
        stored = self.find("token_embd.weight")
        if len(stored.shape) != 2 or stored.shape[1] != a.n_embd:
            raise self.wrong_shape("token_embd.weight", stored.shape, (-1, a.n_embd))
        vocab = stored.shape[0]
        stored_head = self.source.find("output.weight")
        # A tied model's file may hold the matrix a second time.
        tied = stored_head is None if a.tied is None else a.tied
        if not tied and stored_head is None:
            raise self.missing("output.weight")
        embedding = self.kept(self.dense([("token_embd.weight", vocab, a.n_embd)], 0))
        frequencies = [rope.frequencies(a.head_dim) for rope in a.rope_kinds]
        # Llama 3's rope scaling, in GGUF files as divisors.
        if self.source.find("rope_freqs.weight") is not None:
            divisors = self.vector("rope_freqs.weight", a.head_dim // 2, torch.float32)
            frequencies[0] = frequencies[0] / divisors.cpu()
        weights = Weights(
            shape=Shape(a.n_layer, a.n_head, a.n_kv_head, a.head_dim, a.n_embd, vocab, a.context),
            embedding=embedding,
            blocks=tuple(self.kept(self.block(layer)) for layer in range(a.n_layer)),
            norm=self.norm("output_norm"),
            head=self.kept(self.head(vocab, embedding if tied else None)),
            frequencies=tuple(f.to(self.device) for f in frequencies),
            magnitudes=tuple(rope.magnitude for rope in a.rope_kinds),
            norm_eps=a.norm_eps,
            embedding_scale=a.embedding_scale,
            activation=a.activation,
            tied=tied,
        )
        if left := self.source.left_over():
            raise ModelFileError(
                f"{self.source.path}: {len(left)} tensors that a {a.family.name} model does not"
                f" have, such as {left[0][:80]}: this variant is not supported."
            )
        return Llama(weights)

    def kept(self, piece: _T) -> _T:
        held: _T = self.keep(piece)
        self.source.release()
        return_freed()
        return held

    def block(self, layer: int) -> Block:
        a, blk = self.architecture, f"blk.{layer}"
        q, kv = a.n_head * a.head_dim, a.n_kv_head * a.head_dim
        post = a.family.post_norms
        return Block(
            attention_norm=self.norm(f"{blk}.attn_norm"),
            qkv=self.linear(
                [(f"{blk}.attn_q", q), (f"{blk}.attn_k", kv), (f"{blk}.attn_v", kv)],
                a.n_embd,
                paired=2 if self.pairs_up else 0,
            ),
            out=self.linear([(f"{blk}.attn_output", a.n_embd)], q),
            mlp_norm=self.norm(f"{blk}.ffn_norm"),
            gate_up=self.linear(
                [(f"{blk}.ffn_gate", a.n_hidden), (f"{blk}.ffn_up", a.n_hidden)], a.n_embd
            ),
            down=self.linear([(f"{blk}.ffn_down", a.n_embd)], a.n_hidden),
            qk_norm=self.qk_norm(blk) if a.family.qk_norm else None,
            attention_post_norm=self.norm(f"{blk}.post_attention_norm") if post else None,
            mlp_post_norm=self.norm(f"{blk}.post_ffw_norm") if post else None,
            window=a.windows[layer],
            rope=a.ropes[layer],
        )

    def qk_norm(self, blk: str) -> Tensor:
        a = self.architecture

        def norm(name: str) -> Tensor:
            weight = self.vector(f"{blk}.{name}.weight", a.head_dim, torch.float32)
            weight = weight + self.norm_offset
            return pair_up(weight, a.head_dim) if self.pairs_up else weight

        q, k = norm("attn_q_norm") * a.query_scale, norm("attn_k_norm")
        rows = (q.expand(a.n_head, -1), k.expand(a.n_kv_head, -1))
        return torch.cat(rows).to(self.dtype)

    def norm(self, name: str) -> Tensor:
        weight = self.vector(f"{name}.weight", self.architecture.n_embd, torch.float32)
        return (weight + self.norm_offset).to(self.dtype)

    def linear(self, parts: Sequence[tuple[str, int]], width: int, paired: int = 0) -> Linear:
        """One product for matrices (name, outputs) that share their input, stacked in this order;
        the rows of the first `paired` of them are reordered to adjacent rotary pairs."""
        linear = self.product([(f"{name}.weight", out, width) for name, out in parts], paired)
        biases = [self.bias(name, out) for name, out in parts]
        if not any(bias is not None for bias in biases):
            return linear
        bias = torch.cat(
            [
                torch.zeros(out, device=self.device, dtype=self.dtype) if bias is None else bias
                for bias, (_, out) in zip(biases, parts, strict=True)
            ]
        )
        if paired:
            turned = sum(out for _, out in parts[:paired])
            bias[:turned] = pair_up(bias[:turned], self.architecture.head_dim)
        return (
            DenseLinear(linear.weight, bias)
            if isinstance(linear, DenseLinear)
            else Biased(linear, bias)
        )

    def bias(self, name: str, size: int) -> Tensor | None:
        if self.source.find(f"{name}.bias") is None:
            if name.rpartition(".")[2] in self.architecture.biases:
                raise self.missing(f"{name}.bias")
            return None
        return self.vector(f"{name}.bias", size, self.dtype)

    def product(self, parts: Sequence[tuple[str, int, int]], paired: int = 0) -> Linear:
        if not self.integer_kernels:
            return DenseLinear(self.dense(parts, paired))
        # Neighbours in the same form are one product: Q4_K_M files hold some values in 6 bits.
        makers = {4: self.four_bit, 8: self.eight_bit, 16: self.sixteen_bit}
        products: list[Linear] = []
        at = 0
        for bits, group in groupby(parts, lambda part: _bits(self.find(part[0]))):
            run = list(group)
            products.append(makers[bits](run, max(0, paired - at)))
            at += len(run)
        return products[0] if len(products) == 1 else Stacked(tuple(products))

    def four_bit(self, parts: Sequence[tuple[str, int, int]], paired: int) -> Linear:
        pieces = []
        for number, (name, out, width) in enumerate(parts):
            codes = self.matrix(name, out, width).split_4bit()
            assert codes is not None
            piece = [torch.from_numpy(array) for array in codes]
            if number < paired:
                piece = [pair_up(tensor, self.architecture.head_dim) for tensor in piece]
            pieces.append(piece)
        codes4, scales, minimums = (
            torch.cat(tensors) if len(tensors) > 1 else tensors[0]
            for tensors in zip(*pieces, strict=True)
        )
        return four_bit(codes4, scales, minimums, self.keeps_dense)

    def eight_bit(self, parts: Sequence[tuple[str, int, int]], paired: int) -> Linear:
        return eight_bit(self.dense(parts, paired))

    def sixteen_bit(self, parts: Sequence[tuple[str, int, int]], paired: int) -> Linear:
        return DenseLinear(self.dense(parts, paired))

    def dense(self, parts: Sequence[tuple[str, int, int]], paired: int) -> Tensor:
        """Matrices (name, out, in) stacked, (sum of out, in), in the dtype of the activations."""
        stored = [self.matrix(*part) for part in parts]
        whole = torch.empty(sum(out for _, out, _ in parts), parts[0][2], dtype=self.dtype)
        at = 0
        for number, (tensor, (_, out, _)) in enumerate(zip(stored, parts, strict=True)):
            rows = whole[at : at + out]
            tensor.copy_to(rows)
            if number < paired:
                rows.copy_(pair_up(rows, self.architecture.head_dim))
            at += out
        return whole.to(self.device)

    def head(self, vocab: int, embedding: Tensor | None) -> Linear:
        """`embedding`: the matrix that the head is, in a tied model."""
        name = "output.weight" if embedding is None else "token_embd.weight"
        width = self.architecture.n_embd
        stored = self.matrix(name, vocab, width)
        if self.integer_kernels and stored.format in EIGHT_BIT:
            dense = embedding if embedding is not None else self.dense([(name, vocab, width)], 0)
            return eight_bit(dense)
        if embedding is not None and not (self.integer_kernels and _bits(stored) == 4):
            return DenseLinear(embedding)
        return self.product([(name, vocab, width)])

    def matrix(self, name: str, out: int, width: int) -> StoredTensor:
        stored = self.find(name)
        if stored.shape != (out, width):
            raise self.wrong_shape(name, stored.shape, (out, width))
        return stored

    def vector(self, name: str, size: int, dtype: torch.dtype) -> Tensor:
        stored = self.find(name)
        if stored.shape != (size,):
            raise self.wrong_shape(name, stored.shape, (size,))
        out = torch.empty(size, dtype=dtype)
        stored.copy_to(out)
        return out.to(self.device)

    def find(self, name: str) -> StoredTensor:
        stored = self.source.find(name)
        if stored is None:
            raise self.missing(name)
        return stored

    def missing(self, name: str) -> ModelFileError:
        return ModelFileError(f"{self.source.path}: tensor {name} is missing.")

    def wrong_shape(
        self, name: str, found: tuple[int, ...], expected: tuple[int, ...]
    ) -> ModelFileError:
        return ModelFileError(
            f"{self.source.path}: {name} is {list(found)}, by its metadata it should be"
            f" {list(expected)}."
        )
