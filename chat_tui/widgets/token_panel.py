"""What is known of one token, and what could have stood in its place.

    panel.about = About(token, place=16, count=243, sampling="T 0.7, top-k 50")

Figures and the ten likeliest alternatives, one under the other where the panel is narrow, side by
side where it is wide. With the keyboard's focus it chooses among them: `Forked`, `Left`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from chat_tui.keys import ALTERNATIVES
from chat_tui.rendering import Palette
from chat_tui.rendering.token_lines import name_of
from chat_tui.rendering.wrap import Run, wrap
from chat_tui.scores import Scored, is_known
from engine.messages import NO_ID, Alternative, TokenScore

FACTS = 40  # cells of the figures where the alternatives stand beside them
SIDE_BY_SIDE = 74  # cells from which they do
_EIGHTHS = " ▏▎▍▌▋▊▉"

Row = list[Run]


@dataclass(frozen=True)
class About:
    """A token, and what has to be known to tell about it.

    Attributes:
        sampling: the distribution that the answer was sampled from, in words; "" where it was not.
        char: the character that a token with half a character belongs to.
        missing: why there are no scores.
        apart: what a token is that counts for nothing.
    """

    token: Scored
    place: int
    count: int
    sampling: str = ""
    char: str = ""
    missing: str = ""
    apart: str = "forced"


def percent(logprob: float) -> str:
    """A probability to three digits, in percent as long as that can be read."""
    share = math.exp(logprob) * 100
    if share > 99:
        return "100 %" if not logprob else f"{share:.2f} %" if share < 99.995 else ">99.99 %"
    if share >= 0.01:
        return f"{share:.{1 if share >= 10 else 2}f} %"
    return f"{share / 100:.0e}" if share else "0"


def figures(about: About, palette: Palette) -> list[Row]:
    """The figures of a token, at most `FACTS` cells wide."""
    token, score = about.token, about.token.score
    muted, text = palette.muted, palette.text
    piece = b"" if token.piece is None else token.piece
    kind = about.apart if token.forced else ""
    rows: list[Row] = [
        [
            (f"token {about.place + 1:,}", palette.strong),
            (f" of {about.count:,}", muted),
            (f" · {kind}" if kind else "", palette.warning),
        ],
        [(_cut(name_of(token.token, token.piece), FACTS), palette.code)],
        _fact("id", "not told" if token.token == NO_ID else str(token.token), palette),
        _fact("bytes", _hex(piece) if token.piece is not None else "not known", palette),
    ]
    if about.char:
        rows.append(_fact("part of", about.char, palette))
    rows.append([])
    if score is None:
        return [*rows, *(line.runs for line in wrap([(about.missing, muted)], FACTS - 2))]
    named: list[tuple[str, float | None]] = [("T 1, before top-k", score.logprob)]
    if about.sampling:
        named.append((f"{about.sampling}", score.sampled_logprob))
    for label, logprob in named:
        if logprob is None or not is_known(logprob):
            value: Row = [("not sampled" if token.forced else "not told", muted)]
        else:
            value = [
                (f"{percent(logprob):>8}", text),
                (f"  ln {round(logprob, 3) + 0.0:7.3f}", muted),
            ]
        rows.append([(f"{label:<18}"[:18] + " ", muted), *value])
    entropy = "not known" if math.isnan(score.entropy) else f"{score.entropy:.3f} nats"
    rows.append(_fact("entropy", entropy, palette))
    likelier = f"{score.rank:,} likelier" if score.rank else "the likeliest"
    rows.append([*_fact("rank", f"{score.rank + 1:,}", palette), (f"  {likelier}", muted)])
    return rows


def _fact(label: str, value: str, palette: Palette) -> Row:
    return [(f"{label:<9}", palette.muted), (value, palette.text)]


def _cut(name: str, cells: int) -> str:
    return name if cell_len(name) <= cells else set_cell_size(name, cells - 1) + "…"


def _hex(piece: bytes) -> str:
    shown = piece[:8].hex(" ").upper()
    return shown + (f" … ({len(piece)})" if len(piece) > 8 else "")


def alternatives(
    token: Scored, width: int, palette: Palette, choice: int | None = None
) -> list[Row]:
    """A line with a bar for each alternative; the one that stands there is marked, `choice` too."""
    if token.score is None:
        return []
    score = token.score
    shown: list[tuple[int, Alternative]] = list(enumerate(score.alternatives))
    if not any(_same(other, score) for other in score.alternatives):
        shown.append((score.rank, Alternative(score.token, score.piece, score.logprob)))
    names = [name_of(other.token, other.piece) for _, other in shown]
    wide = min(max(map(cell_len, names), default=0), max(width // 2 - 8, 6))
    room = max(width - wide - 17, 4)
    rows: list[Row] = []
    for place, ((rank, other), name) in enumerate(zip(shown, names, strict=True)):
        here = _same(other, score)
        share = math.exp(other.logprob)
        eighths = round(share * room * 8)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        ink = palette.strong if here else palette.text
        row: Row = [
            ("▸" if here else " ", palette.running),
            (f"{rank + 1:>3} " if rank < 999 else " … ", palette.faint),
            (set_cell_size(_cut(name, wide), wide), ink),
            (f" {percent(other.logprob):>7} ", ink if here else palette.muted),
            (bar or "▏", palette.running if here else palette.faint),
        ]
        if place == choice:
            row[2] = (row[2][0], palette.marked)
        rows.append(row)
    return rows


def _same(other: Alternative, score: TokenScore) -> bool:
    """Whether an alternative is the token that stands there; some servers tell no ids."""
    return (other.token, other.piece) == (score.token, score.piece)


class TokenPanel(Widget, can_focus=True):
    """The token under the cursor; with the focus, a choice among its alternatives."""

    DEFAULT_CSS = """
    TokenPanel {
        background: $background;
        border-left: solid $foreground 20%;
        padding: 0 1;
        &:focus { border-left: solid $primary; }
    }
    """

    @dataclass
    class Forked(Message):
        """Go on from this token instead: its id, or its text where that is not told."""

        instead: int | str

    @dataclass
    class Left(Message):
        """Back to the text."""

    BINDINGS: ClassVar[list[BindingType]] = [*ALTERNATIVES]

    about: reactive[About | None] = reactive(None)
    choice: reactive[int | None] = reactive(None)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: list[Row] = []

    @property
    def alternatives(self) -> Sequence[Alternative]:
        score = self.about.token.score if self.about is not None else None
        return score.alternatives if score is not None else ()

    def on_focus(self) -> None:
        """The choice begins at the likeliest that does not stand there already."""
        score = self.about.token.score if self.about is not None else None
        others = [
            place
            for place, other in enumerate(self.alternatives)
            if score is None or not _same(other, score)
        ]
        self.choice = others[0] if others else None

    def on_blur(self) -> None:
        self.choice = None

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        self._draw()

    def watch_about(self) -> None:
        self._draw()

    def watch_choice(self) -> None:
        self._draw()

    def action_choose(self, step: int) -> None:
        if self.choice is not None:
            self.choice = max(0, min(self.choice + step, len(self.alternatives) - 1))

    def action_fork(self) -> None:
        if self.choice is not None:
            other = self.alternatives[self.choice]
            text = other.piece.decode(errors="replace")
            self.post_message(self.Forked(text if other.token == NO_ID else other.token))

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def on_click(self, event: Click) -> None:
        """On an alternative: choose it; on the chosen one: fork."""
        offset = event.get_content_offset(self)
        if offset is None or self.about is None:
            return
        if self._beside:
            place = offset.y if offset.x >= FACTS else -1
        else:
            place = offset.y - (len(self._drawn) - len(self._others()))
        if 0 <= place < len(self.alternatives):
            if place == self.choice:
                self.action_fork()
            self.choice = place

    # Drawing

    @property
    def _beside(self) -> bool:
        return self.content_size.width >= SIDE_BY_SIDE

    def _others(self) -> list[Row]:
        assert self.about is not None
        width = self.content_size.width - (FACTS + 2 if self._beside else 0)
        return alternatives(self.about.token, width, Palette.of(self.app), self.choice)

    def _draw(self) -> None:
        self._drawn = self._rows() if self.size else []
        self.refresh()

    def _rows(self) -> list[Row]:
        if self.about is None:
            return []
        palette = Palette.of(self.app)
        facts = figures(self.about, palette)
        others = self._others()
        if not self._beside:
            title: list[Row] = [[], [("likeliest at T 1", palette.muted)]] if others else []
            return [*facts, *title, *others]
        height = max(len(facts), len(others))
        rows: list[Row] = []
        for fact, other in zip(
            facts + [[]] * (height - len(facts)),
            others + [[]] * (height - len(others)),
            strict=True,
        ):
            gap = FACTS + 2 - sum(cell_len(text) for text, _ in fact)
            rows.append([*fact, (" " * max(gap, 1), Style.null()), *other])
        return rows

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        rows = self._drawn
        strip = Strip(
            [Segment(text, base + style) for text, style in (rows[y] if y < len(rows) else [])]
        )
        return strip.adjust_cell_length(self.content_size.width, base)
