"""Ctrl+T: the outline of a conversation's tree, and moving through it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.app import App
from textual.pilot import Pilot

from chat_tui.answer import Answer, Prompt
from chat_tui.branches import Row, outline
from chat_tui.screens.tree import TreeScreen
from chat_tui.theme import DARK
from chat_tui.tree import Pick, Tree, Turn
from engine.messages import FinishReason
from tests.chat_tui.pictures import SIZES, Snap, by_size, pictures
from tests.chat_tui.running import until
from tests.chat_tui.scored import MODEL, answer_of


def ask(tree: Tree, parent: Answer | None, user: str, *texts: str, picked: int | None = 0) -> Turn:
    """A turn with these answers."""
    turn = tree.add_turn(parent, user)
    reasons: list[FinishReason] = ["stop", "length", "cancelled", "context"]
    for place, text in enumerate(texts):
        answer = tree.add_answer(
            turn, prompt=Prompt(), model=MODEL, seed=500 + place, temperature=0.3 + place / 5
        )
        given = answer_of([" " + word for word in text.split()], number=answer.id)
        answer.tokens, answer.mask, answer.ends = given.tokens, given.mask, given.ends
        answer.text, answer.scores = text, given.scores
        answer.end(reasons[place % 4])
    turn.picked = turn.answers[picked].id if picked is not None else None
    return turn


def conversation() -> tuple[Tree, list[Pick]]:
    """Two turns, an edited message beside the second, and a branch that was left."""
    tree = Tree()
    first = ask(tree, None, "Why is the sky blue?", "Light scatters.", "It is not.", "Air does it.")
    left = ask(tree, first.answers[1], "What else?", "Grey.", "Black, at night.", picked=1)
    ask(tree, left.answers[1], "Always?", "No.")
    second = ask(tree, first.answers[0], "And at dusk?", "Red.", "Still blue.", picked=1)
    ask(tree, first.answers[0], "And at noon?", "White.", picked=None)
    return tree, tree.path(second.answers[1])


def shown(rows: Sequence[Row]) -> list[str]:
    return [
        "  " * row.depth
        + (row.turn.user if row.answer is None else f"- {row.answer.text}")
        + ("*" if row.on_path else "")
        + (f" +{row.branches}" if row.folded else "")
        for row in rows
    ]


def path_ids(path: Sequence[Pick]) -> set[int]:
    return {pick.answer.id for pick in path}


def test_the_path_runs_straight_down_and_what_turned_off_is_indented() -> None:
    tree, path = conversation()
    assert shown(outline(tree, path_ids(path))) == [
        "Why is the sky blue?*",
        "- Light scatters.*",
        "  And at noon?",
        "  - White.",
        "- It is not.",
        "  What else?",
        "  - Grey.",
        "  - Black, at night.",
        "  Always?",
        "  - No.",
        "- Air does it.",
        "And at dusk?*",
        "- Red.",
        "- Still blue.*",
    ]


def test_a_folded_turn_shows_the_answer_that_goes_on() -> None:
    tree, path = conversation()
    rows = outline(tree, path_ids(path), {(1, 0), (2, 0)})
    assert shown(rows) == [
        "Why is the sky blue?* +3",
        "- Light scatters.*",
        "  And at noon?",
        "  - White.",
        "And at dusk?*",
        "- Red.",
        "- Still blue.*",
    ]
    rows = outline(tree, path_ids(path), {(1, 2)})
    assert "- It is not. +1" in shown(rows)
    assert "  What else?" not in shown(rows)


def test_every_turn_and_answer_stands_in_it_once() -> None:
    tree, path = conversation()
    rows = outline(tree, path_ids(path))
    assert sorted(row.turn.id for row in rows if row.answer is None) == sorted(tree.turns)
    answers = [row.answer.id for row in rows if row.answer is not None]
    assert sorted(answers) == sorted(tree.answers)


def test_a_conversation_as_long_as_they_get_does_not_run_out_of_room_or_stack() -> None:
    tree, head = Tree(), None
    for number in range(3000):
        head = ask(tree, head, f"{number}?", "yes", "no").answers[1]
    rows = outline(tree, path_ids(tree.path(head)))
    assert len(rows) == 9000
    assert {row.depth for row in rows} == {0}
    assert {row.depth for row in outline(tree, ())} == {0}


class Host(App[None]):
    """The tree screen and nothing else; remembers what it asked for."""

    def __init__(self, tree: Tree, path: Sequence[Pick]) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name
        self.view = TreeScreen(tree, path)
        self.jumps: list[TreeScreen.Jump] = []
        self.inspected: list[int] = []

    def on_mount(self) -> None:
        self.push_screen(self.view)

    def on_tree_screen_jump(self, message: TreeScreen.Jump) -> None:
        self.jumps.append(message)

    def on_tree_screen_inspect(self, message: TreeScreen.Inspect) -> None:
        self.inspected.append(message.answer.id)

    @property
    def row(self) -> str:
        row = self.view.view.row
        assert row is not None
        return row.turn.user if row.answer is None else row.answer.text

    def lines(self) -> list[str]:
        view = self.view.view
        return [view.render_line(y).text.rstrip() for y in range(len(view.rows))]

    def preview(self) -> str:
        return "\n".join(line.text for line in self.view.preview.lines)


async def test_it_opens_where_the_conversation_stands() -> None:
    app = Host(*conversation())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert app.row == "Still blue."
        assert app.preview().splitlines()[-1] == "Still blue."
        lines = app.lines()
        assert lines[0] == "▌ Why is the sky blue?"
        assert lines[1].split()[:4] == ["▸", "1", "✓", "Light"]
        assert "2 tok  ppl" in lines[1]
        assert lines[5] == "│ ▌ What else?"


async def test_moving_folding_and_going_there() -> None:
    app = Host(*conversation())
    async with app.run_test(size=(120, 40)) as pilot:
        for keys, row in (
            (("k",), "Red."),
            (("up",), "And at dusk?"),
            (("h",), "And at dusk?"),  # folds
            (("j",), "Still blue."),
            (("h",), "And at dusk?"),
            (("l", "l"), "Red."),
            (("h", "h", "h"), "Light scatters."),  # folds, then out to what it followed
            (("h",), "Light scatters."),  # folds the edited message
            (("h",), "Why is the sky blue?"),
            (("G",), "Still blue."),
            (("g",), "Why is the sky blue?"),
            (("down", "down"), "It is not."),
            (("right",), "What else?"),
        ):
            await pilot.press(*keys)
            await pilot.pause()
            assert app.row == row, keys
        await pilot.press("enter", "down", "i", "enter")
        await pilot.pause()
    assert [(jump.turn.user, jump.answer and jump.answer.text) for jump in app.jumps] == [
        ("What else?", None),
        ("What else?", "Grey."),
    ]
    assert app.inspected == [app.jumps[1].answer and app.jumps[1].answer.id]


async def test_all_is_folded_and_unfolded() -> None:
    app = Host(*conversation())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("minus")
        await pilot.pause()
        assert shown(app.view.view.rows) == [
            "Why is the sky blue?* +3",
            "- Light scatters.* +1",
            "And at dusk?* +2",
            "- Still blue.*",
        ]
        assert app.row == "Still blue."
        await pilot.press("plus")
        await pilot.pause()
        assert len(app.view.view.rows) == 14


async def test_answers_that_grow_behind_it_are_followed() -> None:
    tree, path = conversation()
    app = Host(tree, path)
    async with app.run_test(size=(120, 40)) as pilot:
        turn = ask(tree, path[-1].answer, "And tomorrow?", "Who", picked=None)
        turn.answers[0].reason = None
        await until(pilot, lambda: "● Who" in app.lines()[-1])
        turn.answers[0].append(5, 1, " knows")
        await until(pilot, lambda: "● Who knows" in app.lines()[-1])


async def test_an_empty_tree() -> None:
    app = Host(Tree(), [])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "left", "right", "enter", "i", "minus", "escape")
        assert len(app.screen_stack) == 1
    assert app.jumps == []


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_how_it_looks(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press("up", "up", "h", "g", "down")
        await pilot.pause()

    assert snap_compare(Host(*conversation()), terminal_size=size, run_before=before)
