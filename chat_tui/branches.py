"""A conversation's tree as the rows of an outline.

    rows = outline(tree, trunk, folded)

The *trunk* (the path that is looked at, and where it would go on) runs straight down, however long
the conversation is; only what branches off it is indented, under the answer that it follows. So the
depth of an indent is the number of times one turned off, not the number of turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from chat_tui.answer import Answer
from chat_tui.tree import Tree, Turn


@dataclass(frozen=True)
class Row:
    """One line of the outline: a turn, or one of its answers.

    Attributes:
        depth: how often one turned off to get here.
        on_path: it is part of the path that is looked at.
        branches: how many turns are shown under it, or would be if it were not folded; of a turn,
            how many answers.
        folded: those are not shown.
    """

    turn: Turn
    answer: Answer | None
    depth: int
    on_path: bool
    branches: int = 0
    folded: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """What it is, whatever else changes: turn and answer; 0 stands for none."""
        return self.turn.id, self.answer.id if self.answer is not None else 0


Keys = Collection[tuple[int, int]]


def outline(tree: Tree, path: Collection[int], folded: Keys = ()) -> list[Row]:
    """All rows but those under a folded one.

    Args:
        path: the numbers of the answers that lead to where the conversation is looked at.
        folded: keys of rows. A folded turn still shows the answer that goes on.
    """
    followers: dict[int | None, list[Turn]] = {}
    for turn in tree.turns.values():
        followers.setdefault(turn.parent, []).append(turn)
    return list(_rows(followers, path, folded))


def _rows(
    followers: dict[int | None, list[Turn]], path: Collection[int], folded: Keys
) -> Iterator[Row]:
    # What is still to be drawn, the next one last: turns and finished rows, each with its depth.
    roots = _path_last(followers.get(None, []), path)
    waiting: list[tuple[int, Turn | Row]] = [(0, turn) for turn in reversed(roots)]
    while waiting:
        depth, item = waiting.pop()
        if isinstance(item, Row):
            yield item
            continue
        through = _goes_on(item, followers, path)
        folds = (item.id, 0) in folded
        on_path = any(answer.id in path for answer in item.answers)
        yield Row(item, None, depth, on_path, len(item.answers), folds)
        here: list[tuple[int, Turn | Row]] = []
        below: list[tuple[int, Turn | Row]] = []
        for answer in item.answers:
            turns = _path_last(followers.get(answer.id, []), path)
            if answer is through and turns:
                below = [(depth, turns.pop())]
            elif folds and answer is not through:
                continue
            hidden = (item.id, answer.id) in folded
            row = Row(item, answer, depth, answer.id in path, len(turns), hidden and bool(turns))
            here.append((depth, row))
            if not hidden:
                here += [(depth + 1, turn) for turn in turns]
        waiting += [*below, *reversed(here)]


def _goes_on(
    turn: Turn, followers: dict[int | None, list[Turn]], path: Collection[int]
) -> Answer | None:
    """The answer of a turn whose followers run straight down."""
    return max(
        turn.answers,
        key=lambda answer: (
            answer.id in path,
            bool(followers.get(answer.id)),
            answer.id == turn.picked,
        ),
        default=None,
    )


def _path_last(turns: Sequence[Turn], path: Collection[int]) -> list[Turn]:
    """Turns asked at one place in the order of drawing: the one on the path last."""
    return sorted(turns, key=lambda turn: any(answer.id in path for answer in turn.answers))
