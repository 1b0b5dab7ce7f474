"""What an empty conversation shows: what this is and the keys to begin with."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from chat_tui.rendering.sanitise import sanitise
from engine.messages import ModelInfo


class Welcome(Static):
    """Two or three lines in the middle of an empty screen."""

    DEFAULT_CSS = """
    Welcome {
        height: 1fr; width: 1fr; padding: 0 2;
        content-align: center middle; text-align: center; color: $foreground 60%;
    }
    """

    def show(self, info: ModelInfo | None, samples: int) -> None:
        answers = "one answer" if samples == 1 else f"{samples} answers side by side"
        lines = [
            Content.styled("chat-tui", "bold $primary"),
            Content(f"Ask once, see {answers}, pick one, go on."),
            Content(""),
            Content.assemble(
                ("Enter", "$foreground"), " sends   ", ("Alt+1…9", "$foreground"), " picks   ",
                ("F1", "$foreground"), " help   ", ("/", "$foreground"), " commands",
            ),
        ]  # fmt: skip
        if info is not None:
            about = f"{info.name} · {info.parameters / 1e6:,.0f} M parameters"
            runs = f"{info.backend} on {info.device}"
            note = f" ({info.backend_note})" if info.backend_note else ""
            lines += [
                Content(""),
                Content.styled(sanitise(about), "$foreground 50%"),
                Content.styled(sanitise(runs + note), "$foreground 50%"),
            ]
            lines += [
                Content.styled(sanitise(f"assumed: {line}"), "$text-warning")
                for line in info.assumptions
            ]
        self.update(Content("\n").join(lines))
