"""At what pace a screen takes what models have to say."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterable

from textual.timer import Timer

from chat_tui.chat import Chat
from chat_tui.keys import Keys
from chat_tui.look import Look, LookedApp
from chat_tui.memory import Memory
from chat_tui.state import Pace
from engine.messages import Event, Stepped

DRAINS_PER_SECOND: dict[Pace, int] = {"idle": 4, "waiting": 30, "running": 12}
"""Tokens are painted at a rate that can be read; the first one is shown as soon as it is there.
What the screen takes of a core, an engine on the same cores loses: 16 a second took 0.14 of one
with eight answers, and the engine kept 83% of its rate."""
STATUS_EVERY = 4
"""Drains between two updates of figures that change with every token: calmer to read."""


class PacedApp(LookedApp):
    """An app with a clock that drains the models of `chat`."""

    def __init__(self, look: Look, keys: Keys, memory: Memory, chat: Chat) -> None:
        super().__init__(look, keys, memory)
        self.chat = chat
        self._ticks = 0
        self._timer: Timer | None = None

    def on_ready(self) -> None:
        gc.freeze()
        gc.enable()

    @abstractmethod
    def drain(self) -> None:
        """Take what the models have to say, and draw it."""

    def _tick(self) -> None:
        self.drain()
        self._wake()

    def _wake(self) -> None:
        """Set the clock to the pace of what is going on now."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(1 / DRAINS_PER_SECOND[self.chat.pace], self._tick)

    def _are_figures_due(self, events: Iterable[Event]) -> bool:
        """Asked once for each drain, with what came."""
        self._ticks += 1
        news = any(not isinstance(event, Stepped) for event in events)
        return news or self._ticks % STATUS_EVERY == 0
