"""Writing in an editor of one's own: `$VISUAL`, `$EDITOR`, else one that is there.

    text = edited("what is typed so far")      # blocks until the editor ends
    run_editor(path)

The terminal is the editor's meanwhile: whoever calls this has left it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EngineError

_USUAL = ("nano", "vim", "vi")
_IN_MEMORY = "/dev/shm"


class EditorError(EngineError):
    """There is no editor, it failed, or what it left is no text. `str(error)` is one line."""


def edited(text: str, *, in_memory: bool = False) -> str:
    """What the editor makes of `text`. It lies in a file that its owner alone can read (0600), in a
    folder that is gone afterwards.

    Args:
        in_memory: nothing may reach a disk.

    Raises:
        EditorError: the text is as it was.
    """
    if in_memory and not os.access(_IN_MEMORY, os.W_OK):
        raise EditorError("An editor needs a file, and --private writes none.")
    before = text.encode("utf-8", "surrogatepass")
    place = _IN_MEMORY if in_memory else None
    try:
        with tempfile.TemporaryDirectory(prefix="chat-tui-", dir=place) as folder:
            path = Path(folder) / "message.md"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(before)
            run_editor(path)
            after = path.read_bytes()
    except OSError as error:
        raise EditorError(f"The editor's file is out of reach: {error.strerror}.") from error
    return text if after == before else _read(after, text)


def _read(data: bytes, before: str) -> str:
    from chat_tui.attach import AttachError, decoded

    try:
        text = decoded(data, "What the editor left").text
    except AttachError as error:
        raise EditorError(str(error)) from error
    # Most editors end every file with a newline.
    return text if before.endswith("\n") else text.removesuffix("\n")


def run_editor(path: Path) -> None:
    """Let the user edit a file.

    Raises:
        EditorError: there is no editor, or it says that it failed.
    """
    command = _command()
    try:
        with _left_to_the_editor():
            code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise EditorError(
            f"{command[0]} cannot be run ({error.strerror}): set EDITOR to your editor."
        ) from error
    if code:
        raise EditorError(f"{command[0]} ended with {code}: nothing was taken from it.")


def _command() -> list[str]:
    for name in ("VISUAL", "EDITOR"):
        try:
            if command := shlex.split(os.environ.get(name, "")):
                return command
        except ValueError as error:
            raise EditorError(f"{name} is no command: {error}.") from error
    found = next(filter(shutil.which, _USUAL), None)
    if found is None:
        raise EditorError("No editor was found: set EDITOR to yours.")
    return [found]


@contextmanager
def _left_to_the_editor() -> Iterator[None]:
    """Ctrl+C is typed to the editor, and meant for it alone."""
    # No SIG_IGN: the editor would inherit that.
    names = (getattr(signal, name, None) for name in ("SIGINT", "SIGQUIT"))
    before = {name: signal.signal(name, lambda *_: None) for name in names if name is not None}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
