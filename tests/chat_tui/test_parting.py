"""Where answers part: what they share is faint, the first token of their own is marked."""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.app import App

from chat_tui.rendering import Flow, Palette
from chat_tui.rendering.wrap import Run
from engine.messages import ToolCall

TEXT = (
    "# The sky\n\nIt is **blue**, as <<12*7=84>> of `it` are.\n\n- one\n- two *words*\n\n"
    "```python\nprint(12 * 7)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nforced tail 日本語"
)
CALL = ToolCall(TEXT.index("<<"), TEXT.index(">>") + 2, "12*7", "84", True)
FORCED = [(TEXT.index("84>>"), TEXT.index(">>") + 2), (TEXT.index("forced"), len(TEXT) - 4)]


@pytest.fixture
def palette() -> Palette:
    return Palette.of(App())


def runs(flow: Flow, palette: Palette, width: int = 40) -> list[Run]:
    return [run for line in flow.lines(width, palette) for run in line.runs]


def plain(runs: list[Run]) -> str:
    return "".join(text for text, _ in runs).replace("\xa0", " ")


def is_faint(style: Style, palette: Palette) -> bool:
    return style.color == palette.faint.color


def marked(flow: Flow, palette: Palette) -> tuple[str, str, str]:
    """What is faint, what is marked, and the rest."""
    faint, mark, rest = [], [], []
    for run in runs(flow, palette):
        if run[1] is palette.parting:
            mark.append(run)
        elif is_faint(run[1], palette):
            faint.append(run)
        else:
            rest.append(run)
    return plain(faint), plain(mark), plain(rest)


def test_before_the_token_is_faint_and_behind_it_is_as_ever(palette: Palette) -> None:
    flow = Flow("The sky is blue today.\n\nAnd so on.", closed=True)
    flow.part((10, 15))
    assert marked(flow, palette) == ("The sky is ", "blue", " today.And so on.")


def test_all_of_it_is_faint_while_the_answers_have_not_parted(palette: Palette) -> None:
    flow = Flow("The sky\n\nis blue")
    flow.part((1 << 40, 1 << 40))
    assert marked(flow, palette) == ("The skyis blue", "", "")
    flow.append(" as ever")
    flow.part((14, 17))
    assert marked(flow, palette) == ("The skyis bl", "ue ", "as ever") or marked(flow, palette) == (
        "The skyis bl",
        "ue",
        " as ever",
    )
    flow.part(None)
    assert marked(flow, palette)[0] == ""


@pytest.mark.parametrize(("space", "sign"), [("\n", "↵"), ("\n\n", "↵"), ("  ", "·")])
def test_a_token_of_space_is_marked_by_a_sign(palette: Palette, space: str, sign: str) -> None:
    flow = Flow(f"The sky{space}is blue", closed=True)
    flow.part((7, 7 + len(space)))
    faint, mark, _ = marked(flow, palette)
    assert (faint, mark) == ("The sky", sign)
    assert "is blue" in plain(runs(flow, palette))


def test_a_token_inside_a_call_marks_its_chip(palette: Palette) -> None:
    flow = Flow(TEXT, [CALL], FORCED, closed=True)
    flow.part((CALL.start + 3, CALL.start + 4))
    assert marked(flow, palette)[1] == " 12*7"


def test_a_forced_token_is_marked_like_any_other(palette: Palette) -> None:
    flow = Flow(TEXT, [CALL], FORCED, closed=True)
    start = TEXT.index("tail")
    flow.part((start, start + 4))
    assert marked(flow, palette)[1] == "tail"


@pytest.mark.parametrize("start", range(len(TEXT)))
def test_any_place_in_a_text_can_be_where_answers_part(palette: Palette, start: int) -> None:
    """Nothing that was written is lost, whatever Markdown it cuts."""
    flow = Flow(TEXT, [CALL], FORCED, closed=True)
    flow.part((start, start + 3))
    for width in (12, 40):
        assert all(line.width <= width for line in flow.lines(width, palette))
    drawn = plain(runs(flow, palette, 60))
    for word in ("sky", "blue", "12*7", "words", "print", "日本語"):
        place = TEXT.index(word)
        if place + len(word) <= start or place >= start + 3:
            assert word in drawn
