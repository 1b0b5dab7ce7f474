"""A text at one width: its lines are counted at once and made when looked at."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from chat_tui.rendering.boxes import BLANK, Box, Stack, Words
from chat_tui.rendering.flow import Flow
from chat_tui.rendering.laid_out import LaidOut
from chat_tui.rendering.wrap import Line
from tests.chat_tui.drawn import PALETTE
from tests.chat_tui.hard_texts import HARD_TEXTS
from tests.chat_tui.test_hard_texts import CONTEXTS


def words(text: str) -> Words:
    return Words([(text, PALETTE.text)])


def laid_out(width: int, *boxes: Box) -> LaidOut:
    shown = LaidOut(width)
    shown.replace(0, boxes)
    return shown


@dataclass
class Seen:
    """A box that tells in which widths its lines were made."""

    box: Box
    widths: list[int] = field(default_factory=list)

    def height(self, width: int) -> int:
        return self.box.height(width)

    def lines(self, width: int) -> list[Line]:
        self.widths.append(width)
        return self.box.lines(width)


def test_there_are_as_many_lines_as_it_says() -> None:
    rng = random.Random(1)
    texts = [
        context.replace("{}", text) for context in CONTEXTS.values() for text in HARD_TEXTS.values()
    ]
    texts += [">", "-", "- - x", "> > ", "1.\n2.", "```\n```", "#", "|a|\n|-|", "  \n"]
    for text in [*texts, *("\n\n".join(rng.sample(texts, 4)) for _ in range(12))]:
        flow = Flow(text, closed=True)
        flow.update()
        boxes = [piece.box(PALETTE) for piece in flow.pieces]
        for width in (2, 9, 14, 30, 80):
            shown = laid_out(width, *boxes)
            assert len(shown) == len(list(shown)), (text, width)
            assert list(shown) == flow.lines(width, PALETTE)


def test_lines_are_made_when_they_are_looked_at() -> None:
    boxes = [Seen(words("one two three")) for _ in range(9)]
    shown = laid_out(8, *boxes)
    assert len(shown) == 18
    assert [shown[-1].text, shown[0].text, shown[1].text] == ["three", "one two", "three"]
    assert [box.widths for box in boxes] == [[8], *[[]] * 7, [8]]
    assert [line.text for line in shown[2:4]] == ["one two", "three"]
    assert sum(len(box.widths) for box in boxes) == 3


def test_what_is_replaced_tells_the_first_line_that_looks_different() -> None:
    shown = laid_out(8, words("above"), words("one two three"))
    assert [line.text for line in shown] == ["above", "one two", "three"]
    assert shown.replace(1, [words("one two three four")]) == 2
    assert [line.text for line in shown] == ["above", "one two", "three", "four"]
    assert shown.replace(1, [words("one two three"), words("more")]) == 2
    assert [line.text for line in shown] == ["above", "one two", "three", "more"]
    assert shown.replace(1, [words("one")]) == 1
    assert [line.text for line in shown] == ["above", "one"]


def test_what_was_not_looked_at_is_not_compared() -> None:
    before, after = Seen(words("one two three")), Seen(words("one two three"))
    shown = laid_out(8, words("above"), before)
    assert shown.replace(1, [after]) == 1
    assert before.widths == after.widths == []


def test_a_place_is_found_again_at_another_width() -> None:
    boxes = [words("one two three four " * 5), Stack((BLANK, words("five " * 40))), words("six")]
    narrow, wide = laid_out(10, *boxes), laid_out(40, *boxes)
    for y in range(len(wide)):
        assert wide.find(wide.place(y)) == y
        assert narrow.place(narrow.find(wide.place(y))).box == wide.place(y).box
    assert narrow.find(wide.place(len(wide))) == len(narrow)
