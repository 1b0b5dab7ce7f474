"""What a benchmark measures: lengths, widths, and how often.

`Plan()` is the full measurement, `QUICK` one of some seconds; both are shortened to a model's
context by `fitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from engine.errors import EngineError

Tell: TypeAlias = "Callable[[str], object]"
"""Is told, a line at a time, what happens."""


def silent(line: str) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Plan:
    """The lengths are tokens.

    Attributes:
        prompt_tokens, rows: every prompt is decoded with every number of rows.
        decode_tokens: steps per decode.
        repeats: rounds; in each, every case is measured once, so that a slow minute of the machine
            falls on all of them.
        shared_prompt, shared_rows: the case of one shared prefill against one prefill per row.
        turns, turn_prompt, turn_answer: the chat of re-prefill against cache reuse; each turn adds
            so many tokens of the user's and of the model's. 0 turns: not measured.
        limit_s: no round begins that would end later, but for the first. A machine that is too slow
            for two rounds is measured without a warm-up.
        copy_bytes: size of the buffer that is copied to measure bandwidth.
        ceiling_s: for each ceiling of the machine.
    """

    prompt_tokens: tuple[int, ...] = (512, 2048)
    rows: tuple[int, ...] = (1, 8)
    decode_tokens: int = 64
    repeats: int = 5
    shared_prompt: int = 2000
    shared_rows: int = 8
    turns: int = 12
    turn_prompt: int = 128
    turn_answer: int = 32
    limit_s: float = 300.0
    copy_bytes: int = 256 << 20
    ceiling_s: float = 0.5

    def __post_init__(self) -> None:
        numbers: Iterable[int] = (
            *self.prompt_tokens,
            *self.rows,
            self.decode_tokens,
            self.repeats,
            self.shared_prompt,
            self.shared_rows,
        )
        if not self.prompt_tokens or not self.rows or min(numbers) < 1:
            raise EngineError("Prompts, rows, decoded tokens and repeats are numbers from 1 up.")

    def fitted(self, context: int) -> tuple[Plan, str]:
        """This plan within a model's context, and one line that says what was shortened, or ""."""
        decode = min(self.decode_tokens, max(1, context // 2))
        # One further token: the last of a decode is sampled and never run.
        longest = context - decode - 1
        if longest < 1:
            raise EngineError(f"A context of {context} tokens is too short to be measured.")
        prompts = tuple(dict.fromkeys(min(tokens, longest) for tokens in self.prompt_tokens))
        turn = self.turn_prompt + self.turn_answer
        shrink = min(1.0, (context - 1) / (turn * self.turns)) if self.turns else 1.0
        fitted = replace(
            self,
            prompt_tokens=prompts,
            decode_tokens=decode,
            shared_prompt=min(self.shared_prompt, longest),
            turn_prompt=max(1, int(self.turn_prompt * shrink)),
            turn_answer=max(1, int(self.turn_answer * shrink)),
        )
        if 2 * self.turns >= context:
            fitted = replace(fitted, turns=0)
        note = f"Shortened to the model's context of {context} tokens." if fitted != self else ""
        return fitted, note


QUICK = Plan(
    prompt_tokens=(512,),
    decode_tokens=16,
    repeats=2,
    shared_prompt=512,
    turns=4,
    limit_s=30.0,
    copy_bytes=64 << 20,
    ceiling_s=0.2,
)

GPU_PLAN = Plan(
    prompt_tokens=(2048,),
    rows=(1, 8),
    decode_tokens=256,
    repeats=7,
    shared_prompt=2048,
    shared_rows=8,
    limit_s=300.0,
)
"""Some two minutes on a Hopper card, and never more than ten."""

GPU_DRY_RUN = Plan(
    prompt_tokens=(96,),
    rows=(1, 8),
    decode_tokens=8,
    repeats=2,
    shared_prompt=96,
    turns=2,
    turn_prompt=16,
    turn_answer=8,
    limit_s=30.0,
    copy_bytes=1 << 20,
    ceiling_s=0.01,
)
"""The same cases where there is no such card, with a model of some thousand weights: it shows that
the measurement runs, and no speed."""
