"""From a GGUF file to a `Llama`: names, shapes and number formats of the Llama family.

On a CPU, 4-bit tensors stay 4-bit and an 8-bit output head stays 8-bit; everything else, and
everything where another dtype is asked for or the device is not a CPU, becomes dense. GGUF files of
the `llama` architecture hold q and k with adjacent rotary pairs already, as
`engine.models.layers.Rotary` wants them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.loading.gguf import GGUFFile, GGUFTensor
from engine.models.base import Shape
from engine.models.layers import DenseLinear, Int4Linear, Int8Linear, Linear, Rotary
from engine.models.llama import Block, Llama, inverse_frequencies


def llama_from_gguf(
    file: GGUFFile, device: torch.device, dtype: torch.dtype | None
) -> tuple[Llama, str]:
    """The network and its weight types in words ("Q4_1, Q8_0").

    Raises:
        ModelFileError: another architecture, a tensor that is missing, left over or of the wrong
            shape.
    """
    return _Reader(file, device, dtype).read()


class _Reader:
    def __init__(self, file: GGUFFile, device: torch.device, dtype: torch.dtype | None) -> None:
        self.file = file
        self.device = device
        self.dtype = dtype or torch.bfloat16
        self.integer_kernels = device.type == "cpu" and dtype is None
        self.unread = set(file.tensors)

    def read(self) -> tuple[Llama, str]:
        metadata = self.file.metadata
        architecture = metadata.text("general.architecture")
        if architecture != "llama":
            raise ModelFileError(
                f"{self.file.path}: architecture {architecture!r} is not supported; 'llama' is."
            )
        heads = metadata.integer("llama.attention.head_count")
        width = metadata.integer("llama.embedding_length")
        hidden = metadata.integer("llama.feed_forward_length")
        kv_heads = metadata.integer("llama.attention.head_count_kv", heads)
        layers = metadata.integer("llama.block_count")
        context = metadata.integer("llama.context_length")
        if min(heads, width, hidden, kv_heads, layers, context) < 1 or heads % kv_heads:
            raise ModelFileError(
                f"{self.file.path}: impossible sizes: width {width}, {layers} layers,"
                f" {heads} heads, {kv_heads} KV heads."
            )
        head_dim = metadata.integer("llama.rope.dimension_count", width // heads)
        embedding = self.tensor("token_embd.weight", None, width)
        vocab = embedding.shape[0]
        blocks = [self.block(i, width, hidden, heads, kv_heads, head_dim) for i in range(layers)]
        tied = "output.weight" not in self.file.tensors
        head = embedding if tied else self.tensor("output.weight", vocab, width)
        frequencies = inverse_frequencies(
            head_dim, metadata.number("llama.rope.freq_base", 10000.0), self.device
        )
        if "rope_freqs.weight" in self.file.tensors:  # Llama 3's rope scaling, as divisors
            frequencies = frequencies / self.vector("rope_freqs.weight", head_dim // 2).float()
        model = Llama(
            Shape(layers, heads, kv_heads, head_dim, width, vocab, context),
            embedding=self.dense(embedding),
            blocks=blocks,
            norm=self.vector("output_norm.weight", width),
            head=self.head(head),
            rotary=Rotary(frequencies),
            norm_eps=metadata.number("llama.attention.layer_norm_rms_epsilon", 1e-5),
            tied=tied,
        )
        if self.unread:
            raise ModelFileError(
                f"{self.file.path}: {len(self.unread)} tensors that a Llama does not have, such as"
                f" {min(self.unread)}: this variant is not supported."
            )
        types = Counter(tensor.format for tensor in self.file.tensors.values())
        return model, ", ".join(name for name, _ in types.most_common() if name != "F32") or "F32"

    def block(
        self, i: int, width: int, hidden: int, heads: int, kv_heads: int, head_dim: int
    ) -> Block:
        def read(name: str, out: int, into: int) -> GGUFTensor:
            return self.tensor(f"blk.{i}.{name}.weight", out, into)

        return Block(
            attention_norm=self.vector(f"blk.{i}.attn_norm.weight", width),
            qkv=self.linear(
                read("attn_q", heads * head_dim, width),
                read("attn_k", kv_heads * head_dim, width),
                read("attn_v", kv_heads * head_dim, width),
            ),
            out=self.linear(read("attn_output", width, heads * head_dim)),
            mlp_norm=self.vector(f"blk.{i}.ffn_norm.weight", width),
            gate_up=self.linear(read("ffn_gate", hidden, width), read("ffn_up", hidden, width)),
            down=self.linear(read("ffn_down", width, hidden)),
        )

    def tensor(self, name: str, out: int | None, into: int) -> GGUFTensor:
        """A matrix (out, into) of the file; `out` None takes any."""
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise ModelFileError(f"{self.file.path}: tensor {name} is missing.")
        self.unread.discard(name)
        expected = (tensor.shape[0] if out is None else out, into)
        if tensor.shape != expected:
            raise ModelFileError(
                f"{self.file.path}: {name} is {tensor.shape}, its metadata says {expected}."
            )
        return tensor

    def vector(self, name: str, size: int) -> Tensor:
        tensor = self.file.tensors.get(name)
        if tensor is None or tensor.shape != (size,):
            found = "missing" if tensor is None else f"{tensor.shape}, not ({size},)"
            raise ModelFileError(f"{self.file.path}: {name} is {found}.")
        self.unread.discard(name)
        return torch.from_numpy(tensor.dequantize()).to(self.device, self.dtype)

    def dense(self, *tensors: GGUFTensor) -> Tensor:
        parts = [torch.from_numpy(t.dequantize()).to(self.dtype) for t in tensors]
        return (torch.cat(parts) if len(parts) > 1 else parts[0]).to(self.device)

    def linear(self, *tensors: GGUFTensor) -> Linear:
        """One product for matrices that share their input, stacked in this order."""
        if self.integer_kernels:
            codes = [tensor.split_4bit() for tensor in tensors]
            stacks = [_stack(parts) for parts in zip(*(c for c in codes if c), strict=True)]
            if all(codes):
                return Int4Linear.pack(*stacks)
        return DenseLinear(self.dense(*tensors))

    def head(self, tensor: GGUFTensor) -> Linear:
        if self.integer_kernels and tensor.format == "Q8_0":
            return Int8Linear.quantise(torch.from_numpy(tensor.dequantize()))
        return self.linear(tensor)


def _stack(parts: Iterable[object]) -> Tensor:
    return torch.cat([torch.as_tensor(part) for part in parts])
