"""What a screen has to draw: the words in which `chat.Chat` speaks to it.

Each is one change, in the order in which it happened; `chat_tui/app.py` maps them to widgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chat_tui.tree import Pick
from chat_tui.turn import RunningTurn
from engine.messages import FinishReason, TokenScore, ToolCall

Kind = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Began:
    """A message was taken by the engine; its rows are about to grow."""

    turn: RunningTurn


@dataclass(frozen=True)
class Extended:
    """More answers are about to grow, beside those of the turn that are shown."""

    turn: RunningTurn


@dataclass(frozen=True)
class Prefilled:
    """So many tokens of the prompt before these rows were run."""

    rows: tuple[int, ...]
    done: int
    total: int


@dataclass(frozen=True)
class Fed:
    row: int
    text: str
    forced: bool


@dataclass(frozen=True)
class Called:
    row: int
    number: int
    call: ToolCall


@dataclass(frozen=True)
class RowEnded:
    """`reason` is None where the model failed before the row's end; `problem` then says why, where
    there is nothing else to show."""

    row: int
    reason: FinishReason | None
    text: str
    problem: str = ""


@dataclass(frozen=True)
class ClosedUp:
    """Rows came to nothing and are gone; those that were at `places` follow one another."""

    turn: RunningTurn
    places: tuple[int, ...]
    focused: int


@dataclass(frozen=True)
class Picked:
    """None: a pick was taken back before the row had ended."""

    row: int | None


@dataclass(frozen=True)
class Kept:
    """The picked answer is part of the conversation."""

    pick: Pick


@dataclass(frozen=True)
class Moved:
    """Another place in the tree, or another conversation, is looked at: `path` leads there, and
    behind it stands `turn`, if there is one, whose answers are there to be picked."""

    path: tuple[Pick, ...]
    turn: RunningTurn | None
    focused: int = 0


@dataclass(frozen=True)
class Withdrawn:
    """The turn ended before anything was generated."""


@dataclass(frozen=True)
class Cleared:
    """A new conversation."""


@dataclass(frozen=True)
class Returned:
    """Typed text that was not asked: it belongs back into the prompt."""

    text: str


@dataclass(frozen=True)
class Noted:
    """A line that stays, in the transcript."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class Told:
    """A line that answers what the user just did."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class ScoresCame:
    """What the model thinks of tokens that it was shown (`Chat.score` gave the number); or why it
    was not asked."""

    ask: int
    scores: tuple[TokenScore, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class CountsCame:
    """How many tokens texts have (`Chat.count` gave the number); none where nobody could say."""

    ask: int
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Overflow:
    """A prompt that does not fit; `drop` oldest turns would make it fit, None says that none do."""

    text: str
    prompt_tokens: int
    limit: int
    drop: int | None


Effect = (
    Began
    | Extended
    | Prefilled
    | Fed
    | Called
    | RowEnded
    | ClosedUp
    | Picked
    | Kept
    | Moved
    | Withdrawn
    | Cleared
    | Returned
    | Noted
    | Told
    | ScoresCame
    | CountsCame
    | Overflow
)
