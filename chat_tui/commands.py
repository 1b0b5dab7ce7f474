"""The slash commands: one table for parsing, completion, help and the palette.

`interpret(line)` says what a line of the prompt is: a `Message` for the model, a `SetValue` for
one field of the settings, an `Act`, a `Question` about a current value, or a `Complaint` that is
one clear line. `complete(line)` says what could be typed next. A message that must begin with a
slash is written with two.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chat_tui.labels import show_system
from chat_tui.model import short_names
from chat_tui.parts import Wanted, wanted
from chat_tui.path_choices import paths
from chat_tui.settings import MAX_SAMPLES, Own, OwnField, Settings, Setup, show_top_k


class BadValueError(ValueError):
    """A command's argument is not what it takes. `str(error)` says what it takes."""


def _samples(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_SAMPLES:
        raise BadValueError(f"takes a whole number from 1 to {MAX_SAMPLES}")
    return int(text)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) == 0:
        raise BadValueError("takes a whole number from 1")
    return int(text)


def _parts(text: str) -> list[str]:
    return re.split(r"[,\s]+", text.strip(" ,"))


def temperatures(text: str) -> tuple[float, ...]:
    values: list[float] = []
    for part in _parts(text):
        if not re.fullmatch(r"\d{0,3}(\.\d{0,6})?", part) or part in ("", "."):
            raise BadValueError("takes one number, or one per answer: 0.7 or 0.2,0.7,1.0")
        values.append(float(part))
    if max(values) > 10 or len(values) > MAX_SAMPLES:
        raise BadValueError(f"takes up to {MAX_SAMPLES} numbers from 0 (greedy) to 10")
    return tuple(values)


def top_ks(text: str) -> tuple[int | None, ...]:
    values = tuple(_top_k(part) for part in _parts(text))
    if len(values) > MAX_SAMPLES:
        raise BadValueError(f"takes up to {MAX_SAMPLES} numbers")
    return values


def _top_k(text: str) -> int | None:
    if text.lower() in ("all", "off", "none", "0"):
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) < 10**8:
        raise BadValueError("takes a whole number from 1, or all")
    return int(text)


def assumption(text: str) -> tuple[str, object]:
    """What the user settles for a checkpoint that does not say it."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise BadValueError("takes KEY=VALUE, as in softcap=20")
    try:
        return key, float(value)
    except ValueError:
        return key, value


def _seed(text: str) -> int | None:
    if text.lower() == "random":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) >= 2**63:
        raise BadValueError("takes a whole number from 0 to 2**63 - 1, or random")
    return int(text)


def _switch(text: str) -> bool:
    try:
        return {"on": True, "off": False}[text.lower()]
    except KeyError:
        raise BadValueError("takes on or off") from None


def _system(text: str) -> str | None:
    return None if text.lower() == "default" else text


def _systems(text: str) -> tuple[str | None, ...]:
    return (_system(text),)


def _models(text: str) -> tuple[str, ...]:
    """One or more names, apart by spaces; a name with a space in it stands in quotes."""
    if os.path.exists(os.path.expanduser(text)):
        return (text,)
    return tuple(quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|(\S+)', text))


def _own(text: str) -> Own:
    number, _, rest = text.partition(" ")
    name, _, argument = rest.strip().partition(" ")
    name, argument = name.lower(), argument.strip()
    if not number.isascii() or not number.isdigit() or int(number[:9]) == 0 or not name:
        raise BadValueError(f"takes a pane and what it is to have: {_PANE}")
    pane = int(number[:9]) - 1
    if name == "default" and not argument:
        return Own(pane, "")
    if name not in _OWN or not argument:
        raise BadValueError(f"takes {', '.join(_OWN)} and a value, or default: {_PANE}")
    field, parse = _OWN[name]
    try:
        return Own(pane, field, parse(argument))
    except BadValueError as error:
        raise BadValueError(f"{number} {name} {error}") from None


def _temperature(text: str) -> float:
    try:
        (temperature,) = temperatures(text)
    except ValueError:
        raise BadValueError("takes one number from 0 (greedy) to 10") from None
    return temperature


_PANE = "/pane 2 temp 1.1"
_OWN: dict[str, tuple[OwnField, Callable[[str], object]]] = {
    "temp": ("temperature", _temperature),
    "topk": ("top_k", _top_k),
    "model": ("model", str),
    "system": ("system", _system),
}
"""What a pane may have of its own, as it is typed."""


def _server(text: str) -> str | None:
    return None if text.lower() == "off" else text


def _part(text: str) -> Wanted:
    part = wanted(text)
    if part is None:
        raise BadValueError("takes an answer's number, and code, code N, tokens or json")
    return part


def _text(text: str) -> str:
    return text


def show_temperatures(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def show_panes(setups: Sequence[Setup]) -> str:
    """What all panes have, then what each has for itself."""
    names = short_names(setup.model.stand_in for setup in setups)
    told = [
        (
            names[setup.model.stand_in],
            show_system(setup.system),
            f"T {setup.temperature:g}",
            show_top_k(setup.top_k),
        )
        for setup in setups
    ]
    same = [len(set(column)) == 1 for column in zip(*told, strict=True)]
    common = " · ".join(part for part, alike in zip(told[0], same, strict=True) if alike)
    if all(same):
        return f"all have {common}"
    each = [
        f"{place} {' · '.join(part for part, alike in zip(parts, same, strict=True) if not alike)}"
        for place, parts in enumerate(told, 1)
    ]
    return "\n".join([*each, *([f"all {common}"] if common else [])])


def show_top_ks(values: Sequence[int | None]) -> str:
    return ",".join("all" if value is None else str(value) for value in values)


@dataclass(frozen=True)
class Command:
    """One row of the table.

    Attributes:
        name: what is typed behind the slash.
        argument: as help shows it; empty where there is none.
        summary: what it does, a few words.
        parse: argument to value; raises `BadValueError`.
        setting: the field of `Settings` that it replaces; empty for an action.
        values: arguments worth offering.
        show: the current value in words.
        optional: it can be given without its argument.
        key: the action in the table of keys that does the same (`chat_tui/keys.py`).
        writes: its argument ends with the path of a new file.
    """

    name: str
    argument: str
    summary: str
    parse: Callable[[str], object] = _text
    setting: str = ""
    values: tuple[str, ...] = ()
    show: Callable[[Settings], str] | None = None
    optional: bool = False
    key: str = ""
    writes: bool = False

    @property
    def usage(self) -> str:
        argument = f"[{self.argument}]" if self.optional else self.argument
        return f"/{self.name} {argument}".rstrip()


COMMANDS: tuple[Command, ...] = (
    Command("new", "", "start a new conversation"),
    Command("undo", "", "take the last pick back, pick another", key="answers.undo"),
    Command("more", "N", "more answers beside these", _samples, optional=True, key="answers.more"),
    Command(
        "edit",
        "N",
        "edit the last message, or the N-th",
        _number,
        optional=True,
        key="answers.edit",
    ),
    Command("continue", "", "continue a stopped or cut answer", key="answers.continue"),
    Command(
        "samples",
        "N",
        "answers per message",
        _samples,
        "samples",
        show=lambda now: str(now.samples),
    ),
    Command(
        "temp",
        "X[,Y…]",
        "temperature, or one per answer",
        temperatures,
        "temperatures",
        show=lambda now: show_temperatures(now.temperatures),
    ),
    Command(
        "topk",
        "K[,L…]|all",
        "sample among the K likeliest tokens",
        top_ks,
        "top_ks",
        ("all",),
        show=lambda now: show_top_ks(now.top_ks),
    ),
    Command(
        "seed",
        "S|random",
        "seed of every message, or a fresh one",
        _seed,
        "seed",
        ("random",),
        show=lambda now: "random" if now.seed is None else str(now.seed),
    ),
    Command(
        "system",
        "TEXT|default",
        "system text from the next message on",
        _systems,
        "systems",
        ("default",),
        show=lambda now: " · ".join(system or "the model's own" for system in now.systems),
    ),
    Command(
        "pane",
        "N FIELD VALUE",
        "let one differ: temp, topk, system, model",
        _own,
        "own",
        show=lambda now: show_panes(now.setups()),
        optional=True,
    ),
    Command(
        "tools",
        "on|off",
        "let the model use the calculator",
        _switch,
        "tools",
        ("on", "off"),
        show=lambda now: "on" if now.tools else "off",
    ),
    Command(
        "cache",
        "on|off",
        "prefill only what is new",
        _switch,
        "reuse_cache",
        ("on", "off"),
        show=lambda now: (
            "on: only what is new is prefilled"
            if now.reuse_cache
            else "off: every turn prefills its whole history"
        ),
    ),
    Command(
        "model",
        "NAME [NAME…]",
        "other models, side by side; keep the conversation",
        _models,
        "models",
        show=lambda now: " ".join(map(str, now.models)),
    ),
    Command(
        "server",
        "URL|off",
        "let a server answer, or this machine",
        _server,
        "server",
        ("off",),
        show=lambda now: now.server or "off: this machine answers",
    ),
    Command("rename", "NAME", "give this conversation another name"),
    Command("save", "PATH", "write the conversation with its token ids as JSON", writes=True),
    Command(
        "copy",
        "N code|tokens|json",
        "an answer, a code block of it, its ids",
        _part,
        values=("code", "tokens", "json"),
        optional=True,
    ),
    Command(
        "export",
        "FORMAT PATH",
        "write the whole tree to a file",
        values=("md ", "json ", "jsonl ", "dpo ", "kto ", "html "),
        writes=True,
    ),
    Command("help", "", "keys and commands", key="chat.help"),
    Command("quit", "", "leave", key="chat.quit"),
)

BY_NAME = {command.name: command for command in COMMANDS}


@dataclass(frozen=True)
class Message:
    text: str


@dataclass(frozen=True)
class SetValue:
    command: Command
    value: object


@dataclass(frozen=True)
class Act:
    command: Command
    argument: str


@dataclass(frozen=True)
class Question:
    """A command without its argument asks for the current value."""

    command: Command


@dataclass(frozen=True)
class Complaint:
    line: str


Outcome = Message | SetValue | Act | Question | Complaint


def is_command(text: str) -> bool:
    return text.startswith("/") and not text.startswith("//")


def interpret(text: str) -> Outcome:
    """What the text of the prompt means."""
    if not is_command(text):
        return Message(text[1:] if text.startswith("//") else text)
    name, _, argument = text[1:].partition(" ")
    name, argument = name.strip(), argument.strip()
    command = BY_NAME.get(name.lower())
    if command is None:
        return Complaint(_unknown(name))
    if not command.argument:
        if argument:
            return Complaint(f"/{command.name} takes nothing behind it.")
        return Act(command, "")
    if not argument:
        if command.optional:
            return Act(command, "")
        if command.show is None:
            return Complaint(f"{command.usage}: {command.summary}.")
        return Question(command)
    try:
        value = command.parse(argument)
    except BadValueError as error:
        return Complaint(f"/{command.name} {error}.")
    return SetValue(command, value) if command.setting else Act(command, argument)


def _unknown(name: str) -> str:
    shown = name.split("\n")[0]
    shown = shown if len(shown) <= 24 else shown[:23] + "…"
    near = difflib.get_close_matches(name.lower(), BY_NAME, n=1, cutoff=0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them."
    return f"There is no /{shown}: {hint} A message that begins with / is written with //."


@dataclass(frozen=True)
class Choice:
    """One line of the completion list; `line` is the prompt's text once it is taken.

    `final` tells that nothing more can be typed behind it. With a `span`, `line` replaces those
    characters alone.
    """

    line: str
    label: str
    summary: str
    final: bool
    span: tuple[int, int] | None = None


def complete(
    text: str, settings: Settings, models: Callable[[], Sequence[str]] = tuple
) -> list[Choice]:
    """What could stand in the prompt next, best first; empty where nothing is to be offered.

    Args:
        models: names worth offering behind `/model`; only called there.
    """
    if not is_command(text) or "\n" in text:
        return []
    name, space, argument = text[1:].partition(" ")
    if not space:
        return [
            Choice(
                f"/{command.name}" + (" " if command.argument else ""),
                command.usage,
                _summary(command, settings),
                final=not command.argument,
            )
            for command in COMMANDS
            if command.name.startswith(name.lower())
        ]
    found = BY_NAME.get(name.lower())
    if found is None or not found.argument:
        return []
    if found.writes:
        kind = next((value for value in found.values if argument.startswith(value)), "")
        if kind or not found.values:
            return _files(f"/{found.name} {kind}", argument.removeprefix(kind))
    values = models() if found.name == "model" else found.values
    return [
        Choice(f"/{found.name} {value}", value, "", final=not value.endswith(" "))
        for value in values
        if value.startswith(argument.lower()) and value != argument
    ]


def _files(lead: str, typed: str) -> list[Choice]:
    """Where a new file could go: folders, and the names that are taken."""
    return [
        Choice(
            lead + path.text,
            path.text,
            "" if path.is_folder else "exists already",
            final=not path.is_folder,
        )
        for path in paths(typed)
    ]


def usage_hint(text: str, settings: Settings) -> str:
    """One line about the command whose argument is being typed; empty elsewhere."""
    if not is_command(text) or "\n" in text:
        return ""
    name, space, _ = text[1:].partition(" ")
    command = BY_NAME.get(name.lower()) if space else None
    if command is None or not command.argument:
        return ""
    return f"{command.usage}  {_summary(command, settings)}"


def _summary(command: Command, settings: Settings) -> str:
    if command.show is None:
        return command.summary
    now = command.show(settings).split("\n")[0]
    now = now if len(now) <= 24 else now[:23] + "…"
    return f"{command.summary} (now {now})"
