"""The command line: `chat-tui` starts the chat; `chat-tui -p TEXT`, or a pipe, answers once and
ends.

Exit codes: 0 done; 1 it failed (one line on stderr); 2 wrong usage; 130 interrupted. The engine's
process is started before the screen's libraries are imported, so that both load side by side.
"""

from __future__ import annotations

import gc
import io
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from chat_tui import __version__, completing
from chat_tui.arguments import show_temperatures, show_top_ks
from chat_tui.command_table import Commands
from chat_tui.config import Config, read
from chat_tui.options import DEFAULTS, look_of, settings_of
from chat_tui.resuming import CHOOSE, as_before, saved, spelled_out
from chat_tui.served import is_served
from chat_tui.settings import DEFAULT_MODEL, MAX_SAMPLES
from chat_tui.shared_options import Assume, Device, DType, KeyEnv

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="chat-tui",
    cls=Commands,
    help="Chat with small language models: ask once, see N answers side by side, pick one, go on.",
    epilog="In a pipe, or with -p, it answers once: text to stdout, everything else to stderr. "
    "Each option can be in a file as well (chat-tui config edit), and in the environment: "
    "--max-tokens is max-tokens there and CHAT_TUI_MAX_TOKENS here. The command line wins over the "
    "environment, the environment over the file.",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)

ONCE_MAX_TOKENS = 1024
"""Small models can repeat themselves for ever: a person sees it and stops them, a script waits."""

_USAGE_ERROR = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""click's UsageError; which click, depends on the version of typer."""


def main() -> None:
    """Entry point of the `chat-tui` command."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal or a locale has no letters for is spelled out: nothing is lost.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code, problem = outcome(sys.argv[1:])
    if problem:
        fail(problem, code)
    raise SystemExit(code)


def outcome(arguments: list[str]) -> tuple[int, str]:
    """Do what the arguments say: the exit code, and what is wrong, if anything is."""
    from engine.errors import EngineError

    try:
        command = cast(TyperGroup, get_command(app))
        config = read(command)
        code = command.main(
            spelled_out(arguments),
            prog_name="chat-tui",
            standalone_mode=False,
            default_map={**config.values, "rate": config.values},
            obj=config,
        )
    except _USAGE_ERROR as error:
        return 2, f"{error.format_message()} (chat-tui --help lists what there is)"
    except EngineError as error:
        return 1, str(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130, ""
    return code or 0, ""


def fail(message: str, code: int = 1) -> NoReturn:
    """Say on stderr, in one line, what is wrong, and end with `code`."""
    print(f"chat-tui: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"chat-tui {__version__}")
        raise typer.Exit


@app.callback()
def chat(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Answer TEXT once and end.", metavar="TEXT")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With -p or a pipe: one JSON document on stdout.")
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A name (chat-tui models list), a file or folder, or org/name on the hub; "
            "NAME@URL is a server's, NAME@local this machine's. Several answer side by side. "
            f"(default: {DEFAULT_MODEL}; of a server, its first)",
            metavar="NAME",
            autocompletion=completing.models,
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="An OpenAI-compatible server that answers: http://HOST:PORT. May be repeated.",
            metavar="URL",
        ),
    ] = None,
    key_env: KeyEnv = DEFAULTS.key_env,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            "-n",
            min=1,
            max=MAX_SAMPLES,
            help="Answers per message, of each model and system text, with the same seeds "
            "(default: as many as -t or -k; else 2, or 1 of each of several; once: 1).",
        ),
    ] = None,
    temperature: Annotated[
        str,
        typer.Option(
            "--temperature", "-t", help="0 is greedy; several, one per answer: 0.2,0.7,1.0"
        ),
    ] = show_temperatures(DEFAULTS.temperatures),
    top_k: Annotated[
        str,
        typer.Option(
            "--top-k",
            "-k",
            help="Sample among the K likeliest, 0: among all; several, one per answer: 1,20,200",
        ),
    ] = show_top_ks(DEFAULTS.top_ks),
    max_tokens: Annotated[
        int | None,
        typer.Option(min=0, help="New tokens per answer (default: what fits; once: 1024)."),
    ] = DEFAULTS.max_tokens,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat an answer (default: a fresh one per message).")
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(help="The system text; each of several is answered.", metavar="TEXT"),
    ] = None,
    tools: Annotated[bool, typer.Option("--tools/--no-tools", help="Offer the calculator.")] = True,
    reuse_cache: Annotated[
        bool, typer.Option("--reuse-cache", help="Prefill only what is new in each turn.")
    ] = False,
    device: Device = None,
    dtype: DType = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of each model, on a CPU (default: all cores, shared by the models)."
        ),
    ] = None,
    assume: Assume = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with a saved session; without ID, choose one.",
            metavar="[ID]",
            autocompletion=completing.sessions,
        ),
    ] = None,
    continue_: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last session.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Write nothing of this chat to the disk.")
    ] = False,
    theme: Annotated[
        str,
        typer.Option(
            help="Colours (chat-tui config themes); else as chosen last.",
            metavar="NAME",
            autocompletion=completing.themes,
        ),
    ] = "",
    ascii_: Annotated[
        bool | None,
        typer.Option(
            "--ascii/--no-ascii",
            help="Draw in ASCII (default: where the locale is not UTF-8).",
            show_default=False,
        ),
    ] = None,
    still: Annotated[
        bool, typer.Option("--reduced-motion", help="Nothing moves by itself.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is not None:
        gc.enable()
        return
    config: Config = context.obj
    config.check()
    usual = None
    if config.source(context, "samples") == "file":
        usual, samples = samples, None
    once = prompt is not None or as_json or not attended()
    if once:
        gc.enable()
        # Several answers are for the screen: a script that does not ask for them wants one.
        usual = 1
        model = config.first(context, "model", model)
        server = config.first(context, "server", server)
        system = config.first(context, "system", system)
        temperature = config.first(context, "temperature", temperature)
        top_k = config.first(context, "top_k", top_k)
    settings = settings_of(
        model=model,
        server=server,
        key_env=key_env,
        samples=samples,
        temperature=temperature,
        top_k=top_k,
        max_tokens=max_tokens if max_tokens is not None or not once else ONCE_MAX_TOKENS,
        seed=seed,
        system=system,
        tools=tools,
        reuse_cache=reuse_cache,
        device=device,
        dtype=dtype,
        threads=threads,
        assume=assume,
        usual=usual,
        usual_server=config.source(context, "server") != "command line",
    )
    if once:
        from chat_tui.oneshot import answer_once

        if prompt is None and sys.stdin.isatty():
            raise typer.BadParameter("nothing to ask: give -p TEXT, or pipe the text in.")
        raise typer.Exit(answer_once(prompt, settings, as_json=as_json))
    choose = resume == CHOOSE
    session = None if choose else saved(resume, continue_)
    if session is not None and config.source(context, "model") != "command line":
        settings = as_before(settings, session, samples=samples)
    from chat_tui.backends.made import begun

    backend = begun(settings)

    # Nothing that is imported and mounted becomes garbage; looking for some costs
    # some 45 of 430 ms of imports. The app enables it again.
    gc.disable()
    from chat_tui.start import run

    code = run(
        settings,
        backend,
        private=private,
        session=session,
        choose=choose,
        config=config,
        look=look_of(context),
    )
    raise typer.Exit(code)


def attended() -> bool:
    """Somebody sees what is shown, and has keys."""
    return is_served() or (sys.stdin.isatty() and sys.stdout.isatty())
