"""Keeping the KV state of one ask for the next: only what is new is prefilled then.

By default every turn re-prefills its whole history, which is simple and always right. With reuse,
the engine retains the prompt's keys and values once and each row's own tail as it finishes. The
next prompt says by its tokens which row was picked: the one that it goes on with the longest way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.kv_cache import KVCache, RowTail
from engine.rows import RowState


@dataclass
class _Held:
    prompt: KVCache
    tokens: list[int]
    """Of the prompt."""
    rows: list[tuple[list[int], RowTail]]
    """Tokens whose keys a row holds behind the prompt, and its tail."""


class Retained:
    """What is left of the last ask; empty at first."""

    def __init__(self) -> None:
        self._held: _Held | None = None

    def begin(self, tokens: Sequence[int], prompt: KVCache) -> None:
        """`prompt` has just been filled with `tokens`, at batch 1."""
        self._held = _Held(prompt, list(tokens), [])

    def keep(self, row: RowState, tail: RowTail) -> None:
        """`row` has ended, with this behind the prompt. Its last token may never have been run."""
        if self._held:
            self._held.rows.append((row.tokens[: tail.length], tail))

    def take(self, tokens: Sequence[int], limit: int) -> KVCache | None:
        """A cache that holds the beginning of `tokens`, at least one position short of all of them,
        with room up to `limit`; None where nothing fits. What was retained is given away."""
        held, self._held = self._held, None
        if held is None:
            return None
        shared = _common(held.tokens, tokens)
        length, tail = 0, None
        if shared == len(held.tokens):
            lengths = [(_common(row, tokens[shared:]), tail) for row, tail in held.rows]
            length, tail = max(lengths, key=lambda pair: pair[0], default=(0, None))
        usable = min(shared + length, len(tokens) - 1)
        cache = held.prompt
        cache.truncate(min(shared, usable))
        if tail is not None and usable > shared:
            cache.append(tail, usable - shared, limit)
        # State beside K and V is that of a row's very end; it cannot be wound back.
        wound_back = tail is None or usable < shared + tail.length
        if cache.state and wound_back:
            return None
        return cache if usable > 0 else None


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common beginning."""
    length = min(len(a), len(b))
    for place in range(length):
        if a[place] != b[place]:
            return place
    return length
