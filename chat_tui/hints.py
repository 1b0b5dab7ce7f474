"""What the frame of the prompt says, so that nothing has to be remembered or guessed.

`hints(chat, focused, keys)` is a function of the state alone; `Prompt.tell_state` shows as much of
it as there is room for.
"""

from __future__ import annotations

from chat_tui.chat import Chat
from chat_tui.commands import show_temperatures, show_top_ks
from chat_tui.keys import Keys
from chat_tui.settings import show_top_k


def hints(
    chat: Chat, focused: int, keys: Keys, editing: str = "", carried: str = ""
) -> tuple[str, list[str]]:
    """How answers are sampled, for the upper edge; and what the keys do now, the first first.

    `editing` says what the prompt holds, where that is no new message; `carried` what the message
    carries beside what is typed.
    """
    settings = chat.settings
    samples = "1 answer" if settings.samples == 1 else f"{settings.samples} answers"
    alone = settings.top_ks[0]
    top_k = f"top-k {show_top_ks(settings.top_ks)}" if settings.top_ks[1:] else show_top_k(alone)
    title = f"{samples} · T {show_temperatures(settings.temperatures)} · {top_k}"
    if settings.seed is not None:
        title += f" · seed {settings.seed}"
    if carried:
        title = f"{carried} · {title}"
    turn = chat.turn
    send, stop = keys.first("prompt.send"), keys.first("chat.stop")
    if chat.hangs:
        return title, [f"{stop} ends the engine, which does not answer"]
    if editing:
        asks = f"{send} asks it beside the old one"
        return f"editing {editing} · {title}", [asks, f"{stop} leaves it"]
    looked_at = turn or chat.last
    lost = looked_at is not None and looked_at.lost and chat.phase == "ready"
    again = [f"{keys.first('chat.again')} asks again"] if lost else []
    if turn is None or not turn.started:
        newline, help = keys.first("prompt.newline"), keys.first("chat.help")
        return title, [f"{send} sends", *again, f"{newline} new line", f"{help} help"]
    picks = f"{keys.span('chat.pick', min(turn.samples, 9))} picks"
    if turn.picked is None:
        stops = [f"{stop} stops"] if chat.running else []
        return title, [f"{send} continues with answer {focused + 1}", *again, picks, *stops]
    return title, [f"{stop} stops", f"{send} queues"]
