"""The App and the message that is being written: the files it mentions, how long it is going to be,
and that nothing of it is lost.

`Composing(app, chat, state)` is asked by the App: `edited` when the text in the prompt has changed,
`carried` for what the frame says of it, `message` for what is sent, `sent` when it was; `tick` with
every drain.

Tokens are counted by what answers, each text once. Until it has, there is an estimate, which says
that it is one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from textual.app import SuspendNotSupported

from chat_tui.attach import AttachError, compose, mentions, offered, read
from chat_tui.chat import Chat
from chat_tui.commands import Choice
from chat_tui.drafts import Draft, Drafts
from chat_tui.editing import Editing
from chat_tui.effects import CountsCame
from chat_tui.frames import framed
from chat_tui.history import PromptHistory
from chat_tui.rendering.sanitise import sanitise

if TYPE_CHECKING:
    from chat_tui.app import ChatApp

COUNTED = 400_000
"""Characters of a text that are worth counting: no context holds more of it."""
_LONGEST_NAME = 30
_RECORDED_S = 2.0
"""After its first token a message is surely in the store."""


class Carried(NamedTuple):
    """A text that the message carries: a file, or what is folded."""

    key: Hashable
    name: str
    text: str


class Composing:
    """Attributes:
    past: what was sent before, which Up and Down walk through.
    editing: what the prompt holds where it is no new message.
    drafts: what is written, on the disk. With `state` None, nothing of all that is.
    """

    def __init__(self, app: ChatApp, chat: Chat, state: Path | None) -> None:
        self.past = PromptHistory(state / "prompts.jsonl" if state else None)
        self.editing = Editing()
        self.drafts = Drafts(state / "drafts" if state else None)
        self._private = state is None
        self._app, self._chat = app, chat
        self._carried: list[Carried] = []
        self._known: dict[Hashable, Carried] = {}  # of this text or the one before
        self._counts: dict[Hashable, int] = {}
        self._counted_by: object = None
        self._asked: tuple[int, list[Hashable]] | None = None

    def tick(self) -> None:
        self.count()
        self.keep()

    # That nothing is lost.

    def keep(self, *, leaving: bool = False) -> None:
        """Write down what is being written, if it has changed."""
        prompt = self._app.prompt
        shown = prompt.text if self.editing.changed(prompt) else ""
        unkept = self._chat.unkept(0.0 if leaving else _RECORDED_S)
        draft = Draft(
            shown,
            {label: prompt.folds.bodies[label] for label in prompt.folds.labels(shown)},
            (*unkept, *self.editing.left, *self.past.left),
        )
        self.drafts.keep(draft, now=leaving)
        if self.drafts.trouble:
            self._app.notice(self.drafts.trouble)
            self.drafts.trouble = ""

    def restore(self) -> None:
        """Put back what an earlier run left."""
        left = self.drafts.take_over()
        if left is None:
            return
        prompt = self._app.prompt
        prompt.folds.bodies.update(left.draft.folds)
        shown = prompt.folds.expand(left.draft.shown)
        prompt.replace_text("\n\n".join(filter(str.strip, [*left.draft.others, shown])))
        when = time.strftime("%x %H:%M", time.localtime(left.at))
        more = f" {left.more} more will come back at later starts." if left.more else ""
        self._app.answer.tell(f"What you were writing on {when} is back.{more}", "info")

    def sent(self, text: str) -> None:
        """`text` was sent, or done: what was left for it comes back."""
        if draft := self.past.add(text):
            self._app.prompt.give_back(draft)

    def set_aside(self) -> None:
        """The prompt is needed for something else; what is in it comes back after that."""
        prompt = self._app.prompt
        if prompt.text.strip():
            self.past.set_aside(prompt.whole)
            self._app.answer.tell("What you were writing comes back when this is done.", "info")

    def edit(
        self, what: str, text: str, submit: Callable[[str], None], *, verbatim: bool = False
    ) -> None:
        """Put `text` into the prompt, to be sent to `submit`."""
        if self.editing.what:
            self.leave_edit()
        self.editing.begin(self._app.prompt, what, text, submit, verbatim=verbatim)

    def leave_edit(self) -> None:
        """Go back to what was written before; what was changed can be found again."""
        if changed := self.editing.leave(self._app.prompt):
            self.past.add(changed)
            self._app.answer.tell("Left; ↑ brings back what you changed.", "info")

    def in_editor(self) -> None:
        """Go on writing in the user's own editor."""
        from chat_tui.editor import EditorError, edited

        prompt = self._app.prompt
        before, problem = prompt.whole, ""
        try:
            with self._app.suspend():
                try:
                    after = edited(before, in_memory=self._private)
                except EditorError as error:  # caught in here: else the screen would not come back
                    problem = str(error)
        except SuspendNotSupported:
            problem = "There is no terminal here that an editor could have."
        if problem:
            self._app.answer.tell(problem, "warning")
        elif after != before:
            prompt.history.checkpoint()
            prompt.replace_text(after)

    # What it carries.

    def edited(self) -> str:
        """The text has changed. Returns what is wrong with a file that it mentions."""
        prompt = self._app.prompt
        problem = ""
        carried: dict[Hashable, Carried] = {}
        for mention in () if self.editing.verbatim else mentions(prompt.text):
            try:
                file = self._file(mention.path)
                carried[file.key] = file
            except AttachError as error:
                problem = str(error)
        for label in prompt.folds.labels(prompt.text):
            carried[label] = Carried(label, label.strip("[]"), prompt.folds.bodies[label])
        self._carried = list(carried.values())
        self._known = carried
        self.count()
        return problem

    def _file(self, path: str) -> Carried:
        try:
            status = os.stat(os.path.expanduser(path))
        except OSError as error:
            raise AttachError(f"{path} cannot be read: {error.strerror}.") from error
        key = (path, status.st_mtime_ns, status.st_size)
        return self._known.get(key) or Carried(key, path, framed(path, read(path).text))

    def count(self) -> None:
        """Ask how many tokens there are in what nobody has counted yet."""
        model = self._chat.lane.model
        if model != self._counted_by:
            self._counts.clear()
            self._asked, self._counted_by = None, model
        fresh = [
            text
            for text in self._carried
            if text.key not in self._counts and len(text.text) <= COUNTED
        ]
        if fresh and self._asked is None:
            ask = self._chat.count([text.text for text in fresh])
            if ask is not None:
                self._asked = ask, [text.key for text in fresh]

    def counts_came(self, came: CountsCame) -> None:
        if self._asked is not None and came.ask == self._asked[0]:
            _, keys = self._asked
            # Where nobody can count, it is not asked again for the same texts.
            counts = came.tokens or [-1] * len(keys)
            self._counts.update(zip(keys, counts, strict=True))
            self._asked = None
            self.count()

    @property
    def carried(self) -> str:
        """What the message carries beside what is typed, and how long that is; empty where it
        carries nothing."""
        if not self._carried:
            return ""
        tokens, exact = 0, True
        for text in self._carried:
            count = self._counts.get(text.key, -1)
            exact = exact and count >= 0
            tokens += count if count >= 0 else _estimate(text.text)
        name = self._carried[0].name
        name = sanitise(name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}")
        names = f"{len(self._carried)} texts" if self._carried[1:] else name
        context = self._chat.info.context if self._chat.info is not None else 0
        too_long = context and tokens + self._chat.context_used > context
        size = f"{'' if exact else 'about '}{tokens:,} tokens"
        return f"{names}: {size}" + (f", too long for {context:,}" if too_long else "")

    # What is sent.

    def message(self, shown: str) -> str | None:
        """The message that is sent for what the prompt shows. None: it cannot be, and a line said
        why."""
        if self.editing.verbatim:
            return self._app.prompt.folds.expand(shown)
        try:
            composed = compose(shown, self._app.prompt.folds.expand)
        except AttachError as error:
            self._app.answer.tell(str(error), "warning")
            return None
        if composed.notes:
            self._app.answer.tell("\n".join(composed.notes), "info")
        return composed.text

    def choices(self, before: str) -> list[Choice]:
        """Files that could be meant by the mention that is being typed."""
        if self.editing.verbatim:
            return []
        return [
            Choice(offer.written, offer.path, offer.size, False, (offer.start, len(before)))
            for offer in offered(before)
        ]


def _estimate(text: str) -> int:
    """Four bytes are a token, more or less, in most languages and vocabularies."""
    return -(-len(text.encode("utf-8", "replace")) // 4)
