"""The status line: everything where there is room, the essentials where there is not."""

from __future__ import annotations

import pytest

from chat_tui.widgets.status import Figures, gauge, line

FULL = Figures(
    state="running",
    model="SmolLM2-135M-Instruct",
    backend="sdpa · cpu · bfloat16",
    note="flash-attention needs an NVIDIA GPU",
    used=1412,
    limit=8192,
    preface=227,
    seed=952431106,
    ttft=0.331,
    rate=26.4,
    rates=52.8,
    rows=2,
    saved=0.42,
)


def test_at_220_columns_there_is_everything() -> None:
    shown = line(FULL, 220).plain
    for part in (
        "SmolLM2-135M-Instruct",
        "sdpa · cpu · bfloat16",
        "flash-attention needs an NVIDIA GPU",
        "1,412/8,192 (preface 227)",
        "seed 952431106",
        "TTFT 0.33 s",
        "26 tok/s, together 53",
        "shared prefill saved 0.42 s",
    ):
        assert part in shown


@pytest.mark.parametrize("width", range(12, 240, 3))
def test_it_is_never_wider_than_the_screen(width: int) -> None:
    assert line(FULL, width).cell_length <= width


def test_at_80_columns_model_backend_context_seed_and_speed_stay() -> None:
    shown = line(FULL, 78).plain
    for part in ("SmolLM2-135M-Instruct", "sdpa", "1,412/8,192", "seed 952431106", "53 tok/s"):
        assert part in shown


def test_at_40_columns_model_context_and_speed_stay() -> None:
    shown = line(FULL, 38).plain
    for part in ("SmolLM2", "1,412/8,192", "53 tok/s"):
        assert part in shown


def test_one_answer_saves_nothing_and_has_one_rate() -> None:
    shown = line(Figures(**{**FULL.__dict__, "rows": 1}), 220).plain
    assert "saved" not in shown
    assert "53 tok/s" in shown
    assert "together" not in shown


@pytest.mark.parametrize(("used", "bar"), [(0, ""), (1, "▏"), (4096, "████"), (9000, "████████")])
def test_the_gauge_fills_from_the_left(used: int, bar: str) -> None:
    assert gauge(used, 8192).plain == f"{bar:<8}"
