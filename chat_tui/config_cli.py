"""`chat-tui config`: the file with the chat's settings.

    chat-tui config path        where it is
    chat-tui config show        each option, its value, and where that is from
    chat-tui config keys        each action, its keys, and where they are from
    chat-tui config themes      the themes that there are
    chat-tui config edit        $VISUAL or $EDITOR on the file; it is made at the first time

A file with something wrong in it stops a chat; it stops none of these.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import typer

from chat_tui.config import KEYS, Config, ConfigError, options, read, variable
from chat_tui.editor import run_editor
from chat_tui.shared_options import Json
from engine.paths import config_dir

config = typer.Typer(
    name="config",
    help="The file with the chat's settings: where it is, what it comes to, edit it.",
    no_args_is_help=True,
)

_EXAMPLES = {
    "model": '"smollm2"',
    "server": '"http://127.0.0.1:8000"',
    "samples": "2",
    "temperature": "[0.2, 0.7, 1.0]",
    "top-k": "50",
    "max-tokens": "256",
    "seed": "1",
    "system": '"Answer in one sentence."',
    "device": '"cpu"',
    "dtype": '"bfloat16"',
    "threads": "2",
    "assume": "{ softcap = 20.0 }",
    "theme": '"nord"',
    "ascii": "true",
}
"""Values for options that have none by default, or that can be told in better ways."""

_HEAD = """\
# Settings of chat-tui. Take the # away from a line to change what it says; `chat-tui config show`
# tells what that comes to. The command line wins over the environment (CHAT_TUI_MAX_TOKENS=256),
# and that over this file.
"""
_KEYS_HEAD = """\
# Keys: a key or a list of them for an action, as in "ctrl+g", "f2", "pageup", "?". Below is what
# each action has when nothing is said.
"""


@config.command()
def path(context: typer.Context) -> None:
    """Where the file is, whether there is one or not."""
    print(_config(context).path)


@config.command()
def show(context: typer.Context, as_json: Json = False) -> None:
    """Each option, its value, and where that is from."""
    now = _config(context)
    root: Any = context.find_root()
    rows = [
        (name, root.params[option.name or ""], now.source(root, option.name or ""))
        for name, option in options(root.command).items()
    ]
    troubles = now.troubles + _late_troubles(now)
    if as_json:
        told = {name: {"value": value, "source": source} for name, value, source in rows}
        document = {"file": str(now.path), "options": told, "keys": now.keys, "troubles": troubles}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    there = "" if now.path.exists() else " (there is none yet)"
    print(f"{now.path}{there}\n")
    _table(
        (name, _shown(value), source if source != "environment" else variable(name))
        for name, value, source in rows
    )
    _tell(troubles)


@config.command()
def keys(context: typer.Context, as_json: Json = False) -> None:
    """Each action, its keys, and where they are from; [keys] in the file changes them."""
    from chat_tui.keymap import read_keys
    from chat_tui.keys import BINDINGS

    now = _config(context)
    changed = read_keys(now.keys)[0].changed
    rows = [
        (action, changed.get(action, binding.key), "file" if action in changed else "default")
        for action, binding in BINDINGS.items()
    ]
    if as_json:
        told = {name: {"keys": keys.split(","), "source": source} for name, keys, source in rows}
        print(json.dumps(told, ensure_ascii=False, indent=2))
        return
    _table((name, keys.replace(",", ", "), source) for name, keys, source in rows)
    _tell(_late_troubles(now))


@config.command()
def themes() -> None:
    """The themes that there are, for --theme; the palette (Ctrl+P) tries them."""
    from chat_tui.look import themes as names

    print("\n".join(names()))


@config.command()
def edit(context: typer.Context) -> None:
    """Open the file in $VISUAL or $EDITOR, and look it through afterwards."""
    now = _config(context)
    root: Any = context.find_root().command
    if not now.path.exists():
        config_dir()
        with open(os.open(now.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(template(root))
    while True:
        run_editor(now.path)
        after = read(root)
        troubles = after.troubles + _late_troubles(after)
        _tell(troubles, then_end=False)
        if not troubles:
            return
        if not (sys.stdin.isatty() and typer.confirm("Edit it again?", default=True, err=True)):
            raise typer.Exit(1)


def template(root: Any) -> str:
    """A file in which everything is commented out, and everything is there."""
    parts = [_HEAD]
    for name, option in options(root).items():
        value = _EXAMPLES.get(name) or _toml(option.default)
        told = "\n".join(wrap(option.help or "", 98, initial_indent="# ", subsequent_indent="# "))
        parts.append(f"{told}\n#{name} = {value}\n")
    return "\n".join([*parts, f"[{KEYS}]\n{_KEYS_HEAD}" + "".join(_key_lines())])


def _key_lines() -> Iterator[str]:
    from chat_tui.keys import BINDINGS

    for action, binding in BINDINGS.items():
        keys = binding.key.split(",")
        value = json.dumps(keys if len(keys) > 1 else keys[0])
        what = f"  # {binding.description}" if binding.description else ""
        yield f"#{action} = {value}{what}\n"


def _config(context: typer.Context) -> Config:
    found = context.find_root().obj
    assert isinstance(found, Config)
    return found


def _late_troubles(now: Config) -> list[str]:
    """What only the screen's libraries can tell; they are imported where there is such a thing."""
    troubles: list[str] = []
    if now.keys:
        from chat_tui.keymap import read_keys

        troubles += [f"{now.path}: {KEYS}.{trouble}" for trouble in read_keys(now.keys)[1]]
    if theme := now.values.get("theme"):
        from chat_tui.look import Look, check_theme

        try:
            check_theme(Look(theme, now.place(None, "theme")))
        except ConfigError as error:
            troubles.append(str(error))
    return troubles


def _table(rows: Iterable[tuple[str, ...]]) -> None:
    lines = list(rows)
    wide = [max(len(line[column]) for line in lines) for column in range(2)]
    for first, second, third in lines:
        print(f"{first:<{wide[0]}}  {second:<{wide[1]}}  {third}")


def _tell(troubles: Sequence[str], *, then_end: bool = True) -> None:
    for trouble in troubles:
        print(f"chat-tui: {trouble}", file=sys.stderr)
    if troubles and then_end:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    return "not set" if value in (None, "", [], ()) else _toml(value)


def _toml(value: object) -> str:
    # Of what options can be, JSON and TOML say all but lists of pairs in the same way.
    return json.dumps(value, ensure_ascii=False)
