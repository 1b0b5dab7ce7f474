"""`chat-tui stats`: what the picks say of models, temperatures, top-k and system texts.

    chat-tui stats                            whatever answers were compared by
    chat-tui stats --by temperature --since 7d
    chat-tui stats --rated prompts.txt --json

What is counted, and how, is in `standing.py`; `stats_table.py` draws it.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chat_tui.shared_options import Json

if TYPE_CHECKING:
    from chat_tui.standing import Standing
    from chat_tui.tree import Verdict


_NOTHING = (
    "No answer has been preferred to another yet: pick one of several in the chat, or "
    "`chat-tui rate FILE`."
)


class By(str, Enum):
    """What answers are told apart by; how, is in `chat_tui/standing.py`."""

    model = "model"
    temperature = "temperature"
    top_k = "top-k"
    system = "system"


_AGO = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def since(text: str) -> float:
    """A moment: `12h`, `7d`, `2w` ago, or the beginning of a day, `2026-01-31`."""
    if match := re.fullmatch(r"(\d{1,6})([hdw])", text):
        return time.time() - int(match[1]) * _AGO[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is neither a time ago (12h, 7d, 2w) nor a day (2026-01-31)."
        ) from None


def stats(
    by: Annotated[By | None, typer.Option(help="One kind only.", show_default=False)] = None,
    session: Annotated[
        list[int] | None, typer.Option(help="Of this one only; may be repeated.", metavar="ID")
    ] = None,
    rated: Annotated[
        Path | None, typer.Option(help="Of what was said of this file's prompts.", metavar="FILE")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--since", help="Of what was said since then: 12h, 7d, 2w, 2026-01-31."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Win rates and Bradley-Terry scores of models, temperatures, top-k and system texts.

    They come from every pick, in chats and while rating. A tie is half a win; so are answers that
    are all bad. Scores are in Elo points: 400 more are odds of 10 to 1.
    """
    from chat_tui.preferences import compared
    from chat_tui.standing import standing
    from chat_tui.store import Store

    begin = since(after) if after is not None else 0.0
    with Store.open() as store:
        numbers = list(session) if session else None
        if rated is not None:
            numbers = [*(numbers or ()), *store.rounds(rated)]
        turns = [turn for turn in store.judged(numbers) if turn.judged_at >= begin]
    standings = [standing(turns, kind.value) for kind in ([by] if by is not None else By)]
    if by is None:
        standings = [found for found in standings if found.entries]
    counts = Counter(
        turn.verdict for turn in turns if turn.verdict != "pick" or any(compared(turn))
    )
    if as_json:
        print(json.dumps(_document(counts, standings), indent=2))
    elif not turns:
        typer.echo(_NOTHING, err=True)
    else:
        from chat_tui.stats_table import show

        show(counts, standings)


def _document(counts: Counter[Verdict | None], standings: Sequence[Standing]) -> dict[str, object]:
    return {
        "picks": counts["pick"],
        "ties": counts["tie"],
        "all_bad": counts["bad"],
        "skipped": counts["skip"],
        "standings": [
            {
                "by": found.by,
                "judgements": found.judgements,
                "comparisons": found.comparisons,
                "entries": [
                    {**asdict(entry), "comparisons": entry.comparisons, "win_rate": entry.win_rate}
                    for entry in found.entries
                ],
                "notes": found.notes,
            }
            for found in standings
        ],
    }
