"""A file that was not there before, readable by its owner alone.

    write_new(Path("talk.json"), text)

What exists is never written over: a conversation is not worth less than the other one.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import EngineError
from engine.paths import private_file


class NotWrittenError(EngineError):
    """Nothing was written. `str(error)` is one line."""


def write_new(path: Path, text: str) -> None:
    """Write `text`, in UTF-8, to a new file.

    Raises:
        NotWrittenError: it exists already, or the file system refuses.
    """
    made = False
    try:
        with open(path, "x", encoding="utf-8", opener=private_file) as file:
            made = True
            file.write(text)
    except FileExistsError:
        raise NotWrittenError(f"{path} exists already; nothing was written.") from None
    except (OSError, ValueError) as error:  # a path with a zero byte in it is a ValueError
        if made:  # half of it is no file that anything could be done with
            path.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NotWrittenError(f"{path} cannot be written: {reason}.") from error
