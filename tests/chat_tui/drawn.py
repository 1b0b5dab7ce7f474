"""Texts as they are drawn in the theme that is there without a screen."""

from __future__ import annotations

from textual.app import App

from chat_tui.rendering import Flow, Palette

PALETTE = Palette.of(App())


def drawn(text: str, width: int = 40, **more: object) -> list[str]:
    flow = Flow(text, closed=True, **more)  # type: ignore[arg-type]
    return [line.text for line in flow.lines(width, PALETTE)]
