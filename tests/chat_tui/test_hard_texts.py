"""Texts of many scripts in everything that draws: nothing is wider than its room, nothing is lost,
no grapheme is cut, and nothing reaches the terminal as control."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.strip import Strip

from chat_tui.rendering import Flow, Palette, sanitise
from chat_tui.rendering.said import said
from chat_tui.rendering.wrap import Line, graphemes, wrap
from chat_tui.widgets.transcript import Answer, Notice, draw
from tests.chat_tui.hard_texts import HARD_TEXTS
from tests.chat_tui.running import Running, running

PALETTE = Palette.of(App())
CONTEXTS = {
    "paragraph": "{}",
    "heading": "# {}",
    "item": "1. one\n2. {}\n   - {}",
    "quotation": "> {}",
    "code": "```python\n{}\n```",
    "inline": "**{}** and `{}`",
    "table": "| a | b |\n|---|--:|\n| {} | {} |",
    "narrow table": "|a|b|c|d|e|f|g|h|\n|-|-|-|-|-|-|-|-|\n|{}|x|y|z|{}|p|q|r|",
    "address": "[{}](https://example.com/{})",
}
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

each_text = pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())


def check(lines: list[Line], width: int) -> None:
    for line in lines:
        drawn = Strip(line.segments(PALETTE.text))
        assert drawn.cell_length == sum(cell_len(segment.text) for segment in drawn) <= width
        assert not CONTROL.search(drawn.text)


@each_text
def test_lines_fit_and_are_the_text(text: str) -> None:
    shown = sanitise(text)
    for width in range(2, 50):
        lines = wrap([(shown, PALETTE.text)], width)
        check(lines, width)
        joined = "".join(line.text + line.joint for line in lines).removesuffix("\n")
        assert " ".join(joined.split()) == " ".join(shown.replace("\xa0", " ").split())


@each_text
def test_no_grapheme_is_cut(text: str) -> None:
    shown = sanitise(text)
    whole = {shown[a:b] for a, b, _ in graphemes(shown)}
    for width in (2, 3, 7, 20):
        for line in wrap([(shown, PALETTE.text)], width):
            assert {line.text[a:b] for a, b, _ in graphemes(line.text)} <= whole | {" "}


@each_text
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_markdown_fits(text: str, context: str) -> None:
    flow = Flow(context.replace("{}", text), closed=True)
    for width in (8, 21, 36, 80):
        check(flow.lines(width, PALETTE), width)


@each_text
def test_what_is_said_and_noted_fits(text: str) -> None:
    for width in (8, 21, 80):
        check(said(f"{text}\n{text}", width, PALETTE), width)
        check(draw(Notice(text), width, PALETTE), width)
        check(draw(Answer(text, label=text), width, PALETTE), width)


def check_screen(run: Running) -> None:
    width = run.app.size.width
    for row in run.app.screen._compositor.render_strips():
        text = "".join(segment.text for segment in row)
        assert cell_len(text) <= width
        assert not CONTROL.search(text)


@pytest.mark.parametrize("size", [(40, 16), (100, 30)])
async def test_every_screen_fits(size: tuple[int, int], tmp_path: Path) -> None:
    everything = " ".join(HARD_TEXTS.values())
    encodable = everything.replace("\ud83d", "").replace("\udc00", "")
    async with running(size=size, keep=tmp_path / "sessions.db") as run:
        await run.send(encodable)
        run.backend.start()
        run.backend.step(encodable, encodable[::-1])
        run.backend.finish()
        await run.settle()
        run.app.prompt.insert(everything)
        await run.settle()
        check_screen(run)
        for keys in (("ctrl+t",), ("escape", "tab", "i"), ("escape", "ctrl+o")):
            await run.press(*keys)
            check_screen(run)
