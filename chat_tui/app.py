"""The terminal program: it wires the conversation's state to the widgets that draw it.

`ChatApp` passes keys and messages to
`chat.Chat`, drains the backend some ten times a second, and draws the effects that come out; state
is in `chat`, `conversation` and `turn`, drawing in `widgets/` and `screens/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import TextArea

from chat_tui import effects
from chat_tui.backends.base import Backend
from chat_tui.backends.made import backend_for
from chat_tui.chat import Chat
from chat_tui.composing import Composing
from chat_tui.copying import Copying
from chat_tui.drawing import Stage
from chat_tui.hints import hints
from chat_tui.keeping import Keeping
from chat_tui.keys import EVERYWHERE, UNCHANGED, Keys
from chat_tui.look import PLAIN, Look
from chat_tui.looking import Looking
from chat_tui.memory import Memory
from chat_tui.obeying import Obeying
from chat_tui.paced import PacedApp
from chat_tui.parts import Kind, Wanted
from chat_tui.session import Session
from chat_tui.settings import Settings
from chat_tui.terminal import leave_on_signals
from chat_tui.widgets.completions import Completions
from chat_tui.widgets.grid import CompareGrid, Turn
from chat_tui.widgets.lines import Answer, Progress, Waiting
from chat_tui.widgets.prompt import Prompt
from chat_tui.widgets.status import StatusLine, figures
from chat_tui.widgets.transcript import Transcript
from chat_tui.widgets.welcome import Welcome
from engine.messages import Load

if TYPE_CHECKING:
    from textual.command import Provider

    from chat_tui.screens.sessions import SessionsScreen
    from chat_tui.screens.tokens import TokenScreen
    from chat_tui.screens.tree import TreeScreen

TURNS = 2
"""Drains in which each of many panes is painted once, while answers run: a key that comes in
between waits for half of them at most."""


def _palette_commands() -> type[Provider]:
    # Imported when it is first opened: it is not needed for the first frame.
    from chat_tui.screens.palette import PaletteCommands

    return PaletteCommands


class ChatApp(PacedApp):
    """One conversation on one screen."""

    TITLE = "chat-tui"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["look.tcss", "chat.tcss"]
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_palette_commands}

    BINDINGS: ClassVar[list[BindingType]] = [*EVERYWHERE]

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        *,
        load_sent: bool = False,
        make: Callable[[Load], Backend] = backend_for,
        state: Path | None = None,
        keep: Path | None = None,
        session: Session | None = None,
        choose: bool = False,
        trouble: str = "",
        keys: Keys = UNCHANGED,
        look: Look = PLAIN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        chat = Chat(backend, settings, load_sent=load_sent, make=make, clock=clock)
        super().__init__(look, keys, Memory(state), chat)
        self.keeping = Keeping(self, self.chat, keep)
        self._at_start = session, choose, trouble
        self._looking = Looking(self, self.chat)
        self.composing = Composing(self, self.chat, state)
        self.obeying = Obeying(self, self.chat, self.composing)
        self.copying = Copying(self, self.chat, state / "copied.txt" if state else None)

    def compose(self) -> ComposeResult:
        completions = Completions(id="completions")
        yield Welcome(id="welcome")
        yield Transcript(id="transcript")
        yield CompareGrid(id="grid")
        yield Progress(id="progress")
        yield Waiting(id="waiting")
        yield Answer(id="answer")
        yield completions
        yield Prompt(completions, self.composing.past, self.obeying.complete, id="prompt")
        yield StatusLine(id="status")

    def on_ready(self) -> None:
        if self.welcome.first and self.main.has_class("-empty"):
            self.memory.put("hinted", True)

    def on_mount(self) -> None:
        # Looked up once: queries go to the screen on top, which may be the help.
        self.main = self.screen
        self.transcript = self.query_one(Transcript)
        self.grid = self.query_one(CompareGrid)
        self.prompt = self.query_one(Prompt)
        self.answer = self.query_one(Answer)
        self.status = self.query_one(StatusLine)
        self.progress = self.query_one(Progress)
        self.waiting = self.query_one(Waiting)
        self.welcome = self.query_one(Welcome)
        self.stage = Stage(self.main)
        self.main.add_class("-empty")
        self.prompt.focus()
        leave_on_signals(lambda code: self.exit(return_code=code))
        self.welcome.first = self.memory.kept and not self.memory.get("hinted")
        self.redraw()
        self._tick()
        session, choose, trouble = self._at_start
        if trouble:
            self.notice(trouble)
        self.composing.restore()
        if session is not None:
            self.keeping.open(session)
        if choose:
            self.keeping.pick()

    def exit(
        self, result: None = None, return_code: int = 0, message: RenderableType | None = None
    ) -> None:
        self.composing.keep(leaving=True)
        super().exit(result, return_code, message)

    # Draining and drawing.

    def _tick(self) -> None:
        turns = TURNS if self.chat.pace == "running" and len(self.grid.panes) > TURNS else 1
        self.drain((self._ticks % turns, turns))
        self._wake()

    def drain(self, turn: Turn = (0, 1)) -> None:
        """Take what the models have to say, and draw it: in panes as far as it is their turn."""
        events = self.chat.drain()
        self._draw(turn)
        self.keeping.tick()
        self.composing.tick()
        if self._are_figures_due(events):
            self.redraw()

    def _draw(self, turn: Turn = (0, 1)) -> None:
        for effect in self.chat.effects():
            self._draw_one(effect)
        self.grid.paint(turn)

    def _draw_one(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.Overflow):
            self._ask_about(effect)
        elif isinstance(effect, effects.ScoresCame):
            self._looking.scores_came(effect)
        elif isinstance(effect, effects.CountsCame):
            self.composing.counts_came(effect)
        else:
            self.stage.draw(effect)
            if isinstance(effect, effects.Moved | effects.ClosedUp):
                self.chat.focused = effect.focused

    def redraw(self) -> None:
        """Everything that is a function of the state alone."""
        chat = self.chat
        self.status.figures = figures(chat)
        self.progress.state = chat.loading
        self.welcome.infos = tuple(lane.info for lane in chat.lanes if lane.info is not None)
        self.welcome.samples = len(chat.settings.setups())
        until = "the model is ready" if chat.phase == "loading" else "this answer ends"
        self.waiting.until = f"sent when {until}"
        self.waiting.texts = tuple(chat.queue)
        self.prompt.waiting = bool(chat.queue)
        self.prompt.tell_state(
            *hints(
                chat,
                self.grid.focused_index,
                self.keys,
                self.composing.editing.what,
                self.composing.carried,
            )
        )

    # What the user does.

    def act(self, call: Callable[[], object]) -> None:
        """Let something happen in `chat`, and draw what comes of it."""
        call()
        self._draw()
        self.redraw()
        self._wake()

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        self.answer.hush()
        self.obeying.send(message)

    def on_prompt_edited(self, message: Prompt.Edited) -> None:
        if message.by_hand:
            self.answer.hush()
        before = self.composing.carried
        problem = self.composing.edited()
        if problem and message.by_hand:
            self.answer.tell(problem, "warning")
        if self.composing.carried != before:
            self.redraw()

    def on_prompt_told(self, message: Prompt.Told) -> None:
        self.answer.tell(message.line, "info")

    def on_paste(self, event: events.Paste) -> None:
        """Pasted where nothing takes it: it is meant for the prompt."""
        self.prompt.take_paste(event.text)
        if self.screen is self.main:
            self.prompt.focus()

    def on_prompt_page(self, message: Prompt.Page) -> None:
        above = self.grid.pane(self.grid.focused_index) if self.grid.panes else self.transcript
        if message.step < 0:
            above.scroll_page_up(animate=False)
        else:
            above.scroll_page_down(animate=False)

    def on_prompt_take_back(self) -> None:
        text = self.chat.take_back()
        if text is not None:
            self.prompt.give_back(text)
        self.redraw()

    def on_completions_taken(self) -> None:
        self.prompt.take_first()

    def on_compare_grid_picked(self, message: CompareGrid.Picked) -> None:
        self.action_pick(message.index)

    def on_compare_grid_focus_moved(self, message: CompareGrid.FocusMoved) -> None:
        self.chat.focused = message.index
        self.redraw()

    def action_pick(self, index: int) -> None:
        self.act(lambda: self.chat.pick(index))
        self.prompt.focus()

    def notice(self, text: str) -> None:
        """A line that stays, about what no answer and no command is the cause of."""
        self.transcript.add_notice(text, "warning")

    def action_sessions(self) -> None:
        from chat_tui.screens.sessions import SessionsScreen

        if isinstance(self.screen, SessionsScreen):
            self.screen.action_close()
        elif not self.screen.is_modal:
            self.close_screens()
            self.keeping.pick()

    def on_sessions_screen_renamed(self, message: SessionsScreen.Renamed) -> None:
        self.keeping.renamed(message.number, message.title)

    def action_undo(self) -> None:
        inside = self.transcript.has_focus
        self.act(self.chat.undo)
        if inside and self.grid.panes:
            self.grid.focus_pane(self.grid.focused_index)

    def action_more(self) -> None:
        self.act(self.chat.more)

    def action_continue(self) -> None:
        answer = self.chat.current
        if answer is None:
            self.answer.tell("There is no answer to continue.", "info")
        else:
            self.act(lambda: self.chat.continue_(answer))

    def action_copy(self, kind: Kind = "text") -> None:
        self.copying.copy(Wanted(kind=kind))

    def action_copy_code(self) -> None:
        self.copying.next_block()

    def copy_to_clipboard(self, text: str) -> None:
        self.copying.give(text, "what is selected")

    def write_to_terminal(self, sequences: Iterable[str]) -> None:
        """What is no part of the screen."""
        if (driver := self._driver) is not None:
            for sequence in sequences:
                driver.write(sequence)

    def action_edit(self) -> None:
        self.obeying.edit_message(None)

    def action_edit_answer(self) -> None:
        self.obeying.edit_answer()

    def action_editor(self) -> None:
        self.composing.in_editor()

    # Looking closer.

    def action_tokens(self) -> None:
        turn, answer = self.chat.current_turn, self.chat.current
        if turn is None or answer is None:
            self.answer.tell("There is no answer to look at yet.", "info")
        else:
            self._looking.at_tokens(turn, answer)

    def action_tree(self) -> None:
        from chat_tui.screens.tree import TreeScreen

        if self.screen.is_modal:  # a question has to be answered first
            return
        again = isinstance(self.screen, TreeScreen)
        self.close_screens()
        if not again:
            self._looking.at_tree()

    def close_screens(self) -> None:
        """Back to the chat, whatever lies over it."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def on_token_screen_fork(self, message: TokenScreen.Fork) -> None:
        self._looking.fork(message)

    def on_token_screen_wanted(self, message: TokenScreen.Wanted) -> None:
        self._looking.score(message)

    def on_tree_screen_jump(self, message: TreeScreen.Jump) -> None:
        self._looking.jump(message)

    def on_tree_screen_inspect(self, message: TreeScreen.Inspect) -> None:
        self._looking.at_tokens(message.turn, message.answer)

    def action_stop(self) -> None:
        if self.composing.editing.what:
            self.composing.leave_edit()
            self.redraw()
            return
        if not self.chat.stop() and self.screen is self.main:
            self.prompt.focus()

    def action_interrupt(self) -> None:
        """Ctrl+C: stop what runs; else copy what is selected; else say how to leave."""
        if self.chat.stop():
            return
        focused = self.focused
        selected = self.screen.get_selected_text() or (
            focused.selected_text if isinstance(focused, TextArea) else ""
        )
        if selected:
            self.copy_to_clipboard(selected)
        else:
            self.answer.tell(f"{self.keys.first('chat.quit')} quits.", "info")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tab goes its usual way on the screens that lie over the chat."""
        return action != "tab" or self.screen is self.main

    async def action_tab(self, step: int) -> None:
        """Take what the prompt offers, else go round prompt, answers and transcript."""
        if self.prompt.has_focus:
            await self.prompt.caught_up()
            if step > 0 and self.prompt.take_first():
                return
        stops: list[Widget] = [self.prompt, self.transcript]
        if self.grid.panes:
            stops.insert(1, self.grid)
        here = next(
            (place for place in stops if place.has_focus or place.has_focus_within), self.prompt
        )
        there = stops[(stops.index(here) + step) % len(stops)]
        if there is self.grid:
            self.grid.focus_pane(self.grid.focused_index)
        else:
            there.focus()

    def nodes(self, screen: Screen[object]) -> Mapping[str, DOMNode]:
        """What acts on a screen, by its class; the App only in the chat."""
        over = [] if screen is not self.main else [self]
        return {type(node).__name__: node for node in (*over, screen, *screen.query("*"))}

    def action_help(self) -> None:
        from chat_tui.screens.help import HelpScreen, command_rows

        # What lies over the chat has keys of its own.
        sections = self.keys.sections(self.nodes(self.screen))
        if self.screen is self.main:
            sections.append(("Commands", command_rows()))
        if sections:
            self.push_screen(HelpScreen(sections))

    def _ask_about(self, overflow: effects.Overflow) -> None:
        from chat_tui.screens.overflow import OverflowScreen

        def answered(drop: bool | None) -> None:
            self.act(self.chat.drop_oldest if drop else self.chat.decline)

        self.push_screen(OverflowScreen(overflow), answered)
