"""A view that scrolls on the line API, with a bar that is there but does not call for attention."""

from __future__ import annotations

from textual.scroll_view import ScrollView


class QuietScroll(ScrollView, can_focus=True, inherit_bindings=False):
    """The ground and the scroll bar of everything that is drawn line by line."""

    DEFAULT_CSS = """
    QuietScroll {
        background: $background;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-gutter: stable;
        scrollbar-size: 0 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
        scrollbar-color: $foreground 20%;
        scrollbar-color-hover: $foreground 35%;
        scrollbar-color-active: $primary;
    }
    """
