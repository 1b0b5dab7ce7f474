"""`chat-tui sessions`, `export` and `import`: saved conversations without the chat.

    chat-tui sessions list                newest first
    chat-tui sessions show 12             its messages and answers, as they were picked
    chat-tui sessions search "red fox"    titles, messages and answers
    chat-tui sessions rename 12 "Foxes"
    chat-tui sessions delete 12           asks once, or --yes
    chat-tui export 12 --format dpo -o pairs.jsonl
    chat-tui export --rated prompts.txt --format dpo
    chat-tui import session.json

Neither torch nor the screen's libraries are imported here.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chat_tui import completing
from chat_tui.rendering.sanitise import sanitise
from chat_tui.shared_options import Json

if TYPE_CHECKING:
    from chat_tui.store import Store, Summary

sessions = typer.Typer(
    name="sessions",
    help="List, show, search, rename and delete saved conversations.",
    invoke_without_command=True,
)


class Format(str, Enum):
    """What `export` writes; the formats themselves are in `chat_tui/export.py`."""

    md = "md"
    json = "json"
    jsonl = "jsonl"
    dpo = "dpo"
    kto = "kto"
    html = "html"


Number = Annotated[
    int,
    typer.Argument(
        help="As `sessions list` shows it.",
        metavar="SESSION",
        autocompletion=completing.sessions,
    ),
]


def _open() -> Store:
    from chat_tui.store import Store

    return Store.open()


@sessions.callback()
def list_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_sessions()


@sessions.command("list")
def list_sessions(as_json: Json = False) -> None:
    """All saved conversations, the one that was changed last first."""
    with _open() as store:
        _print(store.sessions(), as_json, "No conversation has been saved yet.")


@sessions.command("search")
def search_sessions(
    words: Annotated[list[str], typer.Argument(help="All of them have to be there.")],
    as_json: Json = False,
) -> None:
    """Those in whose title, messages or answers some words stand."""
    with _open() as store:
        _print(store.search(" ".join(words)), as_json, "Nothing was found.")


@sessions.command("show")
def show_session(number: Number, as_json: Json = False) -> None:
    """One conversation: what was said, and the answers that were picked."""
    from chat_tui.export import write

    with _open() as store:
        session = store.load(number)
        _write_out(write(session, "json" if as_json else "md"), None)


@sessions.command("rename")
def rename_session(
    number: Number, title: Annotated[str, typer.Argument(help="Any name.")], as_json: Json = False
) -> None:
    """Give a conversation another title."""
    with _open() as store:
        store.rename(number, title)
    _say({"id": number, "title": title}, f"{number} is now called {title}", as_json)


@sessions.command("delete")
def delete_session(
    number: Number,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a conversation for good."""
    with _open() as store:
        title = store.load(number).title
        if not yes:
            if not sys.stdin.isatty():
                raise typer.BadParameter("nobody is there to ask: give --yes to delete it.")
            print(f"Delete {number}, {sanitise(title)}, for good? [y/N] ", end="", file=sys.stderr)
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise typer.Exit(1)
        store.delete(number)
        store.purge([number])
    _say({"id": number, "deleted": True}, f"{number} is deleted.", as_json)


def export(
    number: Annotated[
        int | None,
        typer.Argument(
            help="As `sessions list` shows it.",
            metavar="[SESSION]",
            autocompletion=completing.sessions,
        ),
    ] = None,
    rated: Annotated[
        Path | None,
        typer.Option(help="What was said of this file's prompts, instead.", metavar="FILE"),
    ] = None,
    kind: Annotated[
        Format,
        typer.Option("--format", "-f", help="dpo and kto are TRL's conversational formats."),
    ] = Format.md,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file (default: stdout).")
    ] = None,
) -> None:
    """Write a saved conversation to a file, or to stdout."""
    from chat_tui.export import ROW_FORMATS, write

    if (number is None) is (rated is None):
        raise typer.BadParameter("name a session, or a file that was rated with --rated FILE.")
    with _open() as store:
        numbers = [number] if number is not None else store.rounds(rated or Path())
        if len(numbers) > 1 and kind.value not in ROW_FORMATS:
            named = ", ".join(map(str, numbers))
            raise typer.BadParameter(f"{rated} was rated in sessions {named}: name one of them.")
        text = "".join(write(store.load(number), kind.value) for number in numbers)
    _write_out(text, out)


def import_(
    file: Annotated[Path, typer.Argument(help="What `export --format json` wrote; - is stdin.")],
    as_json: Json = False,
) -> None:
    """Add a conversation that was exported as json to the saved ones."""
    from chat_tui.document import ImportFailedError, from_json
    from chat_tui.recording import save

    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise ImportFailedError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ImportFailedError(f"{file} is no text in UTF-8.") from None
    session = from_json(text)
    number = save(session)
    _say({"id": number, "title": session.title}, f"Session {number}: {session.title}", as_json)


def _write_out(text: str, out: Path | None) -> None:
    from chat_tui.new_file import write_new

    if out is None:
        # A terminal obeys what a model may have written; a file or a pipe gets it as it is.
        if sys.stdout.isatty():
            sys.stdout.write(sanitise(text))
        else:
            sys.stdout.buffer.write(text.encode("utf-8"))
    else:
        write_new(out, text)


def _say(document: dict[str, object], line: str, as_json: bool) -> None:
    print(json.dumps(document) if as_json else sanitise(" ".join(line.split())))


def _print(found: list[Summary], as_json: bool, nothing: str) -> None:
    if as_json:
        print(json.dumps({"sessions": [asdict(summary) for summary in found]}, indent=2))
        return
    if not found:
        print(nothing, file=sys.stderr)
    for summary in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.updated))
        turns = f"{summary.turns} turn{'s' * (summary.turns != 1)}"
        print(f"{summary.id:>4}  {when}  {turns:>9}  {sanitise(' '.join(summary.title.split()))}")
        if summary.found and summary.found != summary.title:
            print(f"{'':34}{sanitise(' '.join(summary.found.split()))}")
