"""A frame is painted once, and it is the right one."""

from __future__ import annotations

from rich.console import RenderableType
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.screen import Screen

from chat_tui.settings import Settings
from tests.chat_tui.running import Running, running


def watched(run: Running) -> list[list[str]]:
    """The whole screens that are painted from now on, in lines."""
    painted: list[list[str]] = []
    paint = run.app._display

    def display(screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, LayoutUpdate):
            rows = renderable.strips
            painted.append(["".join(strip.text for strip in row) for row in rows])
        paint(screen, renderable)

    run.app._display = display  # type: ignore[method-assign]
    return painted


async def test_another_size_of_the_terminal_is_one_frame() -> None:
    async with running(Settings(samples=4), size=(160, 40)) as run:
        await run.send("Count to fifty.")
        run.backend.start()
        for n in range(50):
            run.backend.step(*[f"{n} and so on, as far as it goes.\n\n"] * 4)
        await run.settle()
        painted = watched(run)
        for size in ((100, 30), (160, 40), (80, 24)):
            await run.pilot.resize_terminal(*size)
            await run.settle()
            (frame,) = painted
            assert [strip.text for strip in run.app.screen._compositor.render_strips()] == frame
            painted.clear()


async def test_what_changes_after_a_whole_frame_is_painted_too() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("Hi")
        run.backend.start()
        run.backend.step("Hel", "Goo")
        await run.settle()
        await run.pilot.resize_terminal(90, 20)
        parts: list[str] = []

        def display(screen: Screen[object], renderable: RenderableType | None) -> None:
            if isinstance(renderable, ChopsUpdate):
                shown = (renderable.chops[y].values() for y, _, _ in renderable.spans)
                parts.extend(strip.text for row in shown for strip in row if strip is not None)

        run.app._display = display  # type: ignore[method-assign]
        run.backend.step("lo", "d day")
        await run.settle()
        assert any("Hello" in part for part in parts)
        assert any("Good day" in part for part in parts)
