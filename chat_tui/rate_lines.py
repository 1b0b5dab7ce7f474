"""The lines around the answers that are rated: how far it has come, what was said last, the end.

Each is a function of the state alone.
"""

from __future__ import annotations

import shlex

from rich.text import Text

from chat_tui.keys import Hint, Keys
from chat_tui.rating import Progress, Rating
from chat_tui.rendering import Palette, sanitise

_BAR = range(8, 31)
"""Cells of the bar: the least that says something, and the most that is needed."""


def heading(rating: Rating, file: str, width: int, palette: Palette) -> Text:
    """How far it has come, as much of it as there is room for."""
    progress = rating.progress
    pace = f"{progress.per_minute:.1f} a minute" if progress.per_minute is not None else ""
    ahead = f"{progress.ahead} ahead" if progress.ahead else ""
    count = f"{progress.done}/{progress.total}"
    left = [count, pace, _left(progress)]
    right = [ahead, "blind" if rating.blind else "", sanitise(file)]
    # What goes first where there is no room.
    for parts, place in ((right, 2), (right, 0), (left, 1), (left, 2), (right, 1)):
        if _cells(left) + _cells(right) + _BAR.start + 8 <= width:
            break
        parts[place] = ""
    room = width - _cells(left) - _cells(right) - 8
    line = Text.assemble((f"{count}  ", palette.strong))
    if room >= _BAR.start:
        cells = min(room, _BAR.stop - 1)
        filled = round(cells * progress.done / max(progress.total, 1))
        line.append("━" * filled, palette.running)
        line.append("─" * (cells - filled) + "  ", palette.faint)
    line.append(" · ".join(part for part in left[1:] if part), palette.text)
    end = Text(" · ".join(part for part in right if part), palette.muted)
    space = max(width - line.cell_len - end.cell_len, 1)
    return Text.assemble(line, " " * space, end)


def _cells(parts: list[str]) -> int:
    return Text(" · ".join(part for part in parts if part)).cell_len


def _left(progress: Progress) -> str:
    if progress.left_s is None or progress.done == progress.total:
        return ""
    minutes = round(progress.left_s / 60)
    if minutes < 1:
        return "less than a minute left"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min left"


def actions(rating: Rating, count: int, keys: Keys) -> list[Hint]:
    """What keys do now, the most needed ones first; `count` answers are shown."""
    leaving = [("rating.undo", "back"), ("rating.quit", "quit")]
    if rating.prompt is None:
        some = rating.counts["skip"] or rating.passed
        does = [("rating.skip", "the skipped ones again"), *leaving] if some else leaving
    else:
        does = [
            *([("rating.retry", "ask again")] if rating.place in rating.problems else []),
            *([("rating.tie", "tie"), ("rating.bad", "all bad")] if count else []),
            ("rating.skip", "skip"),
            *leaving,
            *([("answers.zoom", "zoom")] if count else []),
            ("rating.stop", "stop"),
            ("rating.help", "help"),
        ]
    picks = [Hint(keys.span("rating.pick", min(count, 9)), "picks")] if count else []
    return [*picks, *(keys.hint(what, action) for action, what in does)]


def remark(rating: Rating, keys: Keys) -> str:
    """What was said last, with what was hidden until then; or that there is nothing to choose."""
    said, turn = rating.last, rating.turn
    if turn is not None and turn.over and len({answer.text for answer in turn.rows}) == 1:
        return "All answers say the same."
    if said is None:
        return ""
    what = {
        "pick": f"answer {said.column + 1}" + (f" · {said.label}" if said.label else ""),
        "tie": "a tie",
        "bad": "all bad",
        "skip": "skipped",
    }[said.verdict]
    return f"prompt {said.place + 1}: {what} · {keys.first('rating.undo')} takes it back"


def closing(rating: Rating, file: str, keys: Keys) -> list[str]:
    """What there is to say when no prompt is left."""
    counts = rating.counts
    said = [
        f"{counts['pick']:,} picked",
        f"{counts['tie']:,} tied",
        f"{counts['bad']:,} all bad",
        f"{counts['skip'] + len(rating.passed):,} skipped",
        f"{len(rating.left_out):,} too long for the model",
    ]
    some = ", ".join(part for part in said if not part.startswith("0 "))
    lines = [f"That was the last of {len(rating.prompts):,} prompts: {some}."]
    if counts["skip"] or rating.passed:
        lines.append(f"{keys.first('rating.skip')} goes through the skipped ones again.")
    lines.append(f"chat-tui export --rated {shlex.quote(file)} --format dpo writes the pairs.")
    lines.append(f"chat-tui stats --rated {shlex.quote(file)} counts them.")
    return lines
