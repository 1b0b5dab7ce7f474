"""`chat-tui bench`: how fast the engine and the screen are on this machine.

Tables with bars on stdout, or with `--json` one document (its fields: `engine.bench.report`);
everything else goes to stderr. `engine.bench` measures the engine, `chat_tui.screen_bench` the
screen. Nothing here imports torch or rich before it is needed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chat_tui.settings import DEFAULT_MODEL, Settings, Source
from chat_tui.shared_options import Device, DType

if TYPE_CHECKING:  # every command imports this module, one of them needs these
    from engine.bench.plan import Plan
    from engine.bench.report import Report

Suite = Literal["cpu", "gpu", "screen"]


def bench(
    model: Annotated[str, typer.Option("--model", "-m", help="As chat-tui takes it.")] = (
        DEFAULT_MODEL
    ),
    suite: Annotated[
        Suite,
        typer.Option(
            help="cpu: the model, on whatever --device. gpu: a 561M nanochat with random weights,"
            " beside nanochat's own loop; with --device cpu a dry run. screen: --screen alone."
        ),
    ] = "cpu",
    screen: Annotated[
        bool, typer.Option("--screen", help="Also the screen, painting in a pseudo-terminal.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="gpu: first whether it computes what it should; else exit 1."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Half a minute instead of some.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, no tables.")
    ] = False,
    prompt_tokens: Annotated[
        str | None, typer.Option(help="Prompt lengths.", show_default="512,2048", metavar="N,N...")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Rows of a decode.", show_default="1,8", metavar="N,N..."),
    ] = None,
    decode_tokens: Annotated[
        int | None, typer.Option(min=1, help="Steps per decode.", show_default="64")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Rounds over all cases.", show_default="5")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(min=0, help="No round begins after SECONDS.", show_default="300"),
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(min=0, help="Of a chat with and without its cache.", show_default="12"),
    ] = None,
    device: Device = None,
    dtype: DType = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the engine, on a CPU.")] = None,
) -> None:
    """Measure speed: the engine against this machine's ceilings, and the screen."""
    if check and suite != "gpu":
        raise typer.BadParameter("--check belongs to --suite gpu.")
    dry = device is not None and not device.startswith("cuda")
    plan = _plan(suite, quick, dry, prompt_tokens, rows, decode_tokens, repeats, limit, turns)
    settings = Settings(models=(Source(model),), device=device, dtype=dtype, threads=threads)
    screen = screen or suite == "screen"
    report = _measure(suite, settings, plan, screen=screen, quick=quick, check=check)
    if as_json:
        print(json.dumps(report.document(), indent=2))
    else:
        from chat_tui.bench_tables import show

        show(report)
    if not all(one.passed for one in report.checks):
        raise typer.Exit(1)


def _plan(
    suite: Suite,
    quick: bool,
    dry: bool,
    prompt_tokens: str | None,
    rows: str | None,
    decode_tokens: int | None,
    repeats: int | None,
    limit: float | None,
    turns: int | None,
) -> Plan:
    """The suite's plan, with what was asked for put in."""
    from engine.bench.plan import GPU_DRY_RUN, GPU_PLAN, QUICK, Plan

    plan = QUICK if quick else Plan()
    if suite == "gpu":
        plan = GPU_DRY_RUN if dry else GPU_PLAN
        if quick and not dry:
            plan = replace(plan, decode_tokens=64, repeats=3, turns=4)
    given: dict[str, object] = {
        **_longest_with("prompt_tokens", "shared_prompt", prompt_tokens),
        **_longest_with("rows", "shared_rows", rows),
        "decode_tokens": decode_tokens,
        "repeats": repeats,
        "limit_s": limit,
        "turns": turns,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(plan, **chosen)  # type: ignore[arg-type]


def _longest_with(name: str, shared: str, text: str | None) -> dict[str, object]:
    """The shared prefill is measured at the largest of what was asked for."""
    if text is None:
        return {}
    numbers = _numbers(text)
    return {name: numbers, shared: max(numbers)}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = (0,)
    if min(values) < 1:
        raise typer.BadParameter(f"{text!r} is not a number from 1 up, or several as in 1,8.")
    return values


def _measure(
    suite: Suite, settings: Settings, plan: Plan, *, screen: bool, quick: bool, check: bool
) -> Report:
    from engine.bench.report import Report

    report = Report()
    with _Progress() as progress:
        if screen:
            # First: the engine's process must not share memory and cores with a second engine.
            from chat_tui.screen_bench import measure

            progress.line(f"The screen: some {40 if quick else 120} s.")
            report = replace(report, screen=measure(settings, quick=quick, tell=progress.now))
        if suite == "screen":
            return report
        if suite == "gpu":
            engine = _gpu(settings, plan, progress, check=check)
        else:
            engine = _cpu(settings, plan, progress)
        return replace(engine, screen=report.screen)


def _cpu(settings: Settings, plan: Plan, progress: _Progress) -> Report:
    from engine import threads
    from engine.loading import catalog

    def downloading(what: str, done: int, total: int) -> None:
        progress.now(f"{what} {done / total:.0%}" if total else what)

    name = settings.models[0].name
    catalog.resolve(name, downloading)  # may fail, and need not wait for torch to do so
    progress.now(f"Loading {name}.")
    threads.settle(settings.threads)
    from engine.bench.suite import Suite as Measurement
    from engine.load import load_model

    loaded = load_model(name, device=settings.device, dtype=settings.dtype)
    return Measurement(loaded, plan, tell=progress.line, progress=progress.now).run()


def _gpu(settings: Settings, plan: Plan, progress: _Progress, *, check: bool) -> Report:
    from engine import threads

    threads.settle(settings.threads)
    from engine.bench.gpu import measure

    return measure(
        settings.device, plan=plan, check=check, tell=progress.line, progress=progress.now
    )


class _Progress:
    """On stderr: lines that stay, and on a terminal one below them that says what happens now."""

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._clear()

    def line(self, text: str) -> None:
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def now(self, text: str) -> None:
        if sys.stderr.isatty():
            self._clear()
            sys.stderr.write(text[:78])
            sys.stderr.flush()

    def _clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
