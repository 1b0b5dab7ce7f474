"""Ctrl+T: the conversation as a tree, a preview of what the cursor is on, and the way there.

    app.push_screen(TreeScreen(chat.conversation.tree, path))

It asks by message: `Jump` to be somewhere else in the tree, `Inspect` to see an answer's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen

from chat_tui.answer import Answer
from chat_tui.branches import outline
from chat_tui.keys import TREE_SCREEN, Keys
from chat_tui.rendering import Palette
from chat_tui.tree import Pick, Tree, Turn
from chat_tui.widgets.heading import Heading, key_line
from chat_tui.widgets.lines_view import LinesView
from chat_tui.widgets.outline import OutlineView
from chat_tui.widgets.transcript import Answer as Answered
from chat_tui.widgets.transcript import User, draw

WIDE = 110  # cells from which the preview stands beside the tree
_READS_PER_SECOND = 3
_KEYS = (
    ("move", "tree.up", "tree.down"),
    ("fold", "tree.outwards", "tree.inwards"),
    ("go there", "tree.go"),
    ("tokens", "tree.tokens"),
    ("fold all", "tree.fold-all"),
    ("unfold all", "tree.unfold-all"),
    ("closes", "tree.close"),
)


class Preview(LinesView):
    """The whole text of what the cursor is on."""

    DEFAULT_CSS = """
    Preview { padding: 0 0 0 1; border-left: solid $foreground 20%; }
    """


class TreeScreen(Screen[None]):
    """Outline and preview."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as declared

    DEFAULT_CSS = """
    TreeScreen {
        background: $background;
        & #body { height: 1fr; layout: horizontal; }
        & OutlineView { width: 3fr; height: 1fr; margin: 1 0 0 0; }
        & Preview { width: 2fr; height: 1fr; margin: 1 0 0 0; }
        &.-narrow {
            & #body { layout: vertical; }
            & OutlineView { width: 100%; height: 3fr; margin: 0; }
            & Preview {
                width: 100%; height: 2fr; margin: 0;
                border: none; border-top: solid $foreground 20%;
            }
        }
    }
    """

    @dataclass
    class Jump(Message):
        """Go on behind `answer`; None: see the answers of `turn` again."""

        turn: Turn
        answer: Answer | None

    @dataclass
    class Inspect(Message):
        """The tokens of this answer are wanted."""

        turn: Turn
        answer: Answer

    BINDINGS: ClassVar[list[BindingType]] = [*TREE_SCREEN]

    def __init__(
        self, tree: Tree, path: Sequence[Pick], here: tuple[int, int] | None = None
    ) -> None:
        """`path` is what is looked at; `here` the turn and answer (0: none) to begin at."""
        super().__init__()
        self.conversation = tree
        self.picks = {pick.answer.id for pick in path}
        self.here = here or ((path[-1].turn.id, path[-1].answer.id) if path else None)
        self.folded: set[tuple[int, int]] = set()
        self._counts = (0, 0)
        self._previewed: tuple[tuple[int, int], int] | None = None

    def compose(self) -> ComposeResult:
        yield Heading(id="heading")
        with Container(id="body"):
            yield OutlineView(id="outline")
            yield Preview(id="preview")
        yield Heading(id="keys")

    def on_mount(self) -> None:
        self.view = self.query_one(OutlineView)
        self.preview = self.query_one(Preview)
        self.heading = self.query_one("#heading", Heading)
        self.keys = self.query_one("#keys", Heading)
        self.view.focus()
        self._show(self.here)
        self.set_interval(1 / _READS_PER_SECOND, self._read)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._tell())

    def _show(self, key: tuple[int, int] | None = None) -> None:
        self._counts = len(self.conversation.turns), len(self.conversation.answers)
        self.view.show(outline(self.conversation, self.picks, self.folded), key)
        self._tell()

    def _read(self) -> None:
        """Answers may be growing behind this screen."""
        if self._counts != (len(self.conversation.turns), len(self.conversation.answers)):
            self._show()
        self.view.grow()
        self._preview()

    def on_screen_resume(self) -> None:
        self.view.redraw()  # an answer may have got scores meanwhile

    def on_resize(self) -> None:
        self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        palette = Palette.of(self.app)
        turns, answers = self._counts
        self.heading.content = Text.assemble(
            ("Conversation", palette.strong),
            (
                f"  {turns:,} turn{'s' * (turns != 1)} · {answers:,} answer{'s' * (answers != 1)}",
                palette.muted,
            ),
        )
        keys = Keys.of(self.app)
        told = [keys.hint(*hint) for hint in _KEYS]
        self.keys.content = key_line(told, self.size.width - 2, palette)
        self._previewed = None
        self._preview()

    def _preview(self) -> None:
        row, width = self.view.row, self.preview.columns
        if row is None or width <= 0:
            return
        answer = row.answer
        state = row.key, len(answer.tokens) if answer is not None else 0
        if state == self._previewed:
            return
        moved = self._previewed is None or self._previewed[0] != row.key
        self._previewed = state
        palette = Palette.of(self.app)
        if answer is None:
            lines = draw(User(row.turn.user), width, palette)
        else:
            caption = f"{Pick(row.turn, answer).sampling} · {answer.model.name}"
            entry = Answered(answer.text, tuple(answer.calls), tuple(answer.forced), caption)
            lines = draw(entry, width, palette)
        self.preview.following = False
        self.preview.show_lines(lines)
        if moved:
            self.preview.scroll_to_line(0)

    # What the user does

    def on_cursor_view_moved(self) -> None:
        self._preview()

    def on_outline_view_folded(self, event: OutlineView.Folded) -> None:
        (self.folded.add if event.folded else self.folded.discard)(event.row.key)
        self._show()

    def on_outline_view_chosen(self, event: OutlineView.Chosen) -> None:
        self.post_message(self.Jump(event.row.turn, event.row.answer))

    def action_inspect(self) -> None:
        row = self.view.row
        if row is not None and row.answer is not None:
            self.post_message(self.Inspect(row.turn, row.answer))

    def action_fold_all(self, fold: bool) -> None:
        every = outline(self.conversation, self.picks) if fold else []
        self.folded = {row.key for row in every if row.branches}
        self._show()
