"""What the chat's options are where the command line does not say: the environment and a file.

    config = read(command)              # the command line, as click knows it
    command.main(..., default_map=config.values, obj=config)

The table of options is the chat's own command line: `--max-tokens` is `max-tokens` in `config.toml`
and `CHAT_TUI_MAX_TOKENS` in the environment. The command line wins over the environment, and that
over the file. What is wrong is collected in `Config.troubles`, a line each, and raised by `check()`
where a chat is about to begin: a broken file can still be looked at and edited.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import typer

from chat_tui.arguments import assumption, temperatures, top_ks
from engine.errors import EngineError
from engine.paths import config_path

if TYPE_CHECKING:
    from typer.core import TyperGroup, TyperOption

FILE_NAME = "config.toml"
KEYS = "keys"
"""The name of the file's table of keys (`chat_tui/keymap.py`)."""

T = TypeVar("T")

Source = Literal["default", "file", "environment", "command line"]
Found = tuple[Source, str, str, Any]
"""Where a value is from, in short and in words; the option's name; the value."""

_ACTS = ("prompt", "json", "resume", "continue", "version", "help")
"""Options that say what to do this time."""
_NUMBERS = ("temperature", "top-k")
"""Options that are a number, or several with commas: in the file a number or a list of them."""
_PAIRS = ("assume",)
"""Options that are given as KEY=VALUE: in the file a table, in the environment with spaces."""


_SWITCHED = ("1", "0", "true", "false", "yes", "no", "on", "off")

CHECKS: Mapping[str, Callable[[str], object]] = {
    "temperature": temperatures,
    "top-k": top_ks,
    "assume": assumption,
}
"""How the chat reads the text of an option beyond what click does."""


class ConfigError(EngineError):
    """The file or the environment says something that cannot be."""


@dataclass
class Config:
    """What the file and the environment say.

    Attributes:
        path: of the file, whether there is one or not.
        values: by the names of the chat's parameters, as click takes them.
        sources: where each of these values is from.
        keys: the file's table of keys, flat: `tree.fold` to a key or several.
        troubles: what is wrong, in a line each.
    """

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    keys: dict[str, object] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Begin nothing with what cannot be.

        Raises:
            ConfigError: the first thing that is wrong.
        """
        if self.troubles:
            raise ConfigError(self.troubles[0])

    def source(self, context: typer.Context | None, parameter: str) -> Source:
        """Where the value of one of the chat's parameters is from; without `context`, where the
        command line says nothing of it."""
        given = context.get_parameter_source(parameter) if context is not None else None
        if given is not None and given.name == "COMMANDLINE":
            return "command line"
        return self.sources.get(parameter, "default")

    def first(self, context: typer.Context, parameter: str, value: T) -> T:
        """An option's value; of several that the file says, the first."""
        if self.source(context, parameter) != "file":
            return value
        several: Any = value
        first: Any = several.split(",")[0] if isinstance(several, str) else several[:1]
        return cast(T, first)

    def place(self, context: typer.Context | None, name: str) -> str:
        """Where the value of an option is from, as it is to be told."""
        source = self.source(context, name.replace("-", "_"))
        if source == "file":
            return f"{self.path}: {name}"
        return variable(name) if source == "environment" else f"--{name}"


def options(command: TyperGroup) -> dict[str, TyperOption]:
    """The options that can be set, by their names in the file."""
    named: dict[str, Any] = {}
    for option in command.params:
        name = next((name[2:] for name in option.opts if name.startswith("--")), "")
        if name and name not in _ACTS and not name.endswith("-completion"):
            named[name] = option
    return named


def variable(name: str) -> str:
    """The environment variable of an option."""
    return "CHAT_TUI_" + name.upper().replace("-", "_")


def nearest(name: str, names: Iterable[str]) -> str:
    """A question to put behind what is not known: what may have been meant."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else "."


def read(command: TyperGroup) -> Config:
    """Read the file, if there is one, and the environment."""
    config = Config(config_path() / FILE_NAME)
    known = options(command)
    context = typer.Context(command, info_name="chat-tui")
    for source, where, name, value in (*_in_file(config, known), *_in_environment(known)):
        option = known[name]
        assert option.name is not None
        try:
            given = _READ[source](name, value, option)
            option.type_cast_value(context, given)
            if name in CHECKS:
                for text in _listed(given):
                    CHECKS[name](str(text))
        except typer.BadParameter as error:
            config.troubles.append(f"{where}: {error.message}")
        except ValueError as error:
            config.troubles.append(f"{where} {error}.")
        else:
            config.values[option.name] = given
            config.sources[option.name] = source
    return config


def _in_file(config: Config, known: Iterable[str]) -> Iterator[Found]:
    for key, value in _table(config).items():
        name = key.replace("_", "-")
        if name in known:
            yield "file", f"{config.path}: {name}", name, value
        elif key != KEYS:
            near = nearest(name, [*known, KEYS])
            config.troubles.append(f"{config.path}: there is no option {key}{near}")
        elif not isinstance(value, dict):
            config.troubles.append(f"{config.path}: {KEYS} is a table: [{KEYS}].")
        else:
            for action, keys in _flat(value):
                if action.replace("_", "-") in known:
                    config.troubles.append(f"{config.path}: {action} belongs above [{KEYS}].")
                else:
                    config.keys[action] = keys


def _in_environment(known: Iterable[str]) -> Iterator[Found]:
    for name in known:
        # An empty variable is as good as none.
        if text := os.environ.get(variable(name)):
            yield "environment", variable(name), name, text


def _table(config: Config) -> dict[str, Any]:
    """What stands in the file; nothing where it is missing, or cannot be read at all."""
    try:
        text = config.path.read_bytes().decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        config.troubles.append(f"{config.path}, line {line}: this is not UTF-8.")
        return {}
    except OSError as error:
        config.troubles.append(f"{config.path} cannot be read: {error.strerror}.")
        return {}
    # Imported where there is a file: it takes its time, and most have none.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(text)
        return table
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        found = re.search(r"line (\d+)", place)
        line = int(found[1]) if found else text.rstrip().count("\n") + 1
        config.troubles.append(f"{config.path}, line {line}: {what[0].lower()}{what[1:]}.")
        return {}


def _flat(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _from_file(name: str, value: Any, option: TyperOption) -> object:
    """A value of the file as the command line would give it.

    Raises:
        ValueError: it is of another kind; the message says which would do.
    """
    if _is_switch(option):
        return _of(value, bool, "true or false")
    if _is_whole(option):
        return _of(value, int, "a whole number")
    if name in _NUMBERS:
        wanted = 'a number, a list of numbers, or "0.2,0.7"'
        return ",".join(str(_of(part, (int, float, str), wanted)) for part in _listed(value))
    if name in _PAIRS and isinstance(value, dict):
        return [f"{key}={part}" for key, part in value.items()]
    if option.multiple:
        return [_of(part, str, "a text, or a list of texts") for part in _listed(value)]
    return _of(value, str, 'a text: "..."')


def _from_text(name: str, text: str, option: TyperOption) -> object:
    """A variable of the environment as the command line would give it."""
    if _is_whole(option):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"takes a whole number, not {text!r}") from None
    if _is_switch(option) and text.lower() not in _SWITCHED:
        raise ValueError(f"takes true or false, not {text!r}")
    if not option.multiple:
        return text
    return text.split() if name in _PAIRS else [text]


_READ: Mapping[Source, Callable[[str, Any, TyperOption], object]] = {
    "file": _from_file,
    "environment": _from_text,
}


def _is_switch(option: TyperOption) -> bool:
    return option.type.name == "boolean"


def _is_whole(option: TyperOption) -> bool:
    return option.type.name.startswith("int")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _of(value: object, kind: type | tuple[type, ...], wanted: str) -> object:
    # A bool is an int to Python, to nobody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"takes {wanted}, not {value!r}")
    return value
