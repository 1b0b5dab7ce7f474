"""The conversation as exact tokens: what was prefilled and answered, and which of it was sampled.

`Conversation.history()` is what an `Ask` carries. `check()` takes the prompt that the engine then
prefills and compares it with everything known so far; `keep()` records it together with the picked
answer. So `tokens` is the very list that the model has seen and written, and `mask` says of each
token whether the model sampled it (1) or it was given (0).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.messages import Exchange, FinishReason, Overflowed, ToolCall

_ENDINGS = {
    "length": "cut at the token limit",
    "context": "cut where the context is full",
    "cancelled": "stopped",
}


class HistoryChangedError(Exception):
    """A prompt does not begin with the conversation so far. `str(error)` is one line."""


class SaveError(Exception):
    """The conversation was not written. `str(error)` is one line."""


@dataclass(frozen=True)
class Sample:
    """One answer as it was generated: exact ids, mask, and the ids that close it."""

    index: int
    text: str
    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    closing: tuple[int, ...]
    reason: FinishReason
    temperature: float
    calls: tuple[ToolCall, ...] = ()
    forced: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Turn:
    """A message, all answers it got, and the one that was picked."""

    user: str
    samples: tuple[Sample, ...]
    picked: int
    model: str
    seed: int | None
    top_k: int | None
    prompt_tokens: int
    preface_tokens: int

    @property
    def answer(self) -> Sample:
        return self.samples[self.picked]

    @property
    def caption(self) -> str:
        """What it takes to make the answer again, and how it ended if not by itself."""
        answer = self.answer
        of = f"{self.picked + 1} of {len(self.samples)}" if len(self.samples) > 1 else ""
        seed = f"seed {self.seed}" if self.seed is not None else ""
        parts = (of, f"T {answer.temperature:g}", seed, _ENDINGS.get(answer.reason, ""))
        return " · ".join(part for part in parts if part)

    def exchange(self, model: str) -> Exchange:
        """For the next ask; another model's ids mean nothing, so it gets the text alone."""
        tokens = self.answer.tokens if model == self.model else None
        return Exchange(self.user, tokens, self.answer.text)


def first_difference(known: Sequence[int], prompt: Sequence[int]) -> int | None:
    """Where `prompt` stops beginning with `known`; None if it does not stop."""
    for place, (old, new) in enumerate(zip(known, prompt, strict=False)):
        if old != new:
            return place
    return len(prompt) if len(prompt) < len(known) else None


@dataclass
class Conversation:
    """A list of turns and the token list that they make."""

    turns: list[Turn] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    preface_tokens: int = 0
    dropped: int = 0
    _rebased: bool = False

    def history(self, model: str) -> tuple[Exchange, ...]:
        return tuple(turn.exchange(model) for turn in self.turns)

    def check(self, prompt: Sequence[int], preface_tokens: int) -> None:
        """The engine is prefilling `prompt`: does it go on where this conversation stands?

        The preface (the first `preface_tokens`: system text, the calculator's examples) is not the
        conversation's and may be another with every message.

        Raises:
            HistoryChangedError: it does not begin with what is known, though no turn was dropped
                and the model is the same.
        """
        if self._rebased:
            return
        known = self.tokens[self.preface_tokens :]
        place = first_difference(known, prompt[preface_tokens:])
        if place is not None:
            raise HistoryChangedError(
                f"The prompt differs from the conversation at token {place + preface_tokens}: "
                "the model sees other tokens than were kept."
            )

    def keep(self, turn: Turn, prompt: Sequence[int]) -> None:
        """The picked answer to `prompt` becomes part of the conversation."""
        mask = [0] * len(prompt)
        place = 0
        for earlier in self.turns:
            if earlier.model == turn.model:
                place = _mark(prompt, mask, place, earlier.answer)
        answer = turn.answer
        self.turns.append(turn)
        self.tokens = [*prompt, *answer.tokens, *answer.closing]
        self.mask = [*mask, *answer.mask, *([0] * len(answer.closing))]
        self.preface_tokens = turn.preface_tokens
        self._rebased = False

    def drop_oldest(self, count: int) -> None:
        """Forget the oldest turns; the next prompt is then shorter, not longer."""
        if count <= 0:
            return
        self.dropped += len(self.turns[:count])
        del self.turns[:count]
        self.rebase()

    def rebase(self) -> None:
        """The next prompt may begin differently: turns were dropped, or the model is another."""
        self._rebased = True

    def clear(self) -> None:
        self.turns.clear()
        self.tokens, self.mask = [], []
        self.preface_tokens = self.dropped = 0
        self._rebased = False

    def as_json(self, *, model: str, system: str | None, tools: bool) -> str:
        """Everything, ids and masks included, one JSON document."""
        document = {
            "model": model,
            "system": system,
            "tools": tools,
            "dropped_turns": self.dropped,
            "preface_tokens": self.preface_tokens,
            "tokens": self.tokens,
            "mask": self.mask,
            "turns": [_turn_json(turn) for turn in self.turns],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"

    def save(self, path: Path, *, model: str, system: str | None, tools: bool) -> str:
        """Write `as_json` to a new file, readable by its owner alone; says in a line what was done.

        Raises:
            SaveError: it exists already, or the file system refuses.
        """
        document = self.as_json(model=model, system=system, tools=tools)
        try:
            with open(path, "x", encoding="utf-8", opener=_private) as file:
                file.write(document)
        except FileExistsError:
            raise SaveError(f"{path} exists already; nothing was written.") from None
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}.") from error
        return f"{len(self.turns)} turn{'s' * (len(self.turns) != 1)} written to {path}."


def turns_to_drop(event: Overflowed, max_tokens: int | None) -> int | None:
    """How many of the oldest turns must go so that the prompt fits and an answer has some room."""
    room = min(max_tokens or 256, event.limit // 4)
    length = event.prompt_tokens
    turns = event.sizes[:-1]
    for count, size in enumerate(turns, 1):
        length -= size
        if length + room <= event.limit:
            return count
    # Without room for a long answer is still better than not at all.
    return len(turns) if turns and length < event.limit else None


def _mark(prompt: Sequence[int], mask: list[int], place: int, answer: Sample) -> int:
    """Copy an answer's mask to where its ids stand in `prompt`; returns the place behind."""
    width = len(answer.tokens)
    for start in range(place, len(prompt) - width + 1) if width else ():
        if tuple(prompt[start : start + width]) == answer.tokens:
            mask[start : start + width] = answer.mask
            return start + width
    return place


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _turn_json(turn: Turn) -> dict[str, object]:
    return {
        "user": turn.user,
        "model": turn.model,
        "seed": turn.seed,
        "top_k": turn.top_k,
        "picked": turn.picked,
        "prompt_tokens": turn.prompt_tokens,
        "preface_tokens": turn.preface_tokens,
        "samples": [
            {
                "index": sample.index,
                "text": sample.text,
                "tokens": sample.tokens,
                "mask": sample.mask,
                "closing": sample.closing,
                "finish_reason": sample.reason,
                "temperature": sample.temperature,
                "tool_calls": [
                    {"expression": call.expression, "result": call.result} for call in sample.calls
                ],
            }
            for sample in turn.samples
        ],
    }
