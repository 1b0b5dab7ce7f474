"""Files that a message mentions: `@path` in it puts the file's text behind what is said.

    found = mentions("What does @notes.txt say?")    # [Mention(10, 20, "notes.txt")]
    composed = compose("What does @notes.txt say?")  # raises AttachError
    composed.text
        What does notes.txt say?

        --- notes.txt ---
        ...
        --- end of notes.txt ---

`@` begins a mention behind a space, a bracket, or nothing. The path is relative to the working
folder, `~` is the home folder, and one with spaces stands in quotes, `@"two words.txt"`, or has a
backslash before each space, as terminals write a file that is dropped on them. What names no file
is text: an address, a decorator, a handle.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from chat_tui.frames import framed
from chat_tui.path_choices import PathChoice, paths

LARGEST = 4_000_000
"""Bytes of a file that is still attached: about a million tokens."""

_MENTION = re.compile(r"""(?<![^\s([{<])@(?:"([^"\n]+)"|'([^'\n]+)'|((?:\\ |[^\s"'])+))""")
_TYPED = re.compile(r"""(?<![^\s([{<])@(?:"([^"\n]*)|'([^'\n]*)|((?:\\ |[^\s"'])*))\Z""")
_TRAILING = ".,;:!?)]}>"
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # not \t \n \v \f \r, and not ESC
_MARKED = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class AttachError(Exception):
    """A file cannot be attached. `str(error)` is one line that says why."""


class Mention(NamedTuple):
    """The characters `text[start:end]`, and the path as it was typed."""

    start: int
    end: int
    path: str


class Text(NamedTuple):
    """What a file says. `note` tells what had to be assumed; empty where nothing had."""

    text: str
    note: str = ""


class Composed(NamedTuple):
    """A message with what it mentions; `notes` about it, a line each."""

    text: str
    notes: tuple[str, ...] = ()


def mentions(text: str) -> list[Mention]:
    """The files that a text mentions: whatever stands behind an `@` and is there."""
    return list(_mentions(text)) if "@" in text else []


def _mentions(text: str) -> Iterator[Mention]:
    for match in _MENTION.finditer(text):
        double, single, bare = match.groups()
        path, end = double or single or bare.replace("\\ ", " "), match.end()
        if bare:
            # A full stop may end the path or the sentence.
            while not _is_there(path) and path[-1:] and path[-1] in _TRAILING:
                path, end = path[:-1], end - 1
        if path and _is_there(path):
            yield Mention(match.start(), end, path)


def _is_there(path: str) -> bool:
    try:
        return not stat.S_ISDIR(os.stat(os.path.expanduser(path)).st_mode)
    except (OSError, ValueError):
        return False


def compose(shown: str, expand: Callable[[str], str] = str) -> Composed:
    """The message that is sent for what the prompt shows. `expand` puts back what is folded there:
    nothing in that is a mention.

    Raises:
        AttachError: a file that it mentions cannot be attached.
    """
    said, at = "", 0
    files: dict[str, Text] = {}
    for start, end, path in mentions(shown):
        said += shown[at:start] + path
        at = end
        if path not in files:
            files[path] = read(path)
    parts = [expand(said + shown[at:])]
    parts += [framed(path, file.text) for path, file in files.items()]
    return Composed("\n\n".join(parts), tuple(file.note for file in files.values() if file.note))


def read(path: str) -> Text:
    """The text of a file.

    Raises:
        AttachError: it is no file, cannot be read, is too large or no text.
    """
    try:
        # Not blocking: a pipe that nobody writes to would be waited for, before it is looked at.
        with open(
            os.path.expanduser(path), "rb", opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise AttachError(f"{path} is no file with a text in it.")
            if status.st_size > LARGEST:
                raise AttachError(
                    f"{path} has {status.st_size / 1e6:,.0f} MB; up to {LARGEST / 1e6:.0f} MB can "
                    "be attached."
                )
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise AttachError(f"{path} cannot be read: {error.strerror or error}.") from error
    return decoded(data, path)


def decoded(data: bytes, name: str) -> Text:
    """Bytes as text: UTF-8, what a byte order mark says, else Windows-1252, and then `note` says
    so.

    Raises:
        AttachError: they are no text.
    """
    marked = next((encoding for mark, encoding in _MARKED if data.startswith(mark)), "utf-8")
    note = ""
    try:
        text = data.decode(marked)
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
        note = f"{name} is not UTF-8: it was read as Windows-1252."
    if "\x00" in text or (note and _CONTROLS.search(text)):
        raise AttachError(f"{name} is not a text file.")
    return Text(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), note)


# While it is being typed.


def offered(before: str) -> list[Offer]:
    """What the mention could be that the text before the cursor ends with."""
    match = _TYPED.search(before, before.rfind("\n") + 1) if "@" in before else None
    if match is None:
        return []
    double, single, bare = match.groups()
    quote = '"' if double is not None else "'" if single is not None else ""
    path = double or single or (bare or "").replace("\\ ", " ")
    return [
        Offer(match.start(), _written(choice, quote), choice.text, _size(choice))
        for choice in paths(path)
    ]


class Offer(NamedTuple):
    """`written` in the place of what stands from `start` on; `path` and `size` in words."""

    start: int
    written: str
    path: str
    size: str


def _written(choice: PathChoice, quote: str) -> str:
    if re.search(r"[\s\"'\\]", choice.text):
        quote = quote or ("'" if '"' in choice.text else '"')
    # More of a folder's path is to come.
    return f"@{quote}{choice.text}" + ("" if choice.is_folder else f"{quote} ")


def _size(choice: PathChoice) -> str:
    if choice.is_folder:
        return ""
    try:
        size = os.path.getsize(os.path.expanduser(choice.text))
    except OSError:
        return ""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{max(size / 1e3, 0.1):,.1f} kB"
