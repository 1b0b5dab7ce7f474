"""`load_model`: from whatever `--model` takes to a model that can run, with everything that belongs
to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.chat_format import ChatFormat, NanochatFormat, PlainFormat
from engine.errors import EngineError, ModelFileError
from engine.loading import catalog
from engine.loading.hub import best_gguf
from engine.memory import require_memory
from engine.messages import ModelInfo
from engine.models.base import Model, running
from engine.tokenizer import Tokenizer
from engine.tools import NanochatTools, NoTools, ToolDialect, dialect_for

if TYPE_CHECKING:
    from engine.loading.nanochat import NanochatCheckpoint

Progress = Callable[[str, int, int], None]
"""(what, done, total) bytes of a download; `what` is one line."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model, its vocabulary, its way of writing turns and calling tools, and what is known of
    it."""

    model: Model
    tokenizer: Tokenizer
    chat_format: ChatFormat
    tools: ToolDialect
    info: ModelInfo

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> Tensor:
        """One full forward pass: float32 (len(tokens), vocab_size)."""
        cache = self.model.new_cache(1, len(tokens))
        ids = torch.tensor([tokens], device=self.model.device)
        return self.model.forward(ids, cache, all_positions=True)[0]


def load_model(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    assume: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    beside: bool = False,
) -> LoadedModel:
    """Load `name`, whatever `--model` takes: a catalogue name, a GGUF file, a folder with
    config.json and safetensors, a nanochat checkpoint or its name, a repository on the hub.

    Args:
        device: "cpu", "cuda", "cuda:1", "mps"; None takes a GPU where there is one.
        dtype: "float32", "bfloat16" or "float16"; None is bfloat16, with quantised weights kept as
            they are where a kernel takes them.
        assume: settles what a checkpoint does not say, such as {"softcap": 20.0}.
        progress: told of downloads.
        beside: other models stay in memory: refuse this one where they leave too little for it.

    Raises:
        EngineError: with one line that says which file, what is wrong and what to do.
    """
    from engine.loading.footprint import footprint

    where = _device(device)
    how = None if dtype is None else dtype_named(dtype)
    path = locate(name, progress)
    gguf = is_gguf(path)
    if beside:
        require_memory(f"{name}, beside the others,", footprint(path, where, how, gguf=gguf), where)
    if gguf:
        _refuse(assume, path)
        return _load_gguf(name, path, where, how)
    if (path / "config.json").is_file():
        return _load_folder(name, path, where, how, assume or {})
    return _load_nanochat(name, path, where, how, assume or {})


def dtype_named(name: str) -> torch.dtype:
    """Raises EngineError where weights cannot be held so."""
    if name not in _DTYPES:
        raise EngineError(f"Unknown dtype {name!r}: use one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def locate(name: str, progress: Progress | None = None) -> Path:
    """The file or folder of a model, whatever `--model` takes; fetched where it has to be."""
    return _inside(catalog.resolve(name, progress or (lambda what, done, total: None)))


def _refuse(assume: Mapping[str, object] | None, path: Path) -> None:
    if assume:
        raise EngineError(
            f"Nothing can be assumed of {path}: it says itself what nanochat checkpoints leave out"
            f" ({', '.join(assume)})."
        )


def _inside(path: Path) -> Path:
    """The folder that a file of it stands for, and the GGUF file in a folder that has nothing
    else."""
    if path.suffix in (".safetensors", ".json") and path.is_file():
        return path.parent
    if path.is_dir() and not (path / "config.json").is_file():
        files = [file.name for file in path.glob("*.gguf")]
        if files:
            return path / best_gguf(files)
    return path


def is_gguf(path: Path) -> bool:
    """By its first bytes, whatever it is called; a file that is called so is held to it."""
    if not path.is_file():
        return False
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _load_gguf(
    name: str, path: Path, device: torch.device, dtype: torch.dtype | None
) -> LoadedModel:
    from engine.loading import chat_formats
    from engine.loading.gguf_model import load_gguf

    found = load_gguf(path, device, dtype)
    format = chat_formats.from_gguf(found.metadata, found.tokenizer)
    return assembled(
        name,
        path,
        found.model,
        found.tokenizer,
        format,
        _tools_of(format, found.tokenizer),
        family=found.family,
        weight_types=found.weight_types,
        assumptions=found.assumptions,
    )


def _load_folder(
    name: str,
    path: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    assume: Mapping[str, object],
) -> LoadedModel:
    """A folder as `transformers` writes it: config.json, safetensors, tokenizer.json."""
    from engine.loading import chat_formats
    from engine.loading.config_json import from_config
    from engine.loading.llama import build_llama, kept_bytes, require_vocabulary
    from engine.loading.model_folder import read_json
    from engine.loading.safetensors import read_sharded
    from engine.loading.tensors import HubTensors

    config = read_json(path / "config.json")
    if config.get("model_type") == "nanochat":
        from engine.loading.nanochat_port import load_port

        port = load_port(path, config, device=device, dtype=dtype, assume=assume)
        return _nanochat(name, port)
    _refuse(assume, path)
    architecture = from_config(config, path / "config.json")
    source = HubTensors(path, read_sharded(path), architecture.family.post_norms)
    require_memory(str(path), kept_bytes(source, device, dtype), device)
    tokenizer = Tokenizer.from_tokenizer_json(path / "tokenizer.json")
    require_vocabulary(source, tokenizer.vocab_size)
    model = build_llama(architecture, source, device, dtype, gguf=False)
    format = chat_formats.from_folder(path, tokenizer)
    return assembled(
        name,
        path,
        model,
        tokenizer,
        format,
        _tools_of(format, tokenizer),
        family=architecture.family.name,
        weight_types=source.formats(),
        assumptions=architecture.assumptions,
    )


def _load_nanochat(
    name: str,
    path: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    assume: Mapping[str, object],
) -> LoadedModel:
    from engine.loading.nanochat import load_checkpoint

    return _nanochat(name, load_checkpoint(path, device=device, dtype=dtype, assume=assume))


def _nanochat(name: str, checkpoint: NanochatCheckpoint) -> LoadedModel:
    from engine.loading.chat_formats import from_folder
    from engine.loading.llama import vocabulary_mismatch

    path = checkpoint.tokenizer_path
    if path.suffix == ".json":
        tokenizer = Tokenizer.from_tokenizer_json(path)
    else:
        tokenizer = Tokenizer.from_nanochat_pickle(path)
    rows = checkpoint.model.shape.vocab_size
    if tokenizer.vocab_size > rows:
        raise vocabulary_mismatch(checkpoint.path, tokenizer.vocab_size, rows)
    chat_format: ChatFormat
    tools: ToolDialect
    if checkpoint.source == "base":
        bos = tokenizer.special("<|bos|>")
        note = "a base model, which knows no turns: it continues the text"
        stops = [] if bos is None else [bos]
        chat_format, tools = PlainFormat(tokenizer, bos, stops, note), NoTools()
    elif path.suffix == ".json" and tokenizer.special("<|assistant_end|>") is None:
        chat_format = from_folder(path.parent, tokenizer)
        tools = _tools_of(chat_format, tokenizer)
    else:
        chat_format, tools = NanochatFormat(tokenizer), NanochatTools(tokenizer)
    return assembled(
        name,
        checkpoint.path,
        checkpoint.model,
        tokenizer,
        chat_format,
        tools,
        family="nanochat",
        weight_types=str(checkpoint.model.dtype).removeprefix("torch."),
        variant=checkpoint.variant,
        variant_reason=checkpoint.reason,
        assumptions=checkpoint.assumptions,
    )


def _tools_of(chat_format: ChatFormat, tokenizer: Tokenizer) -> ToolDialect:
    """Where a model only continues text there are no turns to teach it a notation in."""
    if isinstance(chat_format, PlainFormat):
        return NoTools()
    return dialect_for(tokenizer, chat_format.layout.tools)


def assembled(
    name: str,
    path: Path | str,
    model: Model,
    tokenizer: Tokenizer,
    chat_format: ChatFormat,
    tools: ToolDialect,
    *,
    family: str,
    weight_types: str,
    variant: str = "",
    variant_reason: str = "",
    assumptions: tuple[str, ...] = (),
) -> LoadedModel:
    """The parts of a model, and what is told of it."""
    shape = model.shape
    if chat_format.note:
        assumptions += (f"Chat format: {chat_format.note}.",)
    backend, backend_note = running(model)
    info = ModelInfo(
        name=name,
        family=family,
        path=str(path),
        parameters=model.parameters(),
        weight_bytes=model.weight_bytes(),
        kv_bytes_per_token=shape.kv_bytes_per_token(model.dtype),
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_kv_head=shape.n_kv_head,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        context=shape.context,
        dtype=weight_types,
        device=str(model.device),
        backend=backend,
        backend_note=backend_note,
        tool_dialect=tools.name,
        chat_format=chat_format.name,
        variant=variant,
        variant_reason=variant_reason,
        stop_tokens=tuple(tokenizer.decode([id]) for id in sorted(chat_format.stop_tokens)),
        assumptions=assumptions,
    )
    return LoadedModel(model, tokenizer, chat_format, tools, info)


def _device(name: str | None) -> torch.device:
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:  # torch raises AssertionError, RuntimeError or its own, by device
        reason = str(error).splitlines()[0]
        raise EngineError(f"Device {name!r} cannot be used: {reason}") from None
    return device
