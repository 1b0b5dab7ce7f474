"""What the frame of the prompt says, so that nothing has to be remembered or guessed.

`hints(chat, focused)` is a function of the state alone; `Prompt.tell_state` shows as much of it as
there is room for.
"""

from __future__ import annotations

from chat_tui.chat import Chat
from chat_tui.commands import show_temperatures, show_top_ks
from chat_tui.settings import show_top_k


def hints(chat: Chat, focused: int, editing: str = "") -> tuple[str, list[str]]:
    """How answers are sampled, for the upper edge; and what the keys do now, the first first.

    `editing` says what the prompt holds, where that is no new message.
    """
    settings = chat.settings
    samples = "1 answer" if settings.samples == 1 else f"{settings.samples} answers"
    alone = settings.top_ks[0]
    top_k = f"top-k {show_top_ks(settings.top_ks)}" if settings.top_ks[1:] else show_top_k(alone)
    title = f"{samples} · T {show_temperatures(settings.temperatures)} · {top_k}"
    if settings.seed is not None:
        title += f" · seed {settings.seed}"
    turn = chat.turn
    if chat.hangs:
        return title, ["Esc ends the engine, which does not answer"]
    if editing:
        return f"editing {editing} · {title}", ["Enter asks it beside the old one", "Esc leaves it"]
    if turn is None or not turn.started:
        return title, ["Enter sends", "Ctrl+J new line", "F1 help"]
    picks = f"Alt+1–{min(turn.samples, 9)} picks"
    if turn.picked is None:
        stops = ["Esc stops"] if chat.running else []
        return title, [f"Enter continues with answer {focused + 1}", picks, *stops]
    return title, ["Esc stops", "Enter queues"]
