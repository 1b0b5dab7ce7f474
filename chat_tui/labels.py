"""What tells answers to one message from one another: model, system text, temperature, top-k.

differences(turn.answers)      # ["smollm2 · T 0.2", "smollm2 · T 1.2", "qwen · T 0.7"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chat_tui.answer import Answer
from chat_tui.model import short_names
from chat_tui.settings import show_top_k

_SYSTEM = 28
"""Characters of a system text in a label."""
_SHORTEST = 8
"""Characters to which a part of a label is shortened, and no further."""


class Difference(NamedTuple):
    """What an answer has that not all of them have, in words; empty where all have the same."""

    model: str = ""
    system: str = ""
    temperature: str = ""
    top_k: str = ""


def differing(answers: Sequence[Answer]) -> list[Difference]:
    """For each answer what it differs in from others."""
    models = short_names(answer.model for answer in answers)
    told = [
        Difference(
            models[answer.model],
            show_system(answer.prompt.system),
            f"T {answer.temperature:g}",
            show_top_k(answer.top_k),
        )
        for answer in answers
    ]
    columns = zip(*told, strict=True)
    shown = [column if len(set(column)) > 1 else ("",) * len(told) for column in columns]
    return [Difference(*row) for row in zip(*shown, strict=True)]


def differences(answers: Sequence[Answer]) -> list[str]:
    """The same as one label for each answer."""
    return [" · ".join(filter(None, difference)) for difference in differing(answers)]


def fitted(label: str, cells: int) -> str:
    """A label in at most `cells` characters, as far as its parts can be shortened; the longest
    first, so that a long name leaves room for the temperature behind it."""
    parts = label.split(" · ")
    while (excess := len(" · ".join(parts)) - cells) > 0:
        longest = max(range(len(parts)), key=lambda place: len(parts[place]))
        length = max(len(parts[longest]) - excess, _SHORTEST)
        if length >= len(parts[longest]):
            break
        parts[longest] = parts[longest][: length - 1].rstrip() + "…"
    return " · ".join(parts)


def show_system(system: str | None) -> str:
    """The beginning of a system text, in quotes."""
    if system is None:
        return "own system text"
    flat = " ".join(system.split())
    return f"“{flat if len(flat) <= _SYSTEM else flat[: _SYSTEM - 1].rstrip() + '…'}”"
