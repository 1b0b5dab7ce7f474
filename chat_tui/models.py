"""`chat-tui models`: which models there are, what one of them is, and fetching one.

    chat-tui models list                  the catalogue, nanochats and the hub's cache; no torch
    chat-tui models list --server URL     what a server has
    chat-tui models show smollm2          everything that is known of it, assumptions included
    chat-tui models pull org/name         fetch it, or what is newer of it
    chat-tui models convert smollm2 DIR   write it as safetensors, for servers that take those

Each takes `--json` and prints one document to stdout; progress goes to stderr.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chat_tui import completing
from chat_tui.download_progress import DownloadProgress
from chat_tui.settings import DEFAULT_MODEL
from chat_tui.shared_options import Assume, Device, DType, Json, KeyEnv
from engine.messages import DEFAULT_KEY_ENV

if TYPE_CHECKING:
    from engine.messages import ModelInfo

models = typer.Typer(
    name="models",
    help="List models, show what one of them is, fetch one, convert one.",
    invoke_without_command=True,
)

_SAFETENSORS = "safetensors"
Name = Annotated[str, typer.Argument(help="As --model takes it.", autocompletion=completing.models)]


@models.callback()
def list_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_models()


@models.command("list")
def list_models(
    as_json: Json = False,
    server: Annotated[
        str | None, typer.Option(help="List what a server has instead.", metavar="URL")
    ] = None,
    key_env: KeyEnv = DEFAULT_KEY_ENV,
) -> None:
    """The models that have a name here; any file, folder or repository can be named as well."""
    if server is not None:
        return _list_served(server, key_env, as_json)
    from engine.loading.known import known_models

    known = known_models()
    if as_json:
        documents = [
            {
                "name": model.name,
                "kind": model.kind,
                "title": model.title,
                "bytes": model.size,
                "path": None if model.path is None else str(model.path),
            }
            for model in known
        ]
        print(json.dumps({"models": documents}, indent=2))
        return None
    rows = [
        (
            _plain(model.name),
            model.kind,
            _size(model.size),
            "here" if model.path else "to be fetched",
            _plain(model.title),
        )
        for model in known
    ]
    return _print_table(rows)


@models.command()
def show(
    name: Name = DEFAULT_MODEL,
    as_json: Json = False,
    device: Device = None,
    dtype: DType = None,
    assume: Assume = None,
) -> None:
    """Load a model and say what it is, and what had to be assumed."""
    from chat_tui.arguments import assumption
    from chat_tui.options import parsed
    from engine import load_model, threads

    threads.settle()
    progress = DownloadProgress()
    try:
        loaded = load_model(
            name,
            device=device,
            dtype=dtype,
            assume=dict(parsed("--assume", assumption, text) for text in assume or ()),
            progress=progress.show,
        )
    finally:
        progress.close()
    if as_json:
        print(json.dumps(asdict(loaded.info), indent=2))
    else:
        for label, value in _lines(loaded.info):
            print(f"{label:<16}{_plain(value)}")


@models.command()
def pull(name: Name, as_json: Json = False) -> None:
    """Fetch a model of the catalogue or the hub; of the hub's, whatever is newer."""
    from engine.loading import catalog, hub

    progress = DownloadProgress()
    try:
        path = None
        if name not in catalog.CATALOG and not os.path.exists(os.path.expanduser(name)):
            path = hub.pull(name, progress.show)
        if path is None:
            path = catalog.resolve(name, progress.show)
    finally:
        progress.close()
    if as_json:
        print(json.dumps({"name": name, "path": str(path)}, indent=2))
    else:
        print(path)


@models.command()
def convert(
    name: Name,
    folder: Annotated[
        Path, typer.Argument(help="Where to; it must not be there, or be empty.", metavar="DIR")
    ],
    to: Annotated[str, typer.Option(help="The form: safetensors.")] = _SAFETENSORS,
    dtype: Annotated[
        str,
        typer.Option(
            help="Of the weights: bfloat16, float16, or float32, which keeps what a quantised file "
            "says exactly."
        ),
    ] = "bfloat16",
    as_json: Json = False,
) -> None:
    """Write a GGUF model as a folder of safetensors, which vLLM, SGLang and TGI serve."""
    if to != _SAFETENSORS:
        raise typer.BadParameter(f"models are written as {_SAFETENSORS}, not as {to!r}.")
    from engine.convert import convert

    progress = DownloadProgress()
    try:
        convert(name, folder, dtype=dtype, progress=progress.show)
    finally:
        progress.close()
    if as_json:
        print(json.dumps({"name": name, "path": str(folder), "dtype": dtype}, indent=2))
    else:
        print(folder)


def _list_served(server: str, key_env: str, as_json: bool) -> None:
    """What a server says that it has."""
    import asyncio

    from chat_tui.backends.endpoint import Endpoint, Served, client, served_models
    from chat_tui.backends.faults import ServerError
    from chat_tui.cli import fail

    async def fetch() -> list[Served]:
        endpoint = Endpoint.of(server, key_env)
        async with client(endpoint) as http:
            try:
                return await served_models(http, endpoint)
            except ServerError as error:
                raise ServerError(endpoint.redact(str(error))) from None

    try:
        served = asyncio.run(fetch())
    except ServerError as error:
        fail(_plain(str(error)))
    if as_json:
        documents = [{"name": model.name, "context": model.context or None} for model in served]
        print(json.dumps({"models": documents}, indent=2))
        return
    _print_table(
        [
            (_plain(model.name), f"{model.context:,} tokens" if model.context else "", model.kind)
            for model in served
        ]
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _lines(info: ModelInfo) -> list[tuple[str, str]]:
    """What `show` prints: a label and a text each."""
    family = f"{info.family} {info.variant}".rstrip()
    if info.variant_reason:
        family += f" ({info.variant_reason})"
    per_token = info.kv_bytes_per_token
    lines = [
        ("name", info.name),
        ("path", info.path),
        ("family", family),
        ("parameters", f"{info.parameters:,} ({_count(info.parameters)})"),
        ("layers", f"{info.n_layer}"),
        ("heads", f"{info.n_head} of {info.head_dim}, {info.n_kv_head} KV heads"),
        ("context", f"{info.context:,} tokens"),
        ("vocabulary", f"{info.vocab_size:,} tokens"),
        ("weights", f"{info.dtype}; {_size(info.weight_bytes)} read per step"),
        (
            "KV cache",
            f"{per_token:,} bytes per token, {_size(per_token * info.context)} at full context",
        ),
        ("chat format", info.chat_format),
        ("tools", info.tool_dialect),
        ("stop tokens", " ".join(info.stop_tokens) or "none"),
        ("device", info.device),
        ("attention", info.backend + (f" ({info.backend_note})" if info.backend_note else "")),
    ]
    assumptions = info.assumptions or ("none",)
    return lines + [("" if i else "assumptions", text) for i, text in enumerate(assumptions)]


def _plain(text: str) -> str:
    """Without control and formatting characters: names of files and tokens are anybody's.
    (`chat_tui.rendering.sanitise` shows them, and takes the screen's libraries to import.)"""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _size(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _count(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
