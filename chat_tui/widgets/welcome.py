"""What an empty conversation shows: what this is and the keys to begin with."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from chat_tui.keys import Keys
from chat_tui.rendering.sanitise import sanitise
from engine.messages import ModelInfo

_GAP = "   "


class Welcome(Widget):
    """A few lines in the middle of an empty screen."""

    DEFAULT_CSS = """
    Welcome {
        height: 1fr; width: 1fr; padding: 0 2;
        content-align: center middle; text-align: center; color: $foreground 60%;
    }
    """

    infos: reactive[tuple[ModelInfo, ...]] = reactive(())
    samples: reactive[int] = reactive(1)
    first: reactive[bool] = reactive(False)
    """Whether its reader has never been here."""

    def render(self) -> Content:
        answers = "one answer" if self.samples == 1 else f"{self.samples} answers side by side"
        lines = [
            Content.styled("chat-tui", "bold $primary"),
            Content(f"Ask once, see {answers}, pick one, go on."),
            Content(""),
            *(self._hint() if self.first else self._keys()),
        ]
        if self.infos:
            lines += [Content(""), *(line for info in self.infos for line in self._about(info))]
        return Content("\n").join(lines)

    def _hint(self) -> list[Content]:
        """Where to begin, in three lines."""
        keys = Keys.of(self.app)
        first = keys.first
        told = (
            f"Type a question and press {first('prompt.send')}; "
            f"{keys.span('chat.pick', 9)} picks an answer.",
            f"{first('chat.focus-next')} goes into the answers: {first('answers.tokens')} shows "
            f"the tokens of one, {first('answers.more')} asks for more.",
            f"{first('chat.help')} tells all keys, {first('chat.palette')} finds every command, "
            "/ offers them.",
        )
        return [Content.styled(line, "$foreground 85%") for line in told]

    def _keys(self) -> list[Content]:
        """In one line, or in as many as it takes."""
        keys = Keys.of(self.app)
        told = (
            (keys.first("prompt.send"), "sends"),
            (keys.span("chat.pick", 9), "picks"),
            (keys.first("chat.help"), "help"),
            ("/", "commands"),
        )
        lines = [Content("")]
        for key, does in told:
            item = Content.assemble((key, "$foreground"), f" {does}")
            wider = lines[-1] + Content(_GAP) + item if lines[-1].plain else item
            if wider.cell_length <= max(self.content_size.width, 12):
                lines[-1] = wider
            else:
                lines.append(item)
        return lines

    def _about(self, info: ModelInfo) -> list[Content]:
        note = f" ({info.backend_note})" if info.backend_note else ""
        size = f" · {info.parameters / 1e6:,.0f} M parameters" if info.parameters else ""
        lines = [
            f"{info.title}{size}",
            f"{info.backend} on {info.device}{note}",
        ]
        assumed = [f"assumed: {line}" for line in info.assumptions]
        return [
            *(Content.styled(sanitise(line), "$foreground 50%") for line in lines),
            *(Content.styled(sanitise(line), "$text-warning") for line in assumed),
        ]
