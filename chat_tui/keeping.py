"""The App and its saved sessions: recording the one that runs, opening another, giving one away.

`Keeping(app, chat, path)` is asked by the App: `tick` with every drain, `pick` for the list of
sessions, `export` for a file, `close` at the end. With a path of None nothing is kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from chat_tui.chat import Chat
from chat_tui.new_file import NotWrittenError, write_new
from chat_tui.recording import Recorder
from chat_tui.session import Session, title_of
from chat_tui.store import Store, StoreError

if TYPE_CHECKING:
    from chat_tui.app import ChatApp

OFF = "Nothing is kept of this chat: it was started with --private."


class Keeping:
    """Attributes:
    path: of the database; None where nothing is kept.
    """

    def __init__(self, app: ChatApp, chat: Chat, path: Path | None) -> None:
        self.path = path
        self._app, self._chat = app, chat
        self._recorder = Recorder(path) if path is not None else None
        self._store: Store | None = None  # open while a session's scores are still in it
        self._deleted: list[int] = []

    @property
    def session(self) -> Session | None:
        """What is being recorded."""
        return self._recorder.session if self._recorder is not None else None

    def tick(self) -> None:
        """Record what is new; say where that is not possible."""
        if self._recorder is None:
            return
        self._recorder.tick(self._chat)
        if trouble := self._recorder.trouble():
            self._app.notice(trouble)

    def flush(self) -> None:
        """Record what is new now, and wait for it."""
        if self._recorder is not None:
            self._recorder.flush(self._chat)

    def open(self, session: Session) -> None:
        """Go on with a session that was loaded."""
        if self._recorder is not None:
            # What runs is ended first, so that the last of it is recorded where it belongs.
            self._chat.leave()
            self._recorder.watch(session)
        self._app.act(lambda: self._chat.open(session.conversation, session.shown))

    def pick(self) -> None:
        """Show the list of sessions, to open one of them."""
        from chat_tui.screens.sessions import SessionsScreen

        store = self.store()
        if store is None:
            return
        self.flush()
        current = self.session.id if self.session is not None else None

        def chosen(number: int | None) -> None:
            if number is not None and number != current:
                self.load(number)

        self._app.push_screen(SessionsScreen(store, current, self._deleted), chosen)

    def rename(self, title: str) -> bool:
        """`/rename TITLE`: this conversation. False: it was not."""
        if self._recorder is None:
            self._app.answer.tell(OFF, "info")
            return False
        self.flush()
        title = " ".join(title.split())
        session = self._recorder.session
        try:
            if session.id is not None:
                with Store.open(self.path) as store:
                    store.rename(session.id, title)
        except StoreError as error:
            self._app.answer.tell(str(error), "warning")
            return False
        session.title = title
        self._app.answer.tell(f"This conversation is now called {title}", "info")
        return True

    def renamed(self, number: int, title: str) -> None:
        """It was, in the list of sessions."""
        if self.session is not None and self.session.id == number:
            self.session.title = title

    def load(self, number: int) -> None:
        store = self.store()
        if store is None:
            return
        try:
            self.open(store.load(number))
        except StoreError as error:
            self._app.answer.tell(str(error), "warning")

    def store(self) -> Store | None:
        """The database, to read in; says why where there is none."""
        if self.path is None:
            self._app.answer.tell(OFF, "info")
        elif self._store is None:
            try:
                self._store = Store.open(self.path)
            except StoreError as error:
                self._app.answer.tell(str(error), "warning")
        return self._store

    def export(self, argument: str) -> bool:
        """`/export FORMAT PATH`: write this conversation to a new file. False: it was not."""
        from chat_tui.export import FORMATS, write

        kind, _, name = argument.partition(" ")
        if kind not in FORMATS or not name.strip():
            self._app.answer.tell(
                f"/export takes a format ({', '.join(FORMATS)}) and a path.", "warning"
            )
            return False
        path = Path(os.path.expanduser(name.strip()))
        try:
            write_new(path, write(self._current(), kind))
        except NotWrittenError as error:
            self._app.answer.tell(str(error), "warning")
            return False
        self._app.answer.tell(f"Written to {path}.", "info")
        return True

    def _current(self) -> Session:
        """The conversation on the screen, as it stands now."""
        chat = self._chat
        known = self.session
        turns = chat.conversation.tree.turns
        first = next(iter(turns.values()), None)
        return Session(
            title=(known.title if known is not None else "")
            or title_of(first.user if first is not None else ""),
            created=known.created if known is not None else 0.0,
            updated=known.updated if known is not None else 0.0,
            conversation=chat.conversation,
            shown=chat.turn.turn if chat.turn is not None else None,
        )

    def close(self) -> None:
        """Write what is left; what was deleted here is now gone for good."""
        if self._recorder is not None:
            self._chat.leave()
            self._recorder.close(self._chat)
        try:
            if self._deleted and self._store is not None:
                self._store.purge(self._deleted)
        except StoreError:
            pass  # it stays out of sight, and goes with a later program
        if self._store is not None:
            self._store.close()
