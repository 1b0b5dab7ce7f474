"""What `chat-tui stats` found, for people: a table with bars for each kind of setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chat_tui.bench_tables import bar
from chat_tui.rendering.sanitise import sanitise
from chat_tui.standing import Entry, Standing
from chat_tui.tree import Verdict

_NARROW = 90
"""Columns below which the bars are short."""


def show(
    counts: Counter[Verdict | None], standings: Sequence[Standing], console: Console | None = None
) -> None:
    """Print everything."""
    console = console or Console(highlight=False)
    said = [
        _many(counts["pick"], "pick"),
        _many(counts["tie"], "tie"),
        f"{counts['bad']:,} all bad",
        f"{counts['skip']:,} skipped",
    ]
    some = [part for part in said if not part.startswith("0 ")]
    console.print(Text(" · ".join(some) or "Nothing was judged."))
    if not standings:
        console.print(Text("Answers that stood side by side had the same settings."), style="dim")
    for found in standings:
        console.print()
        title = f"By {found.by}"
        if not found.entries:
            console.print(Text(title, "bold"))
            console.print(Text(f"No answers of different {_PLURAL[found.by]} were compared."))
            continue
        judged = _many(found.judgements, "judgement")
        console.print(
            Text.assemble(
                (title, "bold"),
                (f" · {judged}, {_many(found.comparisons, 'comparison')}", "dim"),
            )
        )
        console.print(_table(found.entries, 10 if console.width < _NARROW else 20))
        for note in found.notes:
            console.print(Text(sanitise(note)))


_PLURAL = {
    "model": "models",
    "temperature": "temperatures",
    "top-k": "top-k",
    "system": "system texts",
}


def _table(entries: Sequence[Entry], cells: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("", overflow="fold", max_width=40)
    table.add_column("win rate", min_width=cells, no_wrap=True)
    for name in ("", "won", "tied", "lost", "score", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    group = 0
    for entry in entries:
        if entry.group != group:
            table.add_section()
            group = entry.group
        table.add_row(
            Text(" ".join(sanitise(entry.name).split())),
            bar(entry.win_rate, cells=cells),
            f"{entry.win_rate:.0%}",
            *(str(count) for count in (entry.won, entry.tied, entry.lost)),
            *_score(entry),
        )
    return table


def _score(entry: Entry) -> tuple[str, str]:
    if entry.score is None or entry.low is None or entry.high is None:
        return "–", ""
    return f"{entry.score:+.0f}", f"{entry.low:+.0f} to {entry.high:+.0f}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
