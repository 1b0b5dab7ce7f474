"""One answer, drawn on the line API while it grows.

    pane.feed(" token", forced=False)   # once per token; only marks the pane dirty
    pane.set_call(0, call)              # a tool call started or moved on
    pane.finish("stop")
    pane.paint()                        # draws what came since the last time

Nothing is drawn by `feed`: the grid calls `paint` some six times a second, so what the screen costs
depends on the panes that are visible, not on the tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from rich.style import Style
from rich.text import Text
from textual.content import Content
from textual.style import Style as VisualStyle

from chat_tui.answer import Answer, Beginning
from chat_tui.labels import fitted
from chat_tui.rendering import Flow, Palette, sanitise
from chat_tui.rendering.boxes import BLANK, Box, Stack, Words
from chat_tui.rendering.laid_out import LaidOut
from chat_tui.scores import Surprise
from chat_tui.widgets.lines_view import LinesView
from engine.messages import FinishReason, ToolCall

State = FinishReason | Literal["waiting", "running", "died"]

_GLYPHS: dict[State, tuple[str, Callable[[Palette], Style]]] = {
    "waiting": ("○", lambda palette: palette.muted),
    "running": ("●", lambda palette: palette.running),
    "stop": ("✓", lambda palette: palette.success),
    "length": ("…", lambda palette: palette.warning),
    "context": ("…", lambda palette: palette.warning),
    "cancelled": ("■", lambda palette: palette.muted),
    "content_filter": ("✗", lambda palette: palette.warning),
    "died": ("✗", lambda palette: palette.error),
}
_ENDINGS: dict[State, str] = {
    "length": "cut: token limit",
    "context": "cut: context full",
    "cancelled": "stopped",
    "content_filter": "cut: content filter",
    "died": "cut off",
}
_STATS_EVERY = 1.0  # seconds: figures that change ten times a second cannot be read
_ALL_SHARED = (1 << 40, 1 << 40)  # where answers part, as long as they have not
_FRAME = 4  # cells of the upper edge that no title can have
_DRAWN_EACH_TIME = 1500  # characters of an open block; longer ones are drawn less often


class Pane(LinesView):
    """One of the answers that grow side by side."""

    DEFAULT_CSS = """
    Pane {
        padding: 0 0 0 1;
        border: round $foreground 20%;
        border-title-color: $foreground 70%;
        border-subtitle-color: $foreground 50%;
        border-subtitle-align: right;
        &.-current { border: round $primary 70%; border-title-color: $foreground; }
        &:focus { border: round $primary; border-title-color: $foreground; }
        &.-picked { border: round $success; }
        &.-alone {
            border: none;
            border-top: solid $foreground 20%;
            border-title-align: right;
        }
        &.-alone:focus { border-top: solid $primary; }
    }
    """

    def __init__(
        self, index: int = 0, label: str = "", *, numbered: bool = True, figures: bool = True
    ) -> None:
        super().__init__(classes="" if numbered else "-alone")
        self.index = index
        self.label = label
        self.numbered = numbered
        self.figures = figures
        self.unfolded = False
        self.pointed_at = False
        self.flow = Flow()
        self.state: State = "waiting"
        self.tokens = 0
        self.given = 0
        self.note = ""
        self.answer: Answer | None = None
        self._dirty = True
        self._laid_out = LaidOut(0)
        self._palette: Palette | None = None  # that it was drawn in; none where all is another now
        self._patience = 0  # paints that a long open block sits out
        self._first_token = self._last_token = 0.0
        self._stats_due = 0.0
        self._heading: tuple[object, ...] = ()
        self._surprise = Surprise()
        self._summed = 0  # tokens that it knows of

    @property
    def text(self) -> str:
        """The answer as the model wrote it: neither wrapped nor sanitised."""
        return self.flow.text

    @property
    def finished(self) -> bool:
        return self.state not in ("waiting", "running")

    @property
    def tokens_per_s(self) -> float | None:
        """After the first token; None before there are enough to tell."""
        seconds = self._last_token - self._first_token
        count = self.tokens - self.given
        return (count - 1) / seconds if count > 1 and seconds > 0 else None

    def begin(self, answer: Answer, beginning: Beginning) -> None:
        """Show what the answer was given to begin with; it will grow."""
        self._follow(answer)
        self.flow = Flow(beginning.text, beginning.calls, beginning.forced, unfolded=self.unfolded)
        self.tokens = self.given = len(beginning.tokens)
        self._dirty, self._palette = True, None

    def show(self, answer: Answer) -> None:
        """Show an answer that has ended."""
        self._follow(answer)
        self.flow = Flow(answer.text, answer.calls, answer.forced, unfolded=self.unfolded)
        self.tokens, self.given = len(answer.tokens), answer.given
        self._palette = None
        self.finish(answer.reason)

    @property
    def surprise(self) -> Surprise:
        """What the model thought of the answer so far."""
        answer = self.answer
        if answer is not None:
            for place in range(self._summed, len(answer.scores)):
                self._surprise.add(answer.scores[place], forced=answer.mask[place] == 0)
            self._summed = len(answer.scores)
        return self._surprise

    def _follow(self, answer: Answer) -> None:
        self.answer = answer
        self._surprise = Surprise()
        self._summed = 0

    def sum_up_anew(self) -> None:
        """Scores of the answer came afterwards."""
        self._surprise, self._summed = Surprise(), 0
        self.repaint()

    def part(self, place: int | None) -> None:
        """Answers part at token `place`: mark it, and show faintly what they share before it. None:
        they do not, as far as they go."""
        if self.answer is None:
            return
        ends = self.answer.ends
        if place is None or place >= len(ends):
            self._part((len(self.text),) * 2 if self.finished else _ALL_SHARED)
            return
        # A token may complete no character: then one of the next does.
        start = ends[place - 1] if place else 0
        end = next((end for end in ends[place:] if end > start), start)
        self._part((start, end))

    def unfold(self, unfolded: bool) -> None:
        """Show what was thought before the answer, or fold it."""
        self.unfolded = unfolded
        self.flow.unfold(unfolded)
        self._dirty = True
        self._patience = 0

    def unpart(self) -> None:
        """Show the answer as ever."""
        self._part(None)

    def _part(self, token: tuple[int, int] | None) -> None:
        if self.flow.part(token):
            self._dirty = True
            self._patience = 0

    def feed(self, text: str, forced: bool = False) -> None:
        """Take one token's text, which may be empty or hold several characters."""
        self._last_token = time.monotonic()
        if self.state == "waiting":
            self._first_token = self._last_token
            self.state = "running"
        self.tokens += 1
        self.flow.append(text, forced)
        self._dirty = True

    def set_call(self, index: int, call: ToolCall) -> None:
        """A tool call of this row, as it stands now."""
        self.flow.set_call(index, call)
        self._dirty = True

    def finish(self, reason: FinishReason | None, text: str = "") -> None:
        """The row ended: why (None: the engine died), and the characters held back until now."""
        self.flow.append(text)
        self.flow.close()
        self.state = reason or "died"
        self._dirty = True
        self._patience = 0

    def glyph(self, palette: Palette) -> tuple[str, Style]:
        """The state in one character."""
        glyph, style = _GLYPHS[self.state]
        return glyph, style(palette)

    def set_note(self, note: str) -> None:
        """One quiet line under the text ("waiting for the model"); "" takes it away."""
        self.note = note
        self._dirty = True

    def name_it(self, label: str, *, numbered: bool) -> None:
        """What tells it from the others, now that there are others."""
        self.label, self.numbered = label, numbered
        self.set_class(not numbered, "-alone")
        self._heading = ()
        self._dirty = True

    def set_picked(self, picked: bool) -> None:
        self.set_class(picked, "-picked")
        self._dirty = True

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.repaint())

    def on_show(self) -> None:
        self.fit()

    def on_enter(self) -> None:
        self.point()

    def on_leave(self) -> None:
        self.point()

    def point(self) -> None:
        """See whether the mouse is over it."""
        if self.pointed_at != self.is_mouse_over:
            self.pointed_at = self.is_mouse_over
            self._paint_heading(scrolled=False)

    def repaint(self) -> None:
        """Draw everything anew: another width, another theme."""
        self._dirty, self._palette = True, None
        self._patience = 0
        self._heading = ()
        self.paint()

    def fit(self) -> None:
        self._heading = ()
        self._dirty = True
        self._patience = 0
        self.paint()

    @property
    def fits(self) -> bool:
        """Its lines are those of the width that it has."""
        return self._laid_out.width == self.columns

    def paint(self) -> None:
        """Draw what came since the last time."""
        if not self.is_mounted or not self.columns:
            return
        if not self._dirty or self._patience:
            self._patience = max(self._patience - 1, 0)
            self._paint_heading(scrolled=False)
            return
        self._dirty = False
        palette, first, top = Palette.of(self.app), self.flow.update(), None
        if first is None or palette is not self._palette or not self.fits:
            place = self._laid_out.place(self.scroll_offset.y)
            self._laid_out, self._palette = LaidOut(self.columns), palette
            changed = self._laid_out.replace(0, self._boxes(0, palette))
            top = None if self.following else self._laid_out.find(place)
        else:
            changed = self._laid_out.replace(first, self._boxes(first, palette))
        scrolled = self.show_lines(self._laid_out, changed, top=top)
        self._patience = 0 if self.finished else self.flow.open_length // _DRAWN_EACH_TIME
        self._paint_heading(scrolled=scrolled)

    def _boxes(self, first: int, palette: Palette) -> Iterator[Box]:
        """The pieces of the answer from `first` on, and the note below."""
        for piece in self.flow.pieces[first:]:
            yield piece.box(palette)
        if self.note:
            note = Words([(sanitise(self.note), palette.muted)])
            yield Stack((BLANK, note)) if self.flow.pieces else note

    def _paint_heading(self, *, scrolled: bool) -> None:
        """Number, label, state, perplexity and entropy above; tokens and their rate below.

        A new heading draws the whole pane again, so figures wait for a moment when that is done
        anyway.
        """
        now = time.monotonic()
        marks = self.has_class("-picked"), self.has_class("-current"), self.pointed_at
        heading = (self.state, marks, self.tokens if self.finished else 0)
        due = self._stats_due if scrolled else self._stats_due + _STATS_EVERY
        if heading == self._heading and (self.finished or now < due):
            return
        self._stats_due = now + _STATS_EVERY
        self._heading = heading
        title, figures = self._title(), self._figures()
        if self.numbered:
            self.border_subtitle = figures
            title += self._measured(self.size.width - title.cell_len - _FRAME)
        else:
            figures += self._measured(self.size.width - title.cell_len - figures.cell_len)
            title = Text(" ").join([title, figures, Text()])
        self.border_title = Content.from_rich_text(title) + self._target()

    def _title(self) -> Text:
        palette = Palette.of(self.app)
        parts = [Text(*self.glyph(palette))]
        if self.numbered:
            current = self.has_class("-current")
            number = f" {self.index + 1} " if current else str(self.index + 1)
            parts.insert(0, Text(number, palette.marked if current else palette.strong))
        behind = []
        if self.state in _ENDINGS:
            behind.append(Text(_ENDINGS[self.state], palette.muted))
        if self.has_class("-picked"):
            behind.append(Text("picked", palette.success))
        if self.label:
            rest = sum(part.cell_len + 1 for part in [*parts, *behind])
            room = self.size.width - rest - (_FRAME if self.numbered else 0)
            parts.append(Text(fitted(sanitise(self.label), room)))
        return Text(" ").join([*parts, *behind])

    def _measured(self, room: int) -> Text:
        """Perplexity and mean entropy, as far as there is room."""
        told = ""
        if self.figures:
            surprise = self.surprise
            for name, figure in (("ppl", surprise.perplexity), ("H", surprise.entropy)):
                more = f" · {name} {figure:.2f}" if figure is not None else ""
                if len(told) + len(more) > room:
                    break
                told += more
        return Text(told, Palette.of(self.app).faint)

    def _target(self) -> Content:
        """What picks the answer by a click, where the mouse is over it."""
        if not self.pointed_at or self.has_class("-picked"):
            return Content("")
        style = VisualStyle.from_rich_style(Palette.of(self.app).marked)
        click = VisualStyle.from_meta({"@click": f"app.pick({self.index})"})
        # Pressing makes the answer the current one, whose number is wider: what is pressed must not
        # move before the button comes up.
        wider = self.numbered and not self.has_class("-current")
        return Content("   " if wider else " ") + Content.styled(" pick ", style + click)

    def _figures(self) -> Text:
        if not (self.tokens and self.figures):
            return Text()
        rate = self.tokens_per_s
        figures = f"{self.tokens} tok" + (f" · {rate:.0f}/s" if rate else "")
        return Text(figures, Palette.of(self.app).faint)
