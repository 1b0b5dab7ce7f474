"""A screen that paints what changed once."""

from __future__ import annotations

from textual.screen import Screen


class PaintedOnce(Screen[None]):
    """Where all of it is painted, nothing is left to paint.

    Laying out tells widgets that they have another size, they ask to be painted, and Textual (8.2)
    paints the whole screen before it does as they ask: after a resize the same frame three times.
    """

    def _compositor_refresh(self) -> None:
        compositor, app = self._compositor, self.app
        shown = app._running and app.screen is self and not app._batch_count
        if shown and compositor.size.region in compositor._dirty_regions:
            for widget in compositor.visible_widgets:
                widget._exchange_repaint_regions()
        super()._compositor_refresh()
