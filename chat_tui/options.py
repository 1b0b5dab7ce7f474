"""What the options of the command line say of what answers, and of how it looks.

    settings = settings_of(model=["smollm2"], ...)   # the values of the options, by their names
    look = look_of(context)

They are declared in `cli.py`; several commands take them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from chat_tui import arguments
from chat_tui.arguments import BadValueError
from chat_tui.ascii import speaks_utf8
from chat_tui.served import is_served
from chat_tui.settings import Settings, SettingsError, Source

if TYPE_CHECKING:
    from chat_tui.look import Look

T = TypeVar("T")

DEFAULTS = Settings()


def parsed(name: str, parse: Callable[[str], T], text: str) -> T:
    """As the slash command reads it."""
    try:
        return parse(text)
    except BadValueError as error:
        raise typer.BadParameter(f"{name} {error}, not {text!r}.") from None


def _sources(models: list[str], servers: list[str], *, usual: bool) -> tuple[Source, ...]:
    """Every model, at every server unless its name says where it runs. A server to which that
    leaves no model contributes its first; not one that is there as `usual`, beside named models."""
    servers = [server for server in servers if server]
    at: list[str | None] = [*servers] if servers else [None]
    named = [Source.of(model, server) for model in models for server in at]
    used = {source.server for source in named}
    rest = [Source("", server) for server in servers if server not in used]
    if usual and named:
        rest = []
    return tuple(dict.fromkeys([*named, *rest])) or DEFAULTS.models


def settings_of(
    *,
    model: list[str] | None,
    server: list[str] | None,
    key_env: str,
    samples: int | None,
    temperature: str,
    top_k: str,
    max_tokens: int | None,
    seed: int | None,
    system: list[str] | None,
    tools: bool,
    reuse_cache: bool,
    device: str | None,
    dtype: str | None,
    threads: int | None,
    assume: list[str] | None,
    usual: int | None = None,
    usual_server: bool = False,
) -> Settings:
    """What the options say. `usual` are the answers where nothing asks for others; `usual_server`
    says that the server is not of this command line, but what there is otherwise.

    Raises:
        typer.BadParameter: one of them says nothing that is known, or too much.
    """
    temperatures = parsed("--temperature", arguments.temperatures, temperature)
    top_ks = parsed("--top-k", arguments.top_ks, top_k)
    sources = _sources(model or [], server or [], usual=usual_server)
    systems = tuple(dict.fromkeys(system or DEFAULTS.systems))
    usual = usual or (1 if len(sources) * len(systems) > 1 else DEFAULTS.samples)
    settings = Settings(
        models=sources,
        here=tuple(source for source in sources if source.server is None) or DEFAULTS.here,
        key_env=key_env,
        samples=samples or max(len(temperatures), len(top_ks), usual),
        temperatures=temperatures,
        top_ks=top_ks,
        max_tokens=max_tokens,
        seed=seed,
        systems=systems,
        tools=tools,
        reuse_cache=reuse_cache,
        device=device,
        dtype=dtype,
        threads=threads,
        assume=tuple(parsed("--assume", arguments.assumption, text) for text in assume or ()),
    )
    try:
        return settings.checked()
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


LOOK = ("theme", "ascii_", "still")
"""The options that say how it looks."""


def look_of(context: Any) -> Look:
    """What the chat's options say of how it looks."""
    from chat_tui.look import Look

    theme, ascii_, still = (context.params[name] for name in LOOK)
    if ascii_ is None:
        ascii_ = not (is_served() or speaks_utf8(os.environ))
    return Look(theme, context.obj.place(context, "theme"), ascii_, still)
