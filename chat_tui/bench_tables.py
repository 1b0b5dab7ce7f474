"""What a benchmark found, for people: tables with bars.

    show(report)

Bars compare the rows of one table; the longest is the largest value in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.bench.report import KVUse, Report, ScreenLoad, SharedPrefill

BAR_CELLS = 20
NARROW = 12
"""Cells of a bar where two stand side by side."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bar(share: float, style: str = "cyan", cells: int = BAR_CELLS) -> Text:
    """A bar of `share` (0 to 1) of `cells`, to an eighth of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * cells * 8)
    full, part = divmod(eighths, 8)
    return Text("█" * full + (_EIGHTHS[part] if part else ""), style=style)


def si(value: float, unit: str) -> str:
    """Three digits and a prefix: 31500000000, "B/s" -> "31.5 GB/s"."""
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{_three(value / size)} {prefix}{unit}"
    return f"{_three(value)} {unit}"


def seconds(value: float) -> str:
    """ "1.25 s", "17.3 ms", "850 us"."""
    if value >= 1:
        return f"{_three(value)} s"
    return f"{_three(value * 1e3)} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def show(report: Report, console: Console | None = None) -> None:
    """Print everything that `report` has."""
    console = console or Console(highlight=False)
    for part in (
        _checks(report),
        _machine(report),
        _goals(report),
        _prefill(report),
        _decode(report),
        _kv(report),
        _shared(report),
        _conversation(report),
        _kernels(report),
        _screen(report),
    ):
        if part is not None:
            console.print(part)
            console.print()


def _table(title: str, *columns: str) -> Table:
    """Numbers right, bars (columns without a heading) and words (the last column) left."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for heading in columns:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    return table


def _machine(report: Report) -> RenderableType | None:
    machine, model = report.machine, report.model
    if machine is None or model is None:
        return None
    threads = f", {machine.threads} of {machine.cores} cores" if machine.device == "cpu" else ""
    backend = f" ({model.backend_note})" if model.backend_note else ""
    return Group(
        Text(f"{machine.processor}{threads}, torch {machine.torch}", style="bold"),
        Text(
            f"copies {si(machine.copy_bytes_per_s, 'B/s')} (read and written),"
            f" reads {si(machine.read_bytes_per_s, 'B/s')}"
        ),
        Text(f"multiplies {si(machine.matmul_flops_per_s, 'FLOP/s')} in {machine.dtype}"),
        Text(f"{model.name}, {si(model.parameters, '')} parameters, {model.dtype}", style="bold"),
        Text(
            f"reads {si(model.weight_bytes, 'B')} of weights a step,"
            f" keeps {si(model.kv_bytes_per_token, 'B')} of keys and values a token"
        ),
        Text(f"attention: {model.backend}{backend}"),
        Text(f"steps: {_STEPS[model.decoding]}"),
        Text(f"Medians over {machine.rounds} round{'s' * (machine.rounds != 1)}.", style="dim"),
    )


_STEPS = {
    "eager": "one after the other",
    "pipelined": "launched ahead of the host",
    "graphs": "launched ahead of the host, as CUDA graphs",
}


def _checks(report: Report) -> RenderableType | None:
    if not report.checks:
        return None
    failed = [check for check in report.checks if not check.passed]
    passed = len(report.checks) - len(failed)
    lines = [Text(f"{passed} of {len(report.checks)} checks passed", style="bold")]
    lines += [Text(f"FAILED: {one.what}: {one.detail}", style="red") for one in failed]
    return Group(*lines)


def _goals(report: Report) -> Table | None:
    if not report.goals:
        return None
    table = _table("Goals, on an H200", "", "is", "goal", "")
    for goal in report.goals:
        limit = f"{'at most' if goal.at_most else 'at least'} {goal.goal:g}"
        verdict = Text("met", style="green") if goal.met else Text("missed", style="red")
        table.add_row(Text(goal.what), f"{goal.value:.2f}", limit, verdict)
    return table


def _kernels(report: Report) -> Table | None:
    if not report.kernels:
        return None
    total = sum(kernel.seconds for kernel in report.kernels)
    runs = sum(kernel.runs for kernel in report.kernels)
    title = f"A step of 1 row: {runs:.0f} kernels, {seconds(total)}"
    table = _table(title, "runs", "time", "", "")
    for kernel in report.kernels:
        table.add_row(
            f"{kernel.runs:.0f}",
            seconds(kernel.seconds),
            bar(kernel.seconds / total if total else 0.0, cells=NARROW),
            Text(kernel.name[:40]),
        )
    return table


def _prefill(report: Report) -> Table | None:
    if not report.prefill:
        return None
    table = _table("Prefill: a prompt until its first token", "prompt", "TTFT", "tok/s", "", "MFU")
    most = max(row.tokens_per_s for row in report.prefill)
    for row in report.prefill:
        table.add_row(
            f"{row.prompt_tokens:,}",
            seconds(row.seconds),
            f"{row.tokens_per_s:,.0f}",
            bar(row.tokens_per_s / most),
            f"{row.mfu:.0%}",
        )
    return table


def _decode(report: Report) -> Table | None:
    if not report.decode:
        return None
    columns = ["rows", "prompt", "TPOT", "p95", "tok/s", "", "MBU"]
    title = "Decode: steps after the prompt"
    if report.eager:
        columns += ["eager", "times"]
        title += "; eager: nanochat's own loop on the same weights"
    table = _table(title, *columns)
    most = max(row.tokens_per_s for row in report.decode)
    eager = {(row.rows, row.prompt_tokens): row.tokens_per_s for row in report.eager}
    for row in report.decode:
        cells: list[RenderableType] = [
            str(row.rows),
            f"{row.prompt_tokens:,}",
            seconds(row.tpot_median_s),
            seconds(row.tpot_p95_s),
            _rate(row.tokens_per_s),
            bar(row.tokens_per_s / most, cells=NARROW - 4 if eager else BAR_CELLS),
            f"{row.mbu:.0%}",
        ]
        other = eager.get((row.rows, row.prompt_tokens))
        if other is not None:
            cells += [_rate(other), f"{row.tokens_per_s / other:.2f} x"]
        table.add_row(*cells)
    return table


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.1f}"


def _kv(report: Report) -> Table | None:
    if report.model is None or not report.model.kv:
        return None
    title = "Keys and values: held, read by a step, and if every row had a copy"
    table = _table(title, "rows", "prompt", "held", "read", "copied", "")
    most = max(use.copied_read_bytes_per_step for use in report.model.kv)
    for use in report.model.kv:
        table.add_row(
            str(use.rows),
            f"{use.prompt_tokens:,}",
            si(use.stored_bytes, "B"),
            si(use.read_bytes_per_step, "B"),
            si(use.copied_read_bytes_per_step, "B"),
            _kv_bar(use, most),
        )
    return table


def _kv_bar(use: KVUse, most: int) -> Text:
    """What is read, and behind it what sharing saves."""
    read = bar(use.read_bytes_per_step / most)
    copied = bar(use.copied_read_bytes_per_step / most, "bright_black")
    return read + copied[len(read) :]


def _shared(report: Report) -> RenderableType | None:
    if not report.shared_prefill:
        return None
    table = _table("First tokens of all rows", "prompt", "rows", "", "TTFT", "")
    for row in report.shared_prefill:
        prompt, most = f"{row.prompt_tokens:,}", max(row.naive_ttft_s, row.shared_ttft_s)
        shared = bar(row.shared_ttft_s / most)
        table.add_row(prompt, str(row.rows), "one prefill", seconds(row.shared_ttft_s), shared)
        naive = bar(row.naive_ttft_s / most, "yellow")
        table.add_row("", "", f"{row.rows} prefills", seconds(row.naive_ttft_s), naive)
    return Group(table, *(_saving(row) for row in report.shared_prefill))


def _saving(row: SharedPrefill) -> Text:
    """In prefill units: pairs of tokens that attention goes over, rows * tokens^2."""
    units = row.prompt_tokens**2
    return Text(
        f"  {row.naive_ttft_s / row.shared_ttft_s:.1f} x sooner:"
        f" {si(units, '')} prefill units, not {si(units * row.rows, '')};"
        f" {row.over_one_row:.2f} x one row's first token"
    )


def _conversation(report: Report) -> Table | None:
    if not report.conversation:
        return None
    table = _table(
        "A chat: first token of each turn", "turn", "prompt", "new", "re-prefill", "", "reuse", ""
    )
    most = max(max(turn.reprefill_ttft_s, turn.reuse_ttft_s) for turn in report.conversation)
    for turn in report.conversation:
        table.add_row(
            str(turn.turn),
            f"{turn.prompt_tokens:,}",
            f"{turn.new_tokens:,}",
            seconds(turn.reprefill_ttft_s),
            bar(turn.reprefill_ttft_s / most, "yellow", NARROW),
            seconds(turn.reuse_ttft_s),
            bar(turn.reuse_ttft_s / most, cells=NARROW),
        )
    again = sum(turn.reprefill_ttft_s for turn in report.conversation)
    reuse = sum(turn.reuse_ttft_s for turn in report.conversation)
    table.add_row("all", "", "", seconds(again), "", seconds(reuse), f"{again / reuse:.1f} x")
    return table


def _screen(report: Report) -> RenderableType | None:
    screen = report.screen
    if screen is None:
        return None
    table = _table(
        f"The screen at 200x50, {screen.panes} panes",
        "",
        "tok/s",
        "late p50",
        "p95",
        "key p95",
        "of a core",
        "",
    )
    plain = ScreenLoad(
        tokens_per_s=screen.tokens_per_s,
        lateness_p50_s=screen.lateness_p50_s,
        lateness_p95_s=screen.lateness_p95_s,
        cpu_share=screen.cpu_share,
        key_echo_p95_s=screen.key_echo_p95_s,
    )
    loads: Sequence[tuple[str, ScreenLoad]] = (
        ("scripted", plain),
        ("long answers", screen.long_answer),
        ("real engine", screen.with_engine),
    )
    for name, load in loads:
        table.add_row(
            name,
            _rate(load.tokens_per_s),
            seconds(load.lateness_p50_s),
            seconds(load.lateness_p95_s),
            seconds(load.key_echo_p95_s),
            f"{load.cpu_share:.2f}",
            bar(load.cpu_share),
        )
    start = screen.start
    return Group(
        table,
        Text(f"  the engine keeps {screen.engine_rate_kept:.0%} of its rate without a screen"),
        Text(f"  a new size is painted after {seconds(screen.resize_s)}"),
        Text(
            f"  --help after {seconds(start.help_s)},"
            f" first frame after {seconds(start.first_frame_s)},"
            f" ready after {seconds(start.ready_s)}"
        ),
    )
