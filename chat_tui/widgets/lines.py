"""The lines between the conversation and the prompt: progress, what waits, and short answers.

Each takes no room while it has nothing to say.
"""

from __future__ import annotations

from typing import Literal

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from chat_tui.keys import Keys
from chat_tui.rendering.sanitise import sanitise
from engine.messages import Loading

Kind = Literal["info", "warning", "error"]


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


class Progress(Widget):
    """What is being fetched or loaded, from where, how big, and how much of it is here."""

    DEFAULT_CSS = """
    Progress { display: none; height: auto; padding: 0 2; color: $foreground 80%; }
    """

    state: reactive[Loading | None] = reactive(None, layout=True)

    def watch_state(self, state: Loading | None) -> None:
        self.display = state is not None

    def render(self) -> Content:
        state = self.state
        if state is None:
            return Content("")
        what = Content(sanitise(state.what))
        if not state.total:
            return Content.assemble(("○ ", "$warning"), what)
        share = min(state.done / state.total, 1.0)
        figures = f" {share:4.0%}  {megabytes(state.done)} of {megabytes(state.total)}"
        width = max(8, min(self.content_size.width - len(figures), 60))
        filled = round(share * width)
        bar = Content.assemble(
            ("━" * filled, "$primary"),
            ("─" * (width - filled), "$foreground 25%"),
            (figures, "$foreground 60%"),
        )
        return what + Content("\n") + bar


class Waiting(Widget):
    """Messages that were sent and wait for their turn, in one line."""

    DEFAULT_CSS = """
    Waiting { display: none; height: 1; padding: 0 2; color: $foreground 60%; }
    """

    texts: reactive[tuple[str, ...]] = reactive(())
    until: reactive[str] = reactive("")

    def watch_texts(self, texts: tuple[str, ...]) -> None:
        self.display = bool(texts)

    def render(self) -> Content:
        if not self.texts:
            return Content("")
        beginning = sanitise(self.texts[0][:1000])  # of what may be megabytes
        first = Content.styled(" ".join(beginning.split()), "$foreground 90%")
        more = f" and {len(self.texts) - 1} more" if len(self.texts) > 1 else ""
        back = f" · {Keys.of(self.app).first('prompt.older')} takes it back"
        head = Content.styled("queued  ", "$warning")
        # What does not fit goes in this order: until when, then the end of the message.
        for tail in (f"{more} · {self.until}{back}", more + back):
            room = self.content_size.width - head.cell_length - len(tail)
            if first.cell_length <= room:
                break
        return head + first.truncate(max(room, 8), ellipsis=True) + Content(tail)


class Answer(Static):
    """One line about what was just done; it goes with the next key."""

    DEFAULT_CSS = """
    Answer {
        display: none; height: auto; max-height: 5; padding: 0 2;
        &.-info { color: $foreground 80%; }
        &.-warning { color: $text-warning; }
        &.-error { color: $text-error; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)

    def tell(self, text: str, kind: Kind) -> None:
        self.update(Content(sanitise(text)))
        self.set_classes(f"-{kind}")
        self.display = bool(text)

    def hush(self) -> None:
        if self.display:
            self.display = False
