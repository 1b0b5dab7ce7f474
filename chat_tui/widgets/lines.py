"""The lines between the conversation and the prompt: progress, what waits, and short answers.

Each takes no room while it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

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
            ("━" * (width - filled), "$foreground 15%"),
            (figures, "$foreground 60%"),
        )
        return what + Content("\n") + bar


class Waiting(Static):
    """Messages that were sent and wait for their turn."""

    DEFAULT_CSS = """
    Waiting { display: none; height: auto; max-height: 4; padding: 0 2; color: $foreground 60%; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: tuple[object, ...] = ()

    def show(self, texts: Sequence[str], until: str) -> None:
        """`until` says when they are answered."""
        if self._shown == (*texts, until):
            return
        self._shown = (*texts, until)
        self.display = bool(texts)
        if texts:
            first = " ".join(sanitise(texts[0]).split())
            more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
            self.update(
                Content.assemble(
                    ("queued  ", "$warning"),
                    (first if len(first) <= 60 else first[:59] + "…", "$foreground 90%"),
                    f"{more} · {until} · ↑ takes it back",
                )
            )


class Answer(Static):
    """One line about what was just done; it goes with the next key, or after a while."""

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
