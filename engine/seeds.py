"""Seeds: one that nobody chose, and those of an ask's rows. No torch."""

from __future__ import annotations

import random


def fresh_seed() -> int:
    """A seed that nobody chose, small enough to be read aloud and typed again."""
    return random.SystemRandom().randrange(1, 1_000_000_000)


def row_seed(seed: int, row: int) -> int:
    """What row `row` of an ask with `seed` is seeded from: asking for one sample with this seed
    gives the same answer again."""
    return seed + row
