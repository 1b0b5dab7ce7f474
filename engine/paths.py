"""Where this program keeps its files: the XDG folders, or all four under `CHAT_TUI_HOME`.

    config_dir()   settings            data_dir()    conversations
    cache_dir()    models, converted   state_dir()   logs, input history

Each call makes the folder if it is missing, for its owner alone (0700). With `CHAT_TUI_HOME=/home`
set they are `/home/config`, `/home/data` and so on. Cheap to import.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from engine.errors import EngineError

_APP = "chat-tui"


def config_path() -> Path:
    """Where `config_dir` is or would be; makes nothing."""
    return _under_home("config") or platformdirs.user_config_path(_APP, appauthor=False)


def config_dir() -> Path:
    """What the user wrote or chose."""
    return private_folder(config_path())


def data_dir() -> Path:
    """What must not be lost: conversations."""
    return private_folder(_under_home("data") or platformdirs.user_data_path(_APP, appauthor=False))


def cache_dir() -> Path:
    """What can be fetched or made again: models and what was converted from them."""
    return private_folder(
        _under_home("cache") or platformdirs.user_cache_path(_APP, appauthor=False)
    )


def state_dir() -> Path:
    """What is kept between runs but is no loss: logs, input history."""
    return private_folder(
        _under_home("state") or platformdirs.user_state_path(_APP, appauthor=False)
    )


def _under_home(kind: str) -> Path | None:
    home = os.environ.get("CHAT_TUI_HOME")
    # Absolute, because the engine's process may have another working directory than the screen's.
    return Path(home).expanduser().absolute() / kind if home else None


def private_file(path: str, flags: int) -> int:
    """For `open(..., opener=private_file)`: a file that is made is its owner's alone."""
    return os.open(path, flags, 0o600)


def private_folder(folder: Path) -> Path:
    """Make `folder` and its missing parents, readable by their owner alone.

    Raises:
        EngineError: it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    try:
        # One by one: mkdir(parents=True) gives the mode to the last one only.
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(
            f"The folder {folder} cannot be made ({error.strerror}): "
            "set CHAT_TUI_HOME to a folder that can be written."
        ) from error
    return folder
