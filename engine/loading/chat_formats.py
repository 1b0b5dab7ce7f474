"""The chat format of a model out of its files: its template's, or plain text where it has none that
works, and the tokens that end an answer.

    chat_format = from_gguf(file.metadata, tokenizer)
    chat_format = from_folder(folder, tokenizer)      # as `transformers` writes it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.chat_format import ChatFormat, PlainFormat, TemplateFormat
from engine.loading.gguf import Metadata
from engine.loading.model_folder import read_json, read_text
from engine.tokenizer import Tokenizer

ENDINGS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
)
"""Special tokens that end an answer in any model that has them: small models often say another
one than their template has."""


def from_gguf(metadata: Metadata, tokenizer: Tokenizer) -> ChatFormat:
    """The chat format of a GGUF model: its template's, or plain text where it has none that works
    (see `note`)."""

    ids = gguf_ids(metadata, tokenizer)
    return _from_template(
        tokenizer,
        metadata.text("tokenizer.chat_template", ""),
        gguf_names(ids, tokenizer),
        bos=ids["bos"] if metadata.flag("tokenizer.ggml.add_bos_token", True) else None,
        stop_tokens={ids[key] for key in ("eos", "eot", "eom")},
    )


def gguf_ids(metadata: Metadata, tokenizer: Tokenizer) -> dict[str, int | None]:
    """The tokens that a GGUF file names, by what it calls them: "bos", "eos", "padding", ..."""

    def named(key: str) -> int | None:
        id = metadata.integer(f"tokenizer.ggml.{key}_token_id", -1)
        return id if 0 <= id < tokenizer.vocab_size else None

    return {key: named(key) for key in ("bos", "eos", "eot", "eom", "unknown", "padding")}


def gguf_names(ids: Mapping[str, int | None], tokenizer: Tokenizer) -> dict[str, str]:
    """Their texts, by what templates and `transformers` call them: "bos_token", "pad_token", ..."""
    short = {"unknown": "unk", "padding": "pad"}
    return {
        f"{short.get(key, key)}_token": tokenizer.decode([id])
        for key, id in ids.items()
        if id is not None
    }


def from_folder(folder: Path, tokenizer: Tokenizer) -> ChatFormat:
    """The chat format of a folder as `transformers` writes it, out of `chat_template.jinja`,
    `tokenizer_config.json` and `generation_config.json`.

    Raises:
        ModelFileError: one of these files is broken.
    """
    settings = read_json(folder / "tokenizer_config.json", missing_is_empty=True)
    special = read_json(folder / "special_tokens_map.json", missing_is_empty=True)
    generation = read_json(folder / "generation_config.json", missing_is_empty=True)
    config = read_json(folder / "config.json", missing_is_empty=True)
    template = read_text(folder / "chat_template.jinja")
    if template is None:
        template = settings.get("chat_template", "")
    if isinstance(template, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default", "")
    names = {}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(key, special.get(key))
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            names[key] = text
    stop_tokens = {tokenizer.special(names.get("eos_token", ""))}
    for document in (generation, config):
        ends = document.get("eos_token_id")
        for id in ends if isinstance(ends, list) else [ends]:
            if type(id) is int and 0 <= id < tokenizer.vocab_size:
                stop_tokens.add(id)
    return _from_template(
        tokenizer,
        template if isinstance(template, str) else "",
        names,
        bos=tokenizer.special(names.get("bos_token", "")) if _adds_bos(settings) else None,
        stop_tokens=stop_tokens,
    )


def _adds_bos(settings: Mapping[str, object]) -> bool:
    """Whether plain text begins with the bos token; where nothing is said, Llama's and Gemma's
    does and that of the others has no such token."""
    said = settings.get("add_bos_token")
    if isinstance(said, bool):
        return said
    return str(settings.get("tokenizer_class", "")).startswith(("Llama", "Gemma", "PreTrained"))


def _from_template(
    tokenizer: Tokenizer,
    template: str,
    names: Mapping[str, str],
    *,
    bos: int | None,
    stop_tokens: Iterable[int | None],
) -> ChatFormat:
    found = {*stop_tokens, *map(tokenizer.special, ENDINGS)}
    stops = [id for id in found if id is not None]
    if not template.strip():
        note = "the model brings no chat template: it continues the text"
        return PlainFormat(tokenizer, bos, stops, note)
    from engine.template_sandbox import TemplateError

    try:
        return TemplateFormat(tokenizer, template, names, stops)
    except TemplateError as error:
        note = f"the model's chat template cannot be used ({error}): it continues the text"
        return PlainFormat(tokenizer, bos, stops, note)
