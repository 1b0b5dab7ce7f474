"""The commands behind `chat-tui`: a table, and the group that imports one when it is run.

The first frame, and the help, have no time for what they do not show.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS = {
    "bench": ("chat_tui.bench:bench", "Measure the engine against this machine, and the screen."),
    "models": ("chat_tui.models:models", "List, show, fetch and convert models."),
    "sessions": ("chat_tui.sessions_cli:sessions", "List, search and change saved conversations."),
    "export": ("chat_tui.sessions_cli:export", "Write a saved conversation to a file or stdout."),
    "import": ("chat_tui.sessions_cli:import_", "Save a conversation that was exported as json."),
    "rate": ("chat_tui.rate_cli:rate", "Prefer answers to a file of prompts, one key each."),
    "stats": ("chat_tui.stats:stats", "Win rates and Bradley-Terry scores from the picks."),
    "config": ("chat_tui.config_cli:config", "Show and edit the file of settings."),
    "serve": ("chat_tui.serving:serve", "The chat in a browser on this machine."),
}
"""What stands behind `chat-tui`: where it is (a function, or a Typer with commands of its own), and
what it does."""


class Later(TyperCommand):
    """A command that is imported when it is run."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        return self.command().make_context(*arguments, **extra)

    def command(self) -> TyperCommand | TyperGroup:
        assert self.name is not None
        module, name = COMMANDS[self.name][0].split(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(self.name)(found)
            found = alone
        command = get_command(found)
        assert isinstance(command, (TyperCommand, TyperGroup))
        command.name = self.name
        return command


class Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = {
            name: Later(name=name, help=summary) for name, (_, summary) in COMMANDS.items()
        }
