"""From a conversation to the token list that is prefilled: the format's opening, the tool's
examples, the turns.

Everything but the answers is encoded from text, which is deterministic; answers are the ids that
were generated. So the list of a turn is the list of the turn before with tokens appended, as long
as the preface stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.messages import Exchange

if TYPE_CHECKING:
    from engine.load import LoadedModel


@dataclass(frozen=True)
class Prompt:
    """`tokens` to prefill, of which the first `preface` stand before the conversation's own turns;
    `sizes` are the tokens of each past exchange, oldest first, and of the new message."""

    tokens: list[int]
    preface: int
    sizes: tuple[int, ...]


def build_prompt(
    loaded: LoadedModel,
    history: Sequence[Exchange],
    text: str,
    system: str | None = None,
    tools: bool = True,
) -> Prompt:
    """The prompt that asks `text` after `history`, ending where the answer begins."""
