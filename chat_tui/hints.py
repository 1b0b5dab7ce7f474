"""What the frame of the prompt says, so that nothing has to be remembered or guessed.

`hints(chat, focused, keys)` is a function of the state alone; `Prompt.tell_state` shows as much of
it as there is room for.
"""

from __future__ import annotations

from chat_tui.arguments import show_temperatures, show_top_ks
from chat_tui.chat import Chat
from chat_tui.keys import Keys
from chat_tui.settings import Settings, show_top_k


def hints(
    chat: Chat, focused: int, keys: Keys, editing: str = "", carried: str = ""
) -> tuple[str, list[str]]:
    """How answers are sampled, for the upper edge; and what the keys do now, the first first.

    `editing` says what the prompt holds, where that is no new message; `carried` what the message
    carries beside what is typed.
    """
    title, turn = _title(chat.settings), chat.turn
    if carried:
        title = f"{carried} · {title}"
    send, stop = keys.first("prompt.send"), keys.first("chat.stop")
    if chat.hangs:
        return title, [f"{stop} ends the engine, which does not answer"]
    if editing:
        asks = f"{send} asks it beside the old one"
        return f"editing {editing} · {title}", [asks, f"{stop} leaves it"]
    looked_at = turn or chat.last
    ended = looked_at is not None and looked_at.over
    lost = looked_at is not None and ended and looked_at.lost and chat.phase == "ready"
    again = [f"{keys.first('chat.again')} asks again"] if lost else []
    if turn is None or not turn.started:
        newline, help = keys.first("prompt.newline"), keys.first("chat.help")
        return title, [f"{send} sends", *again, f"{newline} new line", f"{help} help"]
    picks = f"{keys.span('chat.pick', min(turn.samples, 9))} picks"
    if turn.picked is None:
        stops = [f"{stop} stops"] if chat.running else []
        return title, [f"{send} continues with answer {focused + 1}", *again, picks, *stops]
    return title, [f"{stop} stops", f"{send} queues"]


def _title(settings: Settings) -> str:
    setups = settings.setups()
    temperatures = tuple(dict.fromkeys(setup.temperature for setup in setups))
    top_ks = tuple(dict.fromkeys(setup.top_k for setup in setups))
    parts = [
        _count(len(setups), "answer"),
        _several(len(settings.sources), "model"),
        _several(len({setup.system for setup in setups}), "system text"),
        f"T {show_temperatures(temperatures)}",
        f"top-k {show_top_ks(top_ks)}" if top_ks[1:] else show_top_k(top_ks[0]),
        f"seed {settings.seed}" if settings.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _several(number: int, what: str) -> str:
    return _count(number, what) if number > 1 else ""
