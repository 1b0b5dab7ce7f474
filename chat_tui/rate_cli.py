"""`chat-tui rate FILE`: say of one prompt's answers after the other which is the best.

    chat-tui rate prompts.txt -n 4 -t 0.2,0.7,1.0,1.3
    chat-tui rate prompts.jsonl --blind

What a line of the file may be is in `prompts.py`; what can be said, in `keys.RATING`. It takes the
options of the chat that say what answers, and how.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from chat_tui.cli import attended, chat
from chat_tui.config import Config
from chat_tui.conversation import Conversation
from chat_tui.options import LOOK, look_of, settings_of
from chat_tui.prompts import PromptsError, read_prompts
from chat_tui.session import Session
from chat_tui.store import FILE_NAME, Store
from engine.paths import data_dir, state_dir

MAX_TOKENS = 512
"""Of an answer: the next prompt waits for one that never ends."""


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `settings_of` and `look_of` take, as the chat has them."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    taken = inspect.signature(settings_of).parameters
    options = inspect.signature(chat, eval_str=True).parameters.values()
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(option for option in own if option.kind is not option.VAR_KEYWORD),
            *(option for option in options if option.name in (*taken, *LOOK)),
        ]
    )
    return command


@_with_settings
def rate(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="One prompt per line, or JSON lines with prompt and system.", metavar="FILE"
        ),
    ],
    blind: Annotated[
        bool, typer.Option("--blind", help="Shuffle the answers, and hide what made them.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="From the start, as if none had been rated.")
    ] = False,
    **options: Any,
) -> None:
    """Show a file's prompts with N answers each, to pick the best with a key, and go on.

    The next prompts are answered while one is read.

    What is said is kept at once, and the next time goes on from there.

    `export` and `stats` take it with --rated FILE.

    Answers have 512 tokens at most, or --max-tokens.
    """
    config: Config = context.obj
    config.check()
    if options["max_tokens"] is None:
        options["max_tokens"] = MAX_TOKENS
    context.params.update(options := _also_before(context, options))
    settings = settings_of(**{name: options[name] for name in options if name not in LOOK})
    if len(settings.setups()) < 2:
        raise typer.BadParameter("there is nothing to choose from one answer: -n 2, or more.")
    prompts = read_prompts(file)
    if len(settings.systems) > 1 and any(prompt.system is not None for prompt in prompts):
        raise PromptsError(
            f"{file} has system texts of its own, and --system compares several: take either."
        )
    if not attended():
        raise typer.BadParameter("rating needs a terminal.")
    from chat_tui.keymap import keys_of  # with Textual, which --help does not wait for
    from chat_tui.look import settled

    keys = keys_of(config)
    look = settled(look_of(context))
    session = _session(file, again)

    from chat_tui.backends.made import begun

    backend = begun(settings)
    gc.disable()  # until the first frame is there, as in the chat
    from chat_tui.rate_app import run

    code = run(
        settings,
        backend,
        prompts,
        session,
        file=str(file),
        keep=data_dir() / FILE_NAME,
        state=state_dir(),
        blind=blind,
        keys=keys,
        look=look,
    )
    raise typer.Exit(code)


def _also_before(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """With what was said before `rate` on the command line, where it was not said behind it."""
    before = context.parent
    assert before is not None

    def given(context: Any, name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    return {
        name: before.params[name] if given(before, name) and not given(context, name) else value
        for name, value in options.items()
    }


def _session(file: Path, again: bool) -> Session:
    """Where the file was left, or the beginning."""
    # Not closed: a session's scores are read when they are looked at.
    store = Store.open()
    rounds = store.rated(file)
    if rounds and not again:
        return store.load(rounds[-1])
    return Session(
        title=f"Rating {file.name}", rated=str(file.resolve()), conversation=Conversation()
    )
