"""The App and the clipboard: which answer is meant by a key or a command, where its text went, and
the line that says so.

`Copying(app, chat, file)` is asked by the App: `copy(wanted)` for a part of an answer
(`chat_tui/parts.py`), `give` for any text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chat_tui.answer import Answer
from chat_tui.chat import Chat
from chat_tui.parts import NothingToCopyError, Taken, Wanted, taken

if TYPE_CHECKING:
    from chat_tui.app import ChatApp


class Copying:
    """`file` is where a text is kept that no clipboard surely has; None writes none."""

    def __init__(self, app: ChatApp, chat: Chat, file: Path | None) -> None:
        self._app, self._chat, self._file = app, chat, file
        self._block: tuple[int, int] = (0, 0)  # of which answer which block was copied last

    def copy(self, want: Wanted) -> bool:
        """Copy what is wanted of an answer. False: there is no such thing, and a line said so."""
        try:
            part = self._part(want)
        except NothingToCopyError as error:
            self._app.answer.tell(str(error), "warning")
            return False
        self.give(part.text, part.what)
        return True

    def next_block(self) -> None:
        """Copy a code block of the answer in focus; asked again, the next one."""
        answer = self._chat.current
        last, block = self._block
        block = block + 1 if answer is not None and answer.id == last else 1
        if not self.copy(Wanted(kind="code", block=block)) and block > 1:
            block = 1
            self.copy(Wanted(kind="code", block=block))
        self._block = (answer.id if answer is not None else 0, block)

    def give(self, text: str, what: str) -> None:
        """Put `text` where it can be pasted from, and say where that is."""
        self._app._clipboard = text  # what Ctrl+V pastes
        self._app.run_worker(self._give(text, what), group="copy", exclusive=True)

    async def _give(self, text: str, what: str) -> None:
        from chat_tui import clipboard

        places = await asyncio.to_thread(clipboard.to_programs, text)
        if not places:
            sequences = clipboard.to_terminal(text)
            self._app.write_to_terminal(sequences)
            places += ["the terminal (OSC 52)"] if sequences else []
            if self._file is not None and clipboard.to_file(text, self._file):
                places.append(_short(self._file))
        self._app.answer.tell(_said(what, text, places), "info" if places else "warning")

    def _part(self, want: Wanted) -> Taken:
        chat = self._chat
        answers: Sequence[Answer] = ()
        if chat.turn is not None and chat.turn.rows:
            answers = chat.turn.rows
        elif chat.current_turn is not None:
            answers = chat.current_turn.answers
        if not answers:
            raise NothingToCopyError("There is no answer to copy yet.")
        if want.answer is None:
            answer = chat.current
            assert answer is not None
        elif want.answer <= len(answers):
            answer = answers[want.answer - 1]
        else:
            raise NothingToCopyError(f"Answers here: {len(answers)}, and no {want.answer}.")
        number = next((place for place, own in enumerate(answers, 1) if own is answer), 1)
        return taken(answer, number if len(answers) > 1 else None, want)


def _said(what: str, text: str, places: Sequence[str]) -> str:
    lines = text.removesuffix("\n").count("\n") + 1
    size = f"{len(text):,} characters" + (f" in {lines:,} lines" if lines > 1 else "")
    if not places:
        return f"Nothing here takes {size}: there is no clipboard program, and no file is written."
    return f"Copied {what} ({size}) to {' and '.join(places)}."


def _short(path: Path) -> str:
    home = str(Path.home())
    return f"~{str(path)[len(home) :]}" if str(path).startswith(home + "/") else str(path)
