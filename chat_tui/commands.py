"""The slash commands: one table for parsing, completion, help and the palette.

`interpret(line)` says what a line of the prompt is: a `Message` for the model, a `SetValue` for
one field of the settings, an `Act`, a `Question` about a current value, or a `Complaint` that is
one clear line. `complete(line)` says what could be typed next. A message that must begin with a
slash is written with two.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chat_tui import arguments
from chat_tui.path_choices import paths
from chat_tui.settings import Settings


@dataclass(frozen=True)
class Command:
    """One row of the table.

    Attributes:
        name: what is typed behind the slash.
        argument: as help shows it; empty where there is none.
        summary: what it does, a few words.
        parse: argument to value; raises `arguments.BadValueError`.
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
    parse: Callable[[str], object] = arguments.as_it_is
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
    Command(
        "more",
        "N",
        "more answers beside these",
        arguments.samples,
        optional=True,
        key="answers.more",
    ),
    Command(
        "edit",
        "N",
        "edit the last message, or the N-th",
        arguments.number,
        optional=True,
        key="answers.edit",
    ),
    Command("continue", "", "continue a stopped or cut answer", key="answers.continue"),
    Command(
        "samples",
        "N",
        "answers per message",
        arguments.samples,
        "samples",
        show=lambda now: str(now.samples),
    ),
    Command(
        "temp",
        "X[,Y…]",
        "temperature, or one per answer",
        arguments.temperatures,
        "temperatures",
        show=lambda now: arguments.show_temperatures(now.temperatures),
    ),
    Command(
        "topk",
        "K[,L…]|all",
        "sample among the K likeliest tokens",
        arguments.top_ks,
        "top_ks",
        ("all",),
        show=lambda now: arguments.show_top_ks(now.top_ks),
    ),
    Command(
        "seed",
        "S|random",
        "seed of every message, or a fresh one",
        arguments.seed,
        "seed",
        ("random",),
        show=lambda now: "random" if now.seed is None else str(now.seed),
    ),
    Command(
        "system",
        "TEXT|default",
        "system text from the next message on",
        arguments.systems,
        "systems",
        ("default",),
        show=lambda now: " · ".join(system or "the model's own" for system in now.systems),
    ),
    Command(
        "pane",
        "N FIELD VALUE",
        "let one differ: temp, topk, system, model",
        arguments.own,
        "own",
        show=lambda now: arguments.show_panes(now.setups()),
        optional=True,
    ),
    Command(
        "tools",
        "on|off",
        "let the model use the calculator",
        arguments.switch,
        "tools",
        ("on", "off"),
        show=lambda now: "on" if now.tools else "off",
    ),
    Command(
        "cache",
        "on|off",
        "prefill only what is new",
        arguments.switch,
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
        arguments.models,
        "models",
        show=lambda now: " ".join(map(str, now.models)),
    ),
    Command(
        "server",
        "URL|off",
        "let a server answer, or this machine",
        arguments.server,
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
        arguments.part,
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
    except arguments.BadValueError as error:
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
        models: names worth offering where one is typed; only called there.
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
    before, values = _offered(found, argument, models)
    typed = argument.removeprefix(before)
    return [
        Choice(f"/{found.name} {before}{value}", value, "", final=not value.endswith(" "))
        for value in values
        if value.startswith(typed.lower()) and value != typed
    ]


def _offered(
    command: Command, argument: str, models: Callable[[], Sequence[str]]
) -> tuple[str, Sequence[str]]:
    """What could end an argument, and what stands before that in it."""
    before, space, _ = argument.rpartition(" ")
    words = before.split()
    if command.name == "model":
        return before + space, models()
    if command.name == "pane" and len(words) == 1:
        return before + space, arguments.PANE_FIELDS
    if command.name == "pane" and words[1:] == ["model"]:
        return before + space, models()
    return "", command.values


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
