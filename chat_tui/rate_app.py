"""The terminal program that `chat-tui rate FILE` runs: a prompt, its answers, and one key for each
thing that can be said of them.

State is in `rating.Rating` and the `Chat` under it; the widgets are those of the chat.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType

from chat_tui.backends.base import Backend
from chat_tui.chat import Chat
from chat_tui.drawing import grow
from chat_tui.effects import Told
from chat_tui.keys import CHOOSING, RATING, UNCHANGED, Keys
from chat_tui.look import PLAIN, Look
from chat_tui.memory import Memory
from chat_tui.paced import PacedApp
from chat_tui.prompts import FilePrompt
from chat_tui.rate_lines import actions, closing, heading, remark
from chat_tui.rating import Rating, Turned
from chat_tui.recording import Recorder
from chat_tui.rendering import Palette, sanitise
from chat_tui.session import Session
from chat_tui.settings import Settings
from chat_tui.terminal import install, leave_on_signals
from chat_tui.turn import RunningTurn
from chat_tui.widgets.grid import CompareGrid
from chat_tui.widgets.heading import Heading, key_line
from chat_tui.widgets.lines import Progress
from chat_tui.widgets.status import Figures, StatusLine, figures
from chat_tui.widgets.transcript import Answer, Entry, Notice, Transcript, User

if TYPE_CHECKING:
    from textual.command import Provider


def _palette_commands() -> type[Provider]:
    from chat_tui.screens.palette import RatingCommands

    return RatingCommands


class RateGrid(CompareGrid, inherit_bindings=False):
    """Answers that are not gone on with: nothing branches off them."""

    BINDINGS: ClassVar[list[BindingType]] = [*CHOOSING]


class RateApp(PacedApp):
    """One prompt after the other."""

    TITLE = "chat-tui rate"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["look.tcss", "rate.tcss"]
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_palette_commands}

    BINDINGS: ClassVar[list[BindingType]] = [*RATING]

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        prompts: Sequence[FilePrompt],
        session: Session,
        *,
        file: str,
        keep: Path | None = None,
        state: Path | None = None,
        blind: bool = False,
        load_sent: bool = False,
        keys: Keys = UNCHANGED,
        look: Look = PLAIN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        chat = Chat(backend, settings, load_sent=load_sent, clock=clock)
        super().__init__(look, keys, Memory(state), chat)
        self.recorder = Recorder(keep)
        self.recorder.watch(session)  # before the rating takes out of it what was not judged
        self.rating = Rating(chat, prompts, session, blind=blind, clock=clock)
        self._file = file
        self._told: tuple[str, str] = ("", "info")
        self._unsaved = ""

    def compose(self) -> ComposeResult:
        yield Heading(id="heading")
        yield Transcript(id="transcript")
        yield RateGrid(id="grid")
        yield Progress(id="progress")
        yield Heading(id="told")
        yield Heading(id="footer")
        yield StatusLine(id="status")

    def on_mount(self) -> None:
        self.transcript = self.query_one(Transcript)
        self.grid = self.query_one(RateGrid)
        self.heading = self.query_one("#heading", Heading)
        self.told = self.query_one("#told", Heading)
        self.footer = self.query_one("#footer", Heading)
        self.status = self.query_one(StatusLine)
        self.loading = self.query_one(Progress)
        leave_on_signals(lambda code: self.exit(return_code=code))
        self.theme_changed_signal.subscribe(self, lambda _: self._redraw())
        self._tick()

    def on_resize(self) -> None:
        if self._timer is not None:  # the first time comes before the widgets do
            self._redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tab goes its usual way in the help."""
        return action != "other" or len(self.screen_stack) == 1

    # Draining and drawing.

    def drain(self) -> None:
        """Take what the models have to say, and draw it."""
        events = self.rating.drain()
        self._draw()
        self.recorder.tick(self.rating)
        self._unsaved = self.recorder.trouble() or self._unsaved
        if self._are_figures_due(events):
            self._redraw()

    def _draw(self) -> None:
        for effect in self.rating.effects():
            if isinstance(effect, Turned):
                self._show()
            elif isinstance(effect, Told):
                self._told = effect.text, effect.kind
            else:
                grow(effect, [self.grid.panes[column] for column in self._columns])
        self.grid.paint()

    @property
    def _columns(self) -> list[int]:
        """Where each row of the turn stands."""
        order = self.rating.order
        return [order.index(row) for row in range(len(order))]

    def _show(self) -> None:
        """The prompt and all that there is of its answers."""
        rating = self.rating
        self.screen.set_class(rating.prompt is None, "-closing")
        self.transcript.replace(self._entries())
        if rating.prompt is not None and not rating.prompt.history:
            self.transcript.scroll_to_line(0)  # a long one is read from its beginning
            self.transcript.following = False
        turn = rating.turn
        if rating.prompt is None or (turn is None and rating.place in rating.problems):
            self.grid.clear()
            self.transcript.focus()
            return
        labels = turn.labels if turn is not None and not rating.blind else []
        self.grid.start(
            len(self.chat.settings.setups()) if turn is None else turn.samples,
            [labels[row] for row in rating.order] if labels else (),
            figures=not rating.blind,
        )
        for pane in self.grid.panes:
            pane.following = False  # it is read from its beginning
        if turn is not None and rating.visible:
            self._show_answers(turn)
        self.grid.focus_pane(0)

    def _show_answers(self, turn: RunningTurn) -> None:
        for pane, row in zip(self.grid.panes, self.rating.order, strict=True):
            answer = turn.rows[row]
            if answer.reason is None:
                pane.begin(answer, answer.beginning())
                continue
            pane.show(answer)
            if turn.lost and answer.reason == "cancelled":
                pane.finish(None)
            if not answer.text:
                pane.set_note("It says nothing.")

    def _entries(self) -> list[Entry]:
        rating, prompt = self.rating, self.rating.prompt
        if prompt is None:
            return [Notice(line) for line in closing(rating, self._file, self.keys)]
        entries: list[Entry] = []
        for user, answer in prompt.history:
            entries += [User(user), Answer(answer)]
        entries.append(User(prompt.text))
        if problem := rating.problems.get(rating.place):
            entries.append(Notice(problem, "error"))
        return entries

    def _redraw(self) -> None:
        """Everything that is a function of the state alone."""
        rating, palette = self.rating, Palette.of(self.heading.app)
        width = self.size.width - 2
        self.heading.content = heading(rating, Path(self._file).name, width, palette)
        what = actions(rating, len(self.grid.panes), self.keys)
        self.footer.content = key_line(what, width, palette)
        text, kind = self._told
        if self._unsaved:
            text, kind = self._unsaved, "error"
        style = {"info": palette.muted, "warning": palette.warning, "error": palette.error}[kind]
        said = sanitise(text) or remark(rating, self.keys)
        self.told.content = Text(said, style, no_wrap=True, overflow="ellipsis")
        self.loading.state = self.chat.loading
        now = figures(self.chat)
        blind = Figures(state=now.state, activity=now.activity, model="blind")
        self.status.figures = blind if rating.blind else replace(now, seed=None)
        if not rating.visible:
            for pane in self.grid.panes:
                pane.set_note(self._waiting())
        self.grid.paint()

    def _waiting(self) -> str:
        """Why there is nothing to be read yet."""
        if self.chat.phase == "loading":
            return "waiting for the model"
        if self.rating.turn is None:
            return f"waiting for the prompt before; {self.keys.first('rating.stop')} stops it"
        return "answering; shown when all of them are there" if self.rating.blind else ""

    # What the user does.

    def act(self, call: Callable[[], object]) -> None:
        """Let something happen, write it down, and draw what comes of it."""
        self._told = "", "info"
        call()
        self.recorder.hurry(self.rating)
        self._draw()
        self._redraw()
        self._wake()

    def on_compare_grid_picked(self, message: CompareGrid.Picked) -> None:
        self.action_pick(message.index)

    def action_pick(self, column: int) -> None:
        self.act(lambda: self.rating.pick(column))

    def action_tie(self) -> None:
        self.act(lambda: self.rating.say("tie"))

    def action_bad(self) -> None:
        self.act(lambda: self.rating.say("bad"))

    def action_skip(self) -> None:
        done = self.rating.prompt is None
        self.act(self.rating.skipped_again if done else lambda: self.rating.say("skip"))

    def action_undo(self) -> None:
        self.act(self.rating.undo)

    def action_retry(self) -> None:
        self.act(self.rating.retry)

    def action_stop(self) -> None:
        self.act(self.rating.stop)

    def action_unfold(self) -> None:
        self.transcript.action_unfold()

    def action_other(self) -> None:
        if self.grid.has_focus_within or not self.grid.panes:
            self.transcript.focus()
        else:
            self.grid.focus_pane(self.grid.focused_index)

    def action_help(self) -> None:
        from chat_tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.keys.sections({"RateApp", "RateGrid", "Pane"})))

    def close(self) -> None:
        """End what grows, and write what is left."""
        self.chat.leave()
        self.recorder.close(self.rating)


def run(
    settings: Settings,
    backend: Backend,
    prompts: Sequence[FilePrompt],
    session: Session,
    *,
    file: str,
    keep: Path,
    state: Path,
    blind: bool,
    keys: Keys,
    look: Look,
) -> int:
    """Rate until the user leaves; returns the exit code.

    The load of the first model has been sent to `backend` already; all are closed at the end.
    """
    install()
    app = RateApp(
        settings,
        backend,
        prompts,
        session,
        file=file,
        keep=keep,
        state=state,
        blind=blind,
        load_sent=True,
        keys=keys,
        look=look,
    )
    try:
        app.run()
    finally:
        app.close()
        app.chat.close()
    if trouble := app.recorder.trouble():
        print(f"chat-tui: {trouble}", file=sys.stderr)
        return app.return_code or 1
    if sys.stdout.isatty():  # in a browser it is not for eyes
        progress = app.rating.progress
        print(
            f"{progress.done} of {progress.total} prompts are rated. "
            f"chat-tui export --rated {shlex.quote(file)} --format dpo writes the pairs."
        )
    return app.return_code or 0
