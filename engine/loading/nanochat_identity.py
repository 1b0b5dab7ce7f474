"""Tells which nanochat a checkpoint is: by its tensors, then by its meta, else by an assumption.

    identity = identify(shapes, meta, {"window_pattern": "SSSL"}, where="model_000650.pt")
    identity.variant.name, identity.assumptions    # "V2", ("window_pattern SSSL, as asked.",)

nanochat's metas name no version. Most of the forms in `engine/models/nanochat.py` have tensors that
no other has. V1 and V2 differ in the windows, which some metas have lost, and V3 and V4 in the
softcap, which none has; there this module takes the likelier one and says so in a sentence, with
what settles it. Only names, shapes and JSON are looked at: any file format can be asked about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import EngineError, ModelFileError
from engine.models.nanochat_variants import BIGRAM_ROWS_PER_TOKEN, VARIANTS, Config, Variant

Shapes = Mapping[str, tuple[int, ...]]

DEFAULT_WINDOW_PATTERN = "SSSL"
"""What nanochat trains with where nothing else is asked for, since there are windows."""

CONSTANTS = ("softcap", "rotary_base", "qk_scale", "gate_scale")
"""Of a variant; no checkpoint stores them. `assume` may name them, beside `variant` and
`window_pattern`."""

EVAL_TOKENS = (20971520, 41943040)
"""The default of base training in V3's time and in V4's."""

MAX_POSITIONS = 1 << 24
"""Positions up to here are exact in the float32 that rotary angles are computed in."""


@dataclass(frozen=True)
class Identity:
    """What a checkpoint was taken for.

    Attributes:
        assumptions: a sentence for each thing that the checkpoint does not say, and for each that
            the user said instead.
        reason: what told the variant, in a few words.
    """

    config: Config
    variant: Variant
    assumptions: tuple[str, ...]
    reason: str = ""


def identify(
    shapes: Shapes, meta: Mapping[str, Any], assume: Mapping[str, object], *, where: str
) -> Identity:
    """Tell which variant has these tensors, and its sizes.

    Args:
        shapes: every tensor's name and shape.
        meta: the checkpoint's meta.
        assume: the user's word, which wins: `variant`, `window_pattern`, and any of `CONSTANTS`, as
            values or as text.
        where: the file, for messages.

    Raises:
        ModelFileError: no published variant has such tensors, or the sizes make no sense.
        EngineError: `assume` makes no sense.
    """
    asked = _checked_assumptions(assume)
    pattern = asked.get("window_pattern") or _window_pattern(meta, where)
    variant, notes = _variant(shapes, meta, asked, pattern, where)
    notes = [f"{name} {value}, as asked." for name, value in asked.items()] + notes
    constants = {name: float(asked[name]) for name in CONSTANTS if name in asked}
    variant = replace(variant, **constants)  # type: ignore[arg-type]
    if variant.short_window is None and "window_pattern" in asked:
        notes.append(f"window_pattern has no effect, as {variant.name} has no windows.")
    if variant.short_window is not None and pattern is None:
        pattern = DEFAULT_WINDOW_PATTERN
        notes.append(
            f"The meta has lost its window_pattern: {pattern}, nanochat's default, is assumed; "
            "--assume window_pattern=... if it was trained with another."
        )
    config = _config(shapes, meta["model_config"], pattern or "L", where)
    reason = "as asked" if "variant" in asked else _reason(_marks(shapes), pattern)
    return Identity(config, variant, tuple(notes), reason)


def _reason(marks: tuple[bool, int, bool, bool], pattern: str | None) -> str:
    lambdas, channels, bigram, smear = marks
    has = [
        what
        for what, is_there in (
            ("residual scales", lambdas),
            (f"value gates over {channels} channels", channels),
            ("a bigram table", bigram),
            ("smear and backout", smear),
            ("a window pattern", pattern is not None),
        )
        if is_there
    ]
    return f"it has {', '.join(has)}" if has else "it has nothing that came later"


def _user_config(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The command line of the training script, as far as its meta tells it."""
    user_config = meta.get("user_config")
    return user_config if isinstance(user_config, dict) else {}


def _checked_assumptions(assume: Mapping[str, object]) -> dict[str, str]:
    """`assume` as text, in the spelling that this module knows."""
    checked = {}
    names = {name.casefold(): name for name in VARIANTS}
    for name, value in assume.items():
        text = str(value)
        if name == "variant":
            if text.casefold() not in names:
                raise EngineError(f"Cannot assume variant {text!r}: {', '.join(VARIANTS)} exist.")
            text = names[text.casefold()]
        elif name == "window_pattern":
            if not _is_pattern(text):
                raise EngineError(f"Cannot assume window_pattern {text!r}: write it as in SSSL.")
            text = text.upper()
        elif name in CONSTANTS:
            if not _is_positive(text):
                raise EngineError(f"Cannot assume {name} {text!r}: it must be a positive number.")
            text = f"{float(text):.12g}"
        else:
            known = ", ".join(("variant", "window_pattern", *CONSTANTS))
            raise EngineError(f"Cannot assume {name!r}: only {known} can be assumed.")
        checked[name] = text
    return checked


def _is_pattern(text: str) -> bool:
    return bool(text) and not set(text.upper()) - set("SL")


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _window_pattern(meta: Mapping[str, Any], where: str) -> str | None:
    """What the meta says, in one place or the other; None where it has lost it."""
    for config in (meta["model_config"], _user_config(meta)):
        pattern = config.get("window_pattern")
        if pattern is None:
            continue
        if not isinstance(pattern, str) or not _is_pattern(pattern):
            raise ModelFileError(
                f"{where}: the meta's window_pattern is {pattern!r:.40}, and should be of S and L; "
                "--assume window_pattern=... gives another."
            )
        return pattern.upper()
    return None


def _variant(
    shapes: Shapes,
    meta: Mapping[str, Any],
    asked: Mapping[str, str],
    pattern: str | None,
    where: str,
) -> tuple[Variant, list[str]]:
    """The row of the table, and what had to be assumed to take it."""
    if "variant" in asked:
        return VARIANTS[asked["variant"]], []
    found = _marks(shapes)
    candidates = [
        variant
        for variant in VARIANTS.values()
        if found == (variant.lambdas, variant.gate_channels, variant.bigram, variant.smear)
    ]
    names = [variant.name for variant in candidates]
    if names == ["V1", "V2"]:
        return _v1_or_v2(pattern)
    if names == ["V3", "V4"]:
        return _v3_or_v4(_user_config(meta), asked.get("softcap"))
    if not candidates:
        lambdas, channels, bigram, smear = found
        raise ModelFileError(
            f"{where}: no published nanochat has this set of tensors (lambdas {lambdas}, value "
            f"gates over {channels} channels, bigrams {bigram}, smear {smear}). "
            "--assume variant=... shows how it differs from one of them."
        )
    return candidates[0], []


def _marks(shapes: Shapes) -> tuple[bool, int, bool, bool]:
    """What tells the variants apart by their tensors: (lambdas, gate channels, bigram, smear)."""
    gates = (shape for name, shape in shapes.items() if name.endswith(".attn.ve_gate.weight"))
    return (
        any(name in shapes for name in ("resid_lambdas", "x0_lambdas")),
        next((shape[-1] for shape in gates if shape), 0),
        any(name.startswith("bigram_") for name in shapes),
        any(name.startswith(("smear_", "backout_")) for name in shapes),
    )


def _v1_or_v2(pattern: str | None) -> tuple[Variant, list[str]]:
    if pattern is not None:
        return VARIANTS["V2"], []
    return VARIANTS["V1"], [
        "Taken for V1, which has no windows and was trained for hours only: the meta has no "
        "window_pattern. Metas of V2 have lost it too; --assume window_pattern=SSSL if it is one."
    ]


def _v3_or_v4(user_config: Mapping[str, Any], softcap: str | None) -> tuple[Variant, list[str]]:
    """They differ in the softcap alone. Base training changed its defaults at about that time."""
    v3, v4 = VARIANTS["V3"], VARIANTS["V4"]
    if softcap is not None:
        return (v4 if float(softcap) == v4.softcap else v3), []
    taken, other, why = v3, v4, "which was trained for longer; nothing in the meta tells"
    # Only base training has adam_beta1; the other stages have eval_tokens of their own.
    eval_tokens = user_config.get("eval_tokens") if "adam_beta1" in user_config else None
    if eval_tokens in EVAL_TOKENS:
        why = f"as eval_tokens {eval_tokens} in its meta suggests"
        if EVAL_TOKENS.index(eval_tokens):
            taken, other = v4, v3
    return taken, [
        f"Taken for {taken.name} (softcap {taken.softcap:g}), {why}. {other.name} (softcap "
        f"{other.softcap:g}) has the same tensors and the same likeliest token, but is sampled "
        f"differently; --assume variant={other.name} if it is one."
    ]


def _config(shapes: Shapes, model_config: Mapping[str, Any], pattern: str, where: str) -> Config:
    """The sizes that the meta claims, held against the file before anything is built from them."""

    def size(name: str) -> int:
        value = model_config.get(name)
        if type(value) is not int or not 0 < value <= MAX_POSITIONS:
            raise ModelFileError(
                f"{where}: the meta's {name} is {value!r:.40}, not a plausible size."
            )
        return value

    blocks = {name.split(".")[2] for name in shapes if name.startswith("transformer.h.")}
    table = shapes.get("transformer.wte.weight", ())
    bigrams = shapes.get("bigram_embed.embed.weight", ())
    config = Config(
        sequence_len=size("sequence_len"),
        vocab_size=size("vocab_size"),
        n_layer=size("n_layer"),
        n_head=size("n_head"),
        n_kv_head=size("n_kv_head"),
        n_embd=size("n_embd"),
        window_pattern=pattern,
        vocab_rows=table[0] if table else size("vocab_size"),
        bigram_rows=bigrams[0] if bigrams else 0,
    )
    if config.n_layer != len(blocks):
        raise ModelFileError(
            f"{where}: the meta says {config.n_layer} layers and the file has {len(blocks)}; "
            "they do not belong together."
        )
    if config.vocab_rows < config.vocab_size:
        raise ModelFileError(
            f"{where}: the meta says a vocabulary of {config.vocab_size} and the embedding has "
            f"{config.vocab_rows} rows; they do not belong together."
        )
    if bigrams and config.bigram_rows not in (
        BIGRAM_ROWS_PER_TOKEN * config.vocab_size,
        BIGRAM_ROWS_PER_TOKEN * config.vocab_rows,
    ):
        raise ModelFileError(
            f"{where}: its bigram table has {config.bigram_rows} rows, not "
            f"{BIGRAM_ROWS_PER_TOKEN} for each of the vocabulary's {config.vocab_size}."
        )
    if config.n_embd % config.n_head or config.n_head % config.n_kv_head or config.head_dim % 2:
        raise ModelFileError(
            f"{where}: {config.n_head} heads and {config.n_kv_head} KV heads do not divide a width "
            f"of {config.n_embd}; the meta is wrong."
        )
    return config
