"""What the prompt holds when it is no new message: a message or an answer that is being edited.

    editing.begin(prompt, "message 2", "What is 12*7?", lambda text: chat.edit(turn, text))
    editing.leave(prompt)      # the draft that was there before comes back

The App hands what is sent to `submit` while something is being edited, and to the chat otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from chat_tui.widgets.prompt import Prompt


class Editing:
    """`what` is being edited, in words; empty where nothing is. `verbatim`: it is no message, and
    mentions no file."""

    def __init__(self) -> None:
        self.what = ""
        self.verbatim = False
        self._draft = self._given = ""
        self._submit: Callable[[str], None] | None = None

    def begin(
        self,
        prompt: Prompt,
        what: str,
        text: str,
        submit: Callable[[str], None],
        *,
        verbatim: bool = False,
    ) -> None:
        """Put `text` into the prompt; what is sent next goes to `submit`."""
        if not self.what:
            self._draft = prompt.whole
        self._given = text
        self.what, self.verbatim, self._submit = what, verbatim, submit
        prompt.replace_text(text)
        prompt.focus()

    @property
    def left(self) -> list[str]:
        """What was being written before."""
        return [self._draft] if self._draft.strip() else []

    def changed(self, prompt: Prompt) -> bool:
        """Whether what the prompt holds is the user's, and not only what it was given to edit."""
        return not self.what or prompt.whole != self._given

    def leave(self, prompt: Prompt) -> str:
        """Nothing is edited any more; what was typed before comes back. Returns what was changed
        meanwhile; empty where nothing was."""
        changed = prompt.whole if self.changed(prompt) else ""
        self._end(prompt)
        return changed

    def _end(self, prompt: Prompt) -> None:
        self.what, self.verbatim, self._submit = "", False, None
        prompt.replace_text(self._draft)
        self._draft = ""

    def submit(self, prompt: Prompt, text: str) -> bool:
        """Take what was sent. False where it is a message of its own."""
        submit = self._submit
        if submit is None:
            return False
        self._end(prompt)
        submit(text)
        return True
