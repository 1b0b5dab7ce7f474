"""Loads a nanochat checkpoint of any era, and says what it took it for.

    path = locate("nanochat:sft/d20")              # engine/loading/nanochat_paths.py
    checkpoint = load_checkpoint(path, device="cpu", assume={"softcap": 20.0})
    checkpoint.model.forward(ids, checkpoint.model.new_cache(1, 2048))
    checkpoint.variant, checkpoint.assumptions     # "V4", ("softcap 20, as asked.",)

A checkpoint is `model_<step>.pt` with `meta_<step>.json` beside it, and a tokenizer not far away.
Reading the tensors safely is `torch_file.py`'s, telling the variant `nanochat_identity.py`'s; here
every tensor is held against what that variant has, and none may be missing, left over or NaN.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.loading.finite import is_finite
from engine.loading.nanochat_identity import Identity, identify
from engine.loading.nanochat_paths import locate, meta_path, source_of, tokenizer_path
from engine.loading.torch_file import read_tensors
from engine.memory import release_mapped, require_memory
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import tensor_shapes

COMPILED_PREFIX = "_orig_mod."
"""What torch.compile puts before every name."""

MAX_META = 16 << 20
WEIGHT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
NAMES_SHOWN = 10


@dataclass(frozen=True)
class NanochatCheckpoint:
    """A loaded checkpoint.

    Attributes:
        variant: the name of `model.variant`.
        assumptions, reason: as in `Identity`.
        source: the stage of training, "base", "mid", "sft" or "rl"; None where nothing tells. Base
            models continue text; they know no turns.
        meta: `meta_<step>.json` as it is.
    """

    model: NanochatModel
    variant: str
    assumptions: tuple[str, ...]
    reason: str
    source: str | None
    meta: dict[str, Any]
    path: Path
    tokenizer_path: Path


def load_checkpoint(
    path: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    assume: Mapping[str, object] | None = None,
) -> NanochatCheckpoint:
    """Load `model_<step>.pt`, or the last one in a folder; executes nothing that is in it.

    The file is memory-mapped, and converted tensor by tensor where `device` or `dtype` ask for it.

    Args:
        dtype: bfloat16 when None.
        assume: what `identify` may be told; it wins over what the checkpoint says.

    Raises:
        ModelFileError: a file is missing or broken, or is not a nanochat checkpoint.
        EngineError: `assume` has an unknown name or a value that makes no sense, or the model does
            not fit into memory.
    """
    file = locate(str(path))
    if file is None:
        raise ModelFileError(
            f"{path}: there is no model in it: neither config.json with safetensors, nor a GGUF"
            " file, nor a nanochat checkpoint (model_<step>.pt)."
        )
    meta = read_meta(meta_path(file))
    tokenizer = tokenizer_path(file)
    tensors = _strip_prefix(file, read_tensors(file))
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    identity = identify(shapes, meta, assume or {}, where=str(file))
    kind = torch.bfloat16 if dtype is None else dtype
    needed = sum(tensor.numel() for tensor in tensors.values()) * kind.itemsize
    require_memory(str(file), needed, torch.device(device))
    check(tensors, identity, where=str(file), seen=lambda tensor: release_mapped([tensor]))
    model = NanochatModel(
        identity.config,
        identity.variant,
        tensors,
        device=device,
        dtype=kind,
        release=lambda: release_mapped(tensors.values()),
    )
    return NanochatCheckpoint(
        model=model,
        variant=identity.variant.name,
        assumptions=identity.assumptions,
        reason=identity.reason,
        source=source_of(file) or ("base" if _is_base(meta) else None),
        meta=meta,
        path=file,
        tokenizer_path=tokenizer,
    )


def read_meta(path: Path) -> dict[str, Any]:
    """The meta of a checkpoint; at least its `model_config` is an object.

    Raises:
        ModelFileError: it cannot be read or is something else.
    """
    try:
        if path.stat().st_size > MAX_META:
            raise ModelFileError(f"{path}: is larger than any meta file; it is something else.")
        meta = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path}: is not valid JSON ({error}); copy it again from where the model was trained."
        ) from error
    if not isinstance(meta, dict) or not isinstance(meta.get("model_config"), dict):
        raise ModelFileError(f"{path}: has no model_config; it is not the meta of a checkpoint.")
    return meta


def check(
    tensors: Mapping[str, Tensor],
    identity: Identity,
    *,
    where: str,
    seen: Callable[[Tensor], None] = lambda tensor: None,
) -> None:
    """Hold every tensor against what the variant has at these sizes: its name, shape, type, and
    that its values are numbers. `seen` is called with each one that was read through.

    Raises:
        ModelFileError: naming what is missing, what is left over, or the first that differs.
    """
    config, variant = identity.config, identity.variant
    expected = tensor_shapes(config, variant)
    missing = [name for name in expected if name not in tensors]
    unused = [name for name in tensors if name not in expected]
    if missing or unused:
        parts = [f"missing {_listed(missing)}"] if missing else []
        parts += [f"not known {_listed(unused)}"] if unused else []
        raise ModelFileError(
            f"{where}: does not have the tensors of a nanochat {variant.name} with "
            f"{config.n_layer} layers: {'; '.join(parts)}."
        )
    if config.n_embd < variant.min_width:
        raise ModelFileError(
            f"{where}: a width of {config.n_embd} is too small for the gates of {variant.name}, "
            f"which read {variant.min_width} channels."
        )
    for name, shape in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{where}: {name} is {list(tensor.shape)}, and by the meta should be {list(shape)}."
            )
        if tensor.dtype not in WEIGHT_TYPES:
            raise ModelFileError(f"{where}: {name} is {tensor.dtype}, which is not supported.")
        if not is_finite(tensor):
            raise ModelFileError(
                f"{where}: {name} has values that are not numbers (NaN or infinite); "
                "the training diverged or the file is damaged."
            )
        seen(tensor)


def _strip_prefix(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    stripped = {name.removeprefix(COMPILED_PREFIX): tensor for name, tensor in tensors.items()}
    if len(stripped) != len(tensors):
        raise ModelFileError(f"{path}: has tensors twice, with and without {COMPILED_PREFIX}")
    return stripped


def _is_base(meta: Mapping[str, Any]) -> bool:
    """Only base training ever asks for the CORE metric."""
    user_config = meta.get("user_config")
    return isinstance(user_config, dict) and "core_metric_every" in user_config


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(repr(name[:80]) for name in names[:NAMES_SHOWN]) + more
