"""The one line at the bottom: which model, how it runs, how full the context is, how fast it goes.

`figures(chat)` reads what there is to show; `StatusLine.figures` draws it. Every field has shorter
forms, and the least important ones go first: at 220 columns there is everything, at 40 the model,
the context and the speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from chat_tui.chat import Chat

GAUGE_CELLS = 8
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Figures:
    """What the line shows; None and "" where there is nothing yet."""

    state: str = "loading"
    activity: str = ""
    model: str = ""
    backend: str = ""
    note: str = ""
    used: int = 0
    limit: int = 0
    preface: int = 0
    seed: int | None = None
    ttft: float | None = None
    reused: int = 0
    rate: float | None = None
    rates: float | None = None
    rows: int = 0
    saved: float | None = None


def figures(chat: Chat) -> Figures:
    """What `chat` has to show now, of the model whose answer is in focus; the last turn's figures
    stay until the next one has its own."""
    turn, part, info = chat.turn or chat.last, chat.part, chat.info
    answer = chat.current
    stats = part.stats if part is not None else None
    rates = part.rates() if part is not None else None
    return Figures(
        state="running" if chat.phase == "ready" and chat.running else chat.phase,
        activity=_activity(chat),
        model=" + ".join(chat.lanes.name(lane) for lane in chat.lanes),
        backend=" · ".join(filter(None, (info.backend, info.device, info.dtype))) if info else "",
        note=info.backend_note if info is not None else "",
        used=chat.context_used,
        limit=info.context if info is not None else 0,
        preface=len(answer.prompt.preface) if answer is not None else 0,
        seed=turn.seed if turn is not None else chat.settings.seed,
        ttft=turn.ttft(part) if turn is not None and part is not None else None,
        reused=stats.reused_tokens if stats is not None else 0,
        rate=rates[0] if rates else None,
        rates=turn.rate() if turn is not None else None,
        rows=turn.samples if turn is not None else 0,
        saved=stats.saved_s if stats is not None else None,
    )


def _activity(chat: Chat) -> str:
    """What keeps the answers waiting; of which model, where there are several."""
    several = len(chat.lanes) > 1
    for lane in chat.lanes:
        if lane.phase == "loading" and not lane.waits:
            return f"loading {chat.lanes.name(lane)}" if several else "loading"
    for lane in chat.lanes:
        if lane.phase == "absent" and several:
            return f"{chat.lanes.name(lane)} stopped"
        if lane.phase == "absent":
            return "engine stopped" if lane.stopped else "no model"
    part = chat.part
    if part is None or not chat.running or part.over or part.first_at is not None:
        return ""
    done, total = part.prefilled
    if not part.started:
        return "starting"
    return f"prefill {done:,}/{total:,}" if total else "prefill"


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.0995 else f"{value:.2g} s"


def gauge(used: int, limit: int) -> Content:
    """Eight cells that fill up, an eighth of a cell at a time."""
    share = min(used / limit, 1.0) if limit else 0.0
    color = "$error" if share > 0.9 else "$warning" if share > 0.7 else "$primary"
    eighths = max(round(share * GAUGE_CELLS * 8), 1 if used else 0)
    bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return Content.styled(f"{bar:<{GAUGE_CELLS}}", f"{color} on $foreground 12%")


@dataclass(frozen=True)
class _Field:
    """One field's forms, longest first; the last may be empty."""

    forms: tuple[Content, ...]
    right: bool = False


_DOTS = {
    "ready": "[$success]●[/]",
    "running": "[$primary]●[/]",
    "loading": "[$warning]○[/]",
    "absent": "[$error]○[/]",
}


def _dim(label: str, value: str) -> Content:
    return Content.assemble((label, "$foreground 50%"), (value, "$foreground 85%"))


def _fields(now: Figures) -> list[_Field]:
    """In the order of the line; `_RANKS` says in which order they shrink."""
    nothing = Content("")
    dot = Content.from_markup(_DOTS[now.state] + " ")

    def model(width: int) -> Content:
        name = now.model if len(now.model) <= width else now.model[: width - 1] + "…"
        return dot + Content.styled(name, "$foreground")

    used = f"{now.used:,}/{now.limit:,}"
    preface = f" (preface {now.preface:,})" if now.preface else ""
    bar = gauge(now.used, now.limit)
    context = [
        bar + Content(" ") + _dim("", used) + _dim(preface, ""),
        bar + Content(" ") + _dim("", used),
        _dim("", used),
    ]
    rate = []
    if now.rate is not None and now.rates is not None:
        total = f"{now.rates:.0f}"
        if now.rows > 1:
            rate.append(_dim("", f"{now.rate:.0f} tok/s") + _dim(", together ", total))
        rate.append(_dim("", f"{total} tok/s"))
    ttft = [_dim("TTFT ", seconds(now.ttft))] if now.ttft is not None else []
    if ttft and now.reused:
        ttft.insert(0, ttft[0] + _dim(" reusing ", f"{now.reused:,}"))
    saved = now.saved if now.saved and now.rows > 1 else None
    return [
        _Field((model(40), model(26), model(16), model(12))),
        _Field((Content.styled(now.activity, "$warning"),)),
        _Field((_dim("", now.backend), _dim("", now.backend.split(" · ")[0]), nothing)),
        _Field((_dim(now.note, ""), nothing)),
        _Field(tuple(context) if now.limit else (nothing,), right=True),
        _Field(
            (_dim("seed ", str(now.seed)) if now.seed is not None else nothing, nothing), right=True
        ),
        _Field((*ttft, nothing), right=True),
        _Field((*rate, nothing) if rate else (nothing,), right=True),
        _Field(
            (
                _dim("shared prefill saved ", seconds(saved)) if saved else nothing,
                _dim("saved ", seconds(saved)) if saved else nothing,
                nothing,
            ),
            right=True,
        ),
    ]


_RANKS = (3, 8, 4, 2, 8, 0, 7, 6, 6, 5, 4, 2, 0, 0, 7)
"""Which field takes its next shorter form, one step after the other, until the line fits."""


def line(now: Figures, width: int) -> Content:
    """The status line, never wider than `width` cells."""
    fields = _fields(now)
    chosen = [0] * len(fields)
    gap = Content("   " if width >= 100 else "  ")

    def parts(right: bool) -> list[Content]:
        forms = [
            field.forms[form]
            for field, form in zip(fields, chosen, strict=True)
            if field.right is right
        ]
        return [form for form in forms if form.plain]

    def assembled() -> tuple[Content, Content]:
        return gap.join(parts(False)), gap.join(parts(True))

    left, right = assembled()
    for place in _RANKS:
        if left.cell_length + right.cell_length + gap.cell_length <= width:
            break
        if chosen[place] + 1 < len(fields[place].forms):
            chosen[place] += 1
            left, right = assembled()
    space = max(width - left.cell_length - right.cell_length, 1)
    return (left + Content(" " * space) + right).truncate(width, ellipsis=True)


class StatusLine(Widget):
    """Draws `figures`; nothing else."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $background; color: $foreground; }
    """

    figures: reactive[Figures] = reactive(Figures())

    def render(self) -> Content:
        return line(self.figures, self.content_size.width or 80)
