"""The token view: a text as the model sees it, and how likely each of its tokens was.

    app.push_screen(TokenScreen(subjects, shown=1))

It shows one of several texts (the answers of a turn, the prompt), goes on with one that still
grows, and asks for a fork by message: `Fork`. It knows nothing of how answers are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from chat_tui.keys import TOKEN_SCREEN, Hint, Keys
from chat_tui.rendering import Palette
from chat_tui.rendering.token_lines import name_of
from chat_tui.scores import LEVELS, Scored, Surprise
from chat_tui.widgets.heading import Heading, key_line
from chat_tui.widgets.token_panel import About, TokenPanel
from chat_tui.widgets.tokens import TokenView

WIDE = 110  # cells from which the panel stands beside the text
_READS_PER_SECOND = 8
_NO_SCORES = "The model was not asked what it thinks of this."
_SCORING = "The model is reading it …"


@dataclass(frozen=True)
class Subject:
    """A text to look at.

    Attributes:
        title: what it is, in a few words.
        read: its tokens from a place on; there may be more of them each time.
        sampling: the distribution that it was sampled from, in words; "" where it was not.
        answer: its number in the tree, by which it can be forked; None where it cannot be.
        missing: why there are no scores, where there are none.
        apart: what those of its tokens are that count for nothing.
        source: what it was made from, for whoever is asked for its scores; None where nobody can
            be.
    """

    title: str
    read: Callable[[int], Sequence[Scored]]
    sampling: str = ""
    answer: int | None = None
    missing: str = _NO_SCORES
    apart: str = "forced"
    source: object = None


class TokenScreen(Screen[None]):
    """Text, figures, keys; an input line where own text is typed."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as declared

    DEFAULT_CSS = """
    TokenScreen {
        background: $background;
        & #body { height: 1fr; layout: horizontal; }
        & TokenView { width: 1fr; max-width: 104; height: 1fr; margin: 1 1 0 0; }
        & TokenPanel { width: 50; height: 1fr; margin: 1 0 0 0; }
        & #keys { height: 1; }
        & Input {
            display: none; height: 1; border: none; padding: 0 1; background: $surface;
            &:focus { border: none; background-tint: $surface 0%; }
        }
        &.-typing Input { display: block; }
        &.-typing #keys { display: none; }
        &.-narrow {
            & #body { layout: vertical; }
            & TokenView { margin: 0; max-width: 100%; }
            & TokenPanel {
                width: 100%; height: 12; margin: 0; border: none; border-top: solid $foreground 20%;
                &:focus { border-top: solid $primary; }
            }
        }
    }
    """

    @dataclass
    class Fork(Message):
        """New answers are wanted that begin as `answer` does before its token `index`, and go on
        with `instead`: a token's id, or text (empty: whatever is sampled)."""

        answer: int
        index: int
        instead: int | str

    @dataclass
    class Wanted(Message):
        """The scores of a text are wanted; `screen.scored(place)` tells that they are there."""

        screen: TokenScreen
        place: int
        subject: Subject

    BINDINGS: ClassVar[list[BindingType]] = [*TOKEN_SCREEN]

    def __init__(
        self,
        answers: Sequence[Subject],
        prompt: Subject | None = None,
        *,
        shown: int = 0,
        cursor: int = 0,
        parting: Callable[[], Sequence[int] | None] = lambda: None,
    ) -> None:
        """`shown` is the answer to begin with, `cursor` the place in it; `parting` says of each
        answer where it is no longer the same as the others."""
        super().__init__()
        self.subjects = [*answers, *([prompt] if prompt is not None else [])]
        self.shown = shown
        self._answers = len(answers)
        self._begin_at = cursor
        self._parting = parting
        self._before = shown  # the answer that was shown before the prompt
        self._asked: set[int] = set()
        self._problems: dict[int, str] = {}
        self._surprise = Surprise()

    @property
    def subject(self) -> Subject:
        return self.subjects[self.shown]

    def compose(self) -> ComposeResult:
        yield Heading(id="heading")
        with Container(id="body"):
            yield TokenView(id="tokens")
            yield TokenPanel(id="token")
        yield Input(id="text", placeholder="text to go on with; nothing: sample anew from here")
        yield Heading(id="keys")

    def on_mount(self) -> None:
        self.heading = self.query_one("#heading", Heading)
        self.keys = self.query_one("#keys", Heading)
        self.view = self.query_one(TokenView)
        self.panel = self.query_one(TokenPanel)
        self.input = self.query_one(Input)
        self.view.focus()
        self._show(self.shown, self._begin_at)
        self.set_interval(1 / _READS_PER_SECOND, self._read)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._tell())

    def scored(self, place: int, problem: str = "") -> None:
        """The scores that were asked for can be read now; or there are none, and why."""
        self._asked.discard(place)
        if problem:
            self._problems[place] = problem
        if place == self.shown:
            self._show(place, None)

    # What is shown

    def _show(self, place: int, cursor: int | None) -> None:
        self.shown = place
        if place < self._answers:
            self._before = place
        tokens = self.subject.read(0)
        self._surprise = Surprise.of(tokens)
        self.view.show(tokens, cursor)
        if self.subject.answer is None and place not in self._problems:
            self.action_score()
        self._tell()

    def _read(self) -> None:
        """What has come since the last time."""
        more = self.subject.read(len(self.view.tokens))
        if more:
            for token in more:
                self._surprise.add(token.score, forced=token.forced)
            self.view.extend(more)
            self._tell()

    def on_cursor_view_moved(self) -> None:
        self._tell()

    def on_resize(self) -> None:
        self.call_after_refresh(self._tell)

    def on_descendant_focus(self) -> None:
        self._tell_keys()

    def _tell(self) -> None:
        """Everything that is a function of the text and the cursor."""
        tokens, place = self.view.tokens, self.view.cursor
        self._tell_heading()
        self._tell_keys()
        if not tokens:
            self.panel.about = None
            return
        self.panel.about = About(
            tokens[place],
            place,
            len(tokens),
            self.subject.sampling,
            char=_character(tokens, place),
            missing=self._missing(),
            apart=self.subject.apart,
        )

    def _missing(self) -> str:
        if self.shown in self._asked:
            return _SCORING
        return self._problems.get(self.shown, self.subject.missing)

    def _tell_heading(self) -> None:
        palette = Palette.of(self.app)
        count = len(self.view.tokens)
        forced = sum(token.forced for token in self.view.tokens)
        wide = self.size.width >= WIDE
        figures = [f"{count:,} tokens"]
        if forced:
            figures.append(f"{forced:,} {self.subject.apart}")
        perplexity, entropy = self._surprise.perplexity, self._surprise.entropy
        if perplexity is not None:
            figures.append(f"{'perplexity' if wide else 'ppl'} {perplexity:.2f}")
        if entropy is not None:
            figures.append(f"mean entropy {entropy:.2f} nats" if wide else f"H {entropy:.2f}")
        left = Text.assemble(
            (self.subject.title, palette.strong), ("  " + " · ".join(figures), palette.muted)
        )
        room = self.size.width - 4 - left.cell_len
        legend = next((form for form in _legends(palette) if form.cell_len <= room), Text())
        gap = self.size.width - 2 - left.cell_len - legend.cell_len
        self.heading.content = left + Text(" " * max(gap, 0)) + legend

    def _tell_keys(self) -> None:
        palette, keys = Palette.of(self.app), Keys.of(self.app)
        if self.panel.has_focus:
            told = [
                keys.hint("choose", "alternatives.up", "alternatives.down"),
                keys.hint("fork", "alternatives.fork"),
                keys.hint("back", "alternatives.leave"),
            ]
        else:
            told = [
                keys.hint("move", "tokens.left", "tokens.right", "tokens.up", "tokens.down"),
                keys.hint("surprising", "tokens.next-surprise", "tokens.previous-surprise"),
                keys.hint("alternatives", "tokens.alternatives"),
            ]
            if self.subject.answer is not None:
                told.append(keys.hint("own text", "tokens.type"))
            if len(self.subjects) > self._answers:
                other = "answer" if self.shown >= self._answers else "message"
                told.append(keys.hint(other, "tokens.prompt"))
            if self._answers > 1:
                numbers = keys.span("tokens.answer", min(self._answers, 9))
                told.append(Hint(numbers, "other answers"))
                told.append(keys.hint("parting", "tokens.part"))
            if self._lacks_scores:
                told.insert(2, keys.hint("score it", "tokens.score"))
            told.append(keys.hint("closes", "tokens.close"))
        self.keys.content = key_line(told, self.size.width - 2, palette)

    # What the user does

    def action_close(self) -> None:
        if self.has_class("-typing"):
            self.remove_class("-typing")
            self.view.focus()
        else:
            self.dismiss()

    def action_show(self, place: int) -> None:
        if place < self._answers and place != self.shown:
            self._show(place, None)

    def action_other(self, step: int) -> None:
        self.action_show((self._before + step) % self._answers)

    def action_prompt(self) -> None:
        if len(self.subjects) == self._answers:
            return
        there = self._before if self.shown >= self._answers else self._answers
        self._show(there, 0)

    @property
    def _lacks_scores(self) -> bool:
        """Whether the model can be asked for more. The very first token of a prompt follows nothing
        and never has a score."""
        if self.subject.source is None or self.shown in self._asked:
            return False
        if self.subject.answer is None:
            return not self._surprise.surprisals
        return any(token.score is None for token in self.view.tokens)

    def action_score(self) -> None:
        """Ask for scores that are missing."""
        if self._lacks_scores:
            self._asked.add(self.shown)
            self._problems.pop(self.shown, None)
            self.post_message(self.Wanted(self, self.shown, self.subject))
            self._tell()

    def action_part(self) -> None:
        """To the first token that not all answers have."""
        places = self._parting()
        if places is None or self.shown >= self._answers:
            self.app.bell()
        else:
            self.view.cursor = places[self.shown]

    def action_type(self) -> None:
        if self.subject.answer is None or not self.view.tokens:
            self.app.bell()
            return
        self.add_class("-typing")
        self.input.clear()
        self.input.focus()

    def on_token_view_chosen(self) -> None:
        if self.panel.alternatives and self.subject.answer is not None:
            self.panel.focus()

    def on_token_panel_left(self) -> None:
        self.view.focus()

    def on_token_panel_forked(self, event: TokenPanel.Forked) -> None:
        self._fork(event.instead)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._fork(event.value)

    def _fork(self, instead: int | str) -> None:
        if self.subject.answer is not None:
            self.post_message(self.Fork(self.subject.answer, self.view.cursor, instead))


def _legends(palette: Palette) -> Iterator[Text]:
    """What the grounds mean, in a longer and a shorter form."""
    for unit, lead in (("%", "probability ≥"), ("%", "p ≥"), ("", "p %")):
        legend = Text(f"{lead} ", palette.faint)
        for bound, heat in zip((*LEVELS, None), palette.heat, strict=True):
            text = f"{bound or LEVELS[-1]:.0%}".rstrip("%") + unit
            legend.append(f" {text if bound else '<' + text} ", heat[0])
        yield legend


def _character(tokens: Sequence[Scored], place: int) -> str:
    """The character that an incomplete one belongs to, put together from its neighbours."""
    piece = tokens[place].piece
    if piece is None or _decodes(piece):
        return ""
    windows = [
        tokens[start:end]
        for start in range(max(place - 3, 0), place + 1)
        for end in range(place + 1, min(place + 4, len(tokens)) + 1)
    ]
    for window in sorted(windows, key=len):
        joined = b"".join(token.piece or b"" for token in window)
        if _decodes(joined):
            return name_of(0, joined)
    return ""


def _decodes(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
