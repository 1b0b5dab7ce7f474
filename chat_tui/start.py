"""The chat from its first frame to its end: what it keeps and where, which keys and look it has.

`run(settings, backend)` is what the command line calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chat_tui.app import ChatApp
from chat_tui.backends.base import Backend
from chat_tui.keys import UNCHANGED
from chat_tui.look import PLAIN, Look, settled
from chat_tui.session import Session
from chat_tui.settings import Settings
from chat_tui.terminal import install

if TYPE_CHECKING:
    from chat_tui.config import Config


def run(
    settings: Settings,
    backend: Backend,
    *,
    private: bool = False,
    session: Session | None = None,
    choose: bool = False,
    config: Config | None = None,
    look: Look = PLAIN,
) -> int:
    """Run the program until the user leaves; returns the exit code.

    The load of the first model has been sent to `backend` already: the engine starts while this
    module is being imported. All backends are closed at the end.

    Args:
        private: write nothing of what is typed and answered to the disk.
        session: a saved conversation to go on with.
        choose: begin with the list of saved conversations.
        config: says which keys the user changed.
        look: as the command line says.

    Raises:
        ConfigError: there are no such keys, or there is no such theme.
    """
    from chat_tui.store import FILE_NAME
    from engine.errors import EngineError
    from engine.paths import data_dir, state_dir

    install()
    state = keep = None
    trouble = ""
    if not private:
        try:
            state, keep = state_dir(), data_dir() / FILE_NAME
        except EngineError as error:
            trouble = f"The conversation is not being saved: {error}"
    keys = UNCHANGED
    try:
        look = settled(look)
        if config is not None and config.keys:
            from chat_tui.keymap import keys_of

            keys = keys_of(config)
    except EngineError:
        backend.close()
        raise
    app = ChatApp(
        settings,
        backend,
        load_sent=True,
        state=state,
        keep=keep,
        session=session,
        choose=choose,
        trouble=trouble,
        keys=keys,
        look=look,
    )
    try:
        app.run()
    finally:
        app.composing.drafts.close()
        app.keeping.close()
        app.chat.close()
    return app.return_code or 0
