"""Keys that mean the same in several widgets; what they do is the App's."""

from __future__ import annotations

from textual.binding import Binding

BRANCHING: tuple[Binding, ...] = (
    Binding("i", "app.tokens", "Look at the answer token by token"),
    Binding("u", "app.undo", "Take the last pick back"),
    Binding("r", "app.more", "More answers beside these"),
    Binding("c", "app.continue", "Continue an answer that was stopped or cut"),
    Binding("e", "app.edit", "Edit the message and ask it again"),
    Binding("E", "app.edit_answer", "Edit the answer and go on from there"),
)
"""In the answers and in the transcript."""
