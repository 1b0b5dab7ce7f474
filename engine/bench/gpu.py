"""The engine on a GPU: a nanochat of d20 size with random weights, beside nanochat's own way of
running it.

    report = measure("cuda", tell=print)

No file is needed: the speed of a dense network does not depend on what its weights are. `D20` is
nanochat's published size (561M parameters) with a context that has room behind a prompt of 2,048.
Runs on a CPU too, at sizes for tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.bench.eager import VARIANT, EagerNanochat
from engine.bench.plan import GPU_PLAN, Plan, Tell, silent
from engine.bench.report import Report
from engine.bench.suite import Suite
from engine.byte_level import SPLITTERS, BytePairTokenizer
from engine.chat_format import PlainFormat
from engine.errors import EngineError
from engine.load import LoadedModel
from engine.messages import ModelInfo
from engine.models.nanochat import Config, NanochatModel, tensor_shapes
from engine.tokenizer import Tokenizer
from engine.tools import NoTools

D20 = Config(
    sequence_len=4096,
    vocab_size=65536,
    n_layer=20,
    n_head=10,
    n_kv_head=10,
    n_embd=1280,
    window_pattern="L",
    vocab_rows=65536,
)


def random_tensors(config: Config, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters of noise, made where they are used, of a size that keeps activations near 1."""
    source = torch.Generator(device).manual_seed(1)

    def noise(shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=source, device=device, dtype=dtype)
        return values.mul_(shape[-1] ** -0.5)

    return {name: noise(shape) for name, shape in tensor_shapes(config, VARIANT).items()}


def pair_vocabulary(size: int) -> Tokenizer:
    """A vocabulary of `size` ids: the single bytes, then pairs of them. Ordinary BPE, so that what
    the engine does with tokens costs what it always costs."""
    single = [bytes([byte]) for byte in range(256)]
    pairs = (a + b for a in single for b in single)
    tokens = [*single, *(next(pairs) for _ in range(size - 256))]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    return BytePairTokenizer(tokens, ranks, {}, SPLITTERS["gpt-2"])


def random_model(
    config: Config, tensors: dict[str, Tensor], device: torch.device, dtype: torch.dtype
) -> LoadedModel:
    """A model of `tensors`, as the engine takes it."""
    model = NanochatModel(config, VARIANT, tensors, device=device, dtype=dtype)
    tokenizer = pair_vocabulary(config.vocab_size)
    backend = model.new_cache(1, 1).backend
    info = ModelInfo(
        name=f"random weights, nanochat d{config.n_layer}",
        family="nanochat",
        path="",
        parameters=model.parameters(),
        weight_bytes=model.weight_bytes(),
        kv_bytes_per_token=model.shape.kv_bytes_per_token(dtype),
        n_layer=config.n_layer,
        n_head=config.n_head,
        n_kv_head=config.n_kv_head,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        context=config.sequence_len,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        backend=backend.name,
        backend_note=backend.note,
        variant=VARIANT.name,
    )
    return LoadedModel(model, tokenizer, PlainFormat(tokenizer), NoTools(), info)


def measure(
    device: str | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    config: Config = D20,
    plan: Plan = GPU_PLAN,
    tell: Tell = silent,
    progress: Tell = silent,
) -> Report:
    """Our loop and nanochat's on the same weights, interleaved. `device` None is the GPU.

    Raises:
        EngineError: there is no GPU.
    """
    if device is None and not torch.cuda.is_available():
        raise EngineError(
            "torch finds no GPU here; `--device cpu` runs the same measurement, slowly."
        )
    where = torch.device(device or "cuda")
    progress(f"Making {VARIANT.name} d{config.n_layer} of random weights on {where}.")
    tensors = random_tensors(config, where, dtype)
    loaded = random_model(config, tensors, where, dtype)
    reference = EagerNanochat(config, tensors, device=where, dtype=dtype)
    suite = Suite(loaded, plan, tell=tell, progress=progress, reference=reference.generate)
    return suite.run()
