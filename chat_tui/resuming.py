"""The session to go on with, as the command line names it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from chat_tui.settings import Settings, Source

if TYPE_CHECKING:
    from chat_tui.session import Session

CHOOSE = "choose"


def spelled_out(arguments: list[str]) -> list[str]:
    """`--resume` may stand without its ID, which the parser of the command line cannot read."""
    spelled = []
    for place, argument in enumerate(arguments, 1):
        behind = arguments[place] if place < len(arguments) else "-"
        alone = argument == "--resume" and behind.startswith("-")
        spelled.append(f"--resume={CHOOSE}" if alone else argument)
    return spelled


def saved(resume: str | None, last: bool) -> Session | None:
    """The session to go on with, if one was asked for."""
    if resume is None and not last:
        return None
    from chat_tui.store import Store, StoreError

    # Not closed: the session's scores are read when they are looked at.
    store = Store.open()
    if resume is not None:
        if not resume.isdecimal():
            raise typer.BadParameter(
                f"{resume!r} is no session; chat-tui sessions list shows them."
            )
        return store.load(int(resume[:18]))
    number = store.last()
    if number is None:
        raise StoreError("No conversation has been saved yet.")
    return store.load(number)


def as_before(settings: Settings, session: Session, *, samples: int | None = None) -> Settings:
    """With the model that the session's last answer came from, and those that were asked with it:
    they have the same seed. By its name, if that would be loaded anyway; else by its file, if that
    is still there, or at its server. Several answer once each where no `samples` are asked for."""
    path, shown = session.conversation.path, session.shown
    turn = shown if shown is not None else path[-1].turn if path else None
    if turn is None or settings.server is not None:
        return settings
    head = path[-1].answer if shown is None else turn.answers[0]
    together = dict.fromkeys(answer.model for answer in turn.answers if answer.seed == head.seed)
    usual = settings.models[0]
    sources = [
        usual
        if model.name == usual.name
        else Source(model.name, model.path)
        if "://" in model.path
        else Source(model.path)
        for model in together
        if model.name == usual.name or "://" in model.path or os.path.exists(model.path)
    ]
    models = tuple(dict.fromkeys(sources)) or settings.models
    if len(models) > 1 and samples is None:
        most = max(len(settings.temperatures), len(settings.top_ks))
        settings = replace(settings, samples=most)
    return replace(settings, models=models)
