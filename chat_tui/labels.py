"""What tells answers to one message from one another: model, system text, temperature, top-k.

differences(turn.answers)      # ["smollm2 · T 0.2", "smollm2 · T 1.2", "qwen · T 0.7"]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from chat_tui.model import Model, short_names
from chat_tui.settings import show_top_k

if TYPE_CHECKING:
    from chat_tui.tree import Answer

_SYSTEM = 28
"""Characters of a system text in a label."""


def differences(answers: Sequence[Answer]) -> list[str]:
    """One label for each answer, with what is not the same in all of them; empty where all is."""
    labels: list[list[str]] = [[] for _ in answers]
    for shown in (
        _models([answer.model for answer in answers]),
        [show_system(answer.prompt.system) for answer in answers],
        [f"T {answer.temperature:g}" for answer in answers],
        [show_top_k(answer.top_k) for answer in answers],
    ):
        if len(set(shown)) > 1:
            for label, part in zip(labels, shown, strict=True):
                label.append(part)
    return [" · ".join(label) for label in labels]


def _models(models: Iterable[Model]) -> list[str]:
    models = list(models)
    names = short_names(models)
    return [names[model] for model in models]


def show_system(system: str | None) -> str:
    """The beginning of a system text, in quotes."""
    if system is None:
        return "own system text"
    flat = " ".join(system.split())
    return f"“{flat if len(flat) <= _SYSTEM else flat[: _SYSTEM - 1].rstrip() + '…'}”"
