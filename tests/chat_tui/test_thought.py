"""What a model thinks before it answers is folded into a line, and can be looked at."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from chat_tui.rendering import Flow
from chat_tui.rendering.wrap import Line
from chat_tui.settings import Settings
from tests.chat_tui.drawn import PALETTE
from tests.chat_tui.running import running

THOUGHT = "<think>\nThey greet me.\n\nSo I greet back.\n</think>\n\n"


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def drawn(text: str, width: int = 40, *, closed: bool = True, unfolded: bool = False) -> list[str]:
    return texts(Flow(text, closed=closed, unfolded=unfolded).lines(width, PALETTE))


def test_a_thought_is_a_line_above_the_answer() -> None:
    assert drawn(THOUGHT + "Hello!") == ["▸ thought · 7 words", "", "Hello!"]
    assert drawn(THOUGHT) == ["▸ thought · 7 words"]


def test_what_is_just_thought_is_seen_while_it_grows() -> None:
    assert drawn("<think>\nThey greet", closed=False) == ["▸ thinking · 2 words · They greet"]
    (line,) = drawn("<think>" + "so many words " * 50, closed=False)
    assert line.startswith("▸ thinking · 150 words · …")
    assert line.endswith(" many words")
    assert cell_len(line) <= 40


def test_a_thought_that_was_cut_says_so() -> None:
    assert drawn("<think>\nThey greet") == ["▸ thought · 2 words, cut off"]


def test_an_empty_thought_is_nothing() -> None:
    assert drawn("<think>\n\n</think>\n\nHello!") == ["Hello!"]


def test_unfolded_it_stands_there_whole() -> None:
    assert drawn(THOUGHT + "Hello!", unfolded=True) == [
        "▾ thought · 7 words",
        "│ They greet me.",
        "│ ",
        "│ So I greet back.",
        "",
        "Hello!",
    ]
    flow = Flow(THOUGHT + "Hello!", closed=True)
    folded = texts(flow.lines(40, PALETTE))
    flow.unfold(True)
    assert len(flow.lines(40, PALETTE)) == 6
    flow.unfold(False)
    assert texts(flow.lines(40, PALETTE)) == folded


@pytest.mark.parametrize("unfolded", [True, False])
@pytest.mark.parametrize("start", ["", "\n\n"])
def test_how_it_arrives_makes_no_difference(start: str, unfolded: bool) -> None:
    text = start + THOUGHT + "Hello **you**!\n\n- one\n- two\n"
    for step in (1, 3, 7, 40):
        flow = Flow(unfolded=unfolded)
        for at in range(0, len(text), step):
            flow.append(text[at : at + step], forced=at < 7)
            flow.lines(30, PALETTE)
        flow.close()
        assert texts(flow.lines(30, PALETTE)) == drawn(text, 30, unfolded=unfolded)


def test_only_what_changed_is_drawn_anew() -> None:
    flow = Flow(THOUGHT + "Hello!\n\nHow are things")
    flow.update()
    flow.append(" going")
    assert flow.update() == 2


def test_a_thought_is_no_terminal_control() -> None:
    (line,) = drawn("<think>\x1b[31mred\x07", closed=False)
    assert "\x1b" not in line
    assert "\x07" not in line
    assert all("\x1b" not in line for line in drawn("<think>\x1b[31mred", unfolded=True))


def test_elsewhere_it_is_text() -> None:
    assert "think" in drawn("Say <think> now")[0]


async def test_a_key_shows_it_in_all_answers_and_in_the_transcript() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("Hi")
        run.backend.start()
        for text in ("<think>", "Greet them.", "</think>", "Hello!"):
            run.backend.step(text, text)
        run.backend.finish()
        await run.settle()
        panes = run.app.grid.panes
        await run.press("tab")
        assert texts(panes[1].lines)[:3] == ["▸ thought · 2 words", "", "Hello!"]
        await run.press("f")
        assert [texts(pane.lines)[1] for pane in panes] == ["│ Greet them."] * 2
        await run.press("f", "1")
        assert "▸ thought · 2 words" in texts(run.app.transcript.lines)
        run.app.transcript.focus()
        await run.press("f")
        assert "│ Greet them." in texts(run.app.transcript.lines)
