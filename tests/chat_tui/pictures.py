"""What tests of how a screen looks have in common; `clock` is a fixture of `conftest.py`. `pytest
--snapshot-update` takes the pictures anew; look at them then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import pytest

Snap = Callable[..., bool]
SIZES = [(80, 24), (120, 40), (220, 60)]

pictures = pytest.mark.skipif(
    version("textual") != "8.2.8",
    reason="the pictures were taken with Textual 8.2.8; another draws frames and bars differently",
)


def by_size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@dataclass
class Clock:
    """Stands in for `time`, so that rates are the same each time."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now
