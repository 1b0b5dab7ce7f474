"""The App and what is sent from the prompt: a message, a command, or what was being edited.

`Obeying(app, chat, composing)` is asked by the App: `send` for what the prompt holds, `run` and
`start` for a command from elsewhere, `complete` for what the prompt offers, `edit_message` and
`edit_answer` to put something there that was said before. A line above the prompt says what came of
it, and nothing that was typed is lost where nothing did.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chat_tui import commands
from chat_tui.chat import GROWING, Chat
from chat_tui.commands import Choice, Command
from chat_tui.composing import Composing
from chat_tui.effects import Kind
from chat_tui.new_file import NotWrittenError
from chat_tui.parts import Wanted, wanted
from chat_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from chat_tui.app import ChatApp


def _model_names() -> Sequence[str]:
    from engine.loading.catalog import CATALOG

    return tuple(CATALOG)


class Obeying:
    """Commands are those of `chat_tui/commands.py`; what each does is here."""

    def __init__(self, app: ChatApp, chat: Chat, composing: Composing) -> None:
        self._app, self._chat, self._composing = app, chat, composing

    def send(self, message: Prompt.Submitted) -> None:
        """Do what was sent, or give the text back."""
        if self._sent(message):
            self._composing.sent(message.text)
        else:
            self._app.prompt.give_back(message.text)

    def _sent(self, message: Prompt.Submitted) -> bool:
        editing = self._composing.editing
        if editing.what:
            edited = self._composing.message(message.shown)
            if edited is None:
                return False
            self._app.act(lambda: editing.submit(self._app.prompt, edited))
            return True
        # A text that was pasted and folded is no command, whatever it begins with.
        outcome = commands.interpret(message.shown)
        if not isinstance(outcome, commands.Message):
            outcome = commands.interpret(message.text)
        match outcome:
            case commands.Complaint(line):
                self._tell(line, "warning")
                return False
            case commands.Message(shown):
                text = self._composing.message(shown)
                if text is None:
                    return False
                self._app.act(lambda: self._chat.send(text))
            case commands.SetValue(command, value):
                return self._change(command, value)
            case commands.Question(command):
                self._tell_value(command)
            case commands.Act(command, argument):
                return self.run(command, argument)
        return True

    def _change(self, command: Command, value: object) -> bool:
        """Set one of the settings. False: they do not allow it, and the text is needed again."""
        done = False

        def change() -> None:
            nonlocal done
            done = self._chat.change(command.setting, value)

        self._app.act(change)
        if done and command.name not in ("model", "server"):  # it is seen what comes of it
            self._tell_value(command)
        return done

    def run(self, command: Command, argument: str = "") -> bool:
        """Run one of the commands that are no settings. False: the text is needed again."""
        app, chat = self._app, self._chat
        match command.name:
            case "new":
                app.act(chat.new)
            case "help":
                app.action_help()
            case "quit":
                app.exit()
            case "save":
                return self._save(argument)
            case "rename":
                return app.keeping.rename(argument)
            case "copy":
                return app.copying.copy(wanted(argument) or Wanted())
            case "export":
                return app.keeping.export(argument)
            case "pane":
                self._tell_value(command)
            case "undo":
                app.action_undo()
            case "more":
                app.act(lambda: chat.more(int(argument) if argument else None))
            case "continue":
                app.action_continue()
            case "edit":
                self.edit_message(int(argument) if argument else None)
        return True

    def start(self, command: Command) -> None:
        """From the palette: run a command, or put it into the prompt for its argument."""
        if command.argument:
            self._composing.set_aside()
            prompt = self._app.prompt
            prompt.focus()
            prompt.replace_text(f"/{command.name} ")
            prompt.offer()
        else:
            self.run(command)

    def complete(self, text: str, cursor: int) -> tuple[Sequence[Choice], str]:
        """What the prompt offers for a text, and a hint at how it goes on."""
        if not commands.is_command(text):
            files = self._composing.choices(text[:cursor])
            return files, "Tab attaches a file" if files else ""
        settings = self._chat.settings
        return commands.complete(text, settings, _model_names), commands.usage_hint(text, settings)

    def edit_message(self, number: int | None) -> None:
        """Put a message of this path into the prompt, to be asked again; None is the last one."""
        chat = self._chat
        turns = [pick.turn for pick in chat.conversation.path]
        if chat.turn is not None and chat.turn.turn is not None:
            turns.append(chat.turn.turn)
        number = len(turns) if number is None else number
        if not turns:
            self._tell("There is no message to edit.")
        elif not 1 <= number <= len(turns):
            self._tell(f"There are {len(turns)} messages, no {number}.")
        else:
            turn = turns[number - 1]
            self._edit(f"message {number}", turn.user, lambda text: chat.edit(turn, text))

    def edit_answer(self) -> None:
        """Put the answer in focus into the prompt, to be gone on from."""
        answer = self._chat.current
        if answer is None or answer.reason is None:
            self._tell("There is no answer to edit." if answer is None else GROWING)
            return
        self._edit(
            "an answer",
            answer.text,
            lambda text: self._chat.edit_answer(answer, text),
            verbatim=True,
        )

    def _edit(
        self, what: str, text: str, submit: Callable[[str], None], *, verbatim: bool = False
    ) -> None:
        self._composing.edit(what, text, submit, verbatim=verbatim)
        self._app.redraw()

    def _save(self, argument: str) -> bool:
        settings, head = self._chat.settings, self._chat.conversation.head
        try:
            done = self._chat.conversation.save(
                Path(os.path.expanduser(argument)),
                model=head.model.name if head is not None else self._chat.lane.name,
                system=head.prompt.system if head is not None else settings.systems[0],
                tools=settings.tools,
            )
        except NotWrittenError as error:
            self._tell(str(error), "warning")
            return False
        self._tell(done)
        return True

    def _tell_value(self, command: Command) -> None:
        if command.show is not None:
            self._tell(f"{command.name}: {command.show(self._chat.settings)}")

    def _tell(self, line: str, kind: Kind = "info") -> None:
        self._app.answer.tell(line, kind)
