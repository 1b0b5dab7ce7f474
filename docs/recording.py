"""Makes the short animated picture of the README from the running program, with the real model.

    python docs/recording.py

A question is typed, three answers grow with the calculator in them, one is picked and gone on with.
Frames are taken from the running program by the clock, so what moves moves as fast as it did; only
waiting for the model to load is left out. The picture is one SVG whose frames take turns.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.backends.local import LocalBackend
from chat_tui.settings import Settings

HERE = Path(__file__).parent
SIZE = (92, 22)
EVERY_S = 0.3
HOLD_S = 2.5
"""How long the last frame stays."""


class Recording:
    """Frames with the moment of each; a frame that looks like the one before it is none."""

    def __init__(self, app: ChatApp) -> None:
        self.app = app
        self.frames: list[tuple[float, str]] = []
        self._began = time.monotonic()

    def take(self) -> None:
        svg = self.app.export_screenshot(title="chat-tui --samples 3")
        if not self.frames or _without_ids(svg) != _without_ids(self.frames[-1][1]):
            self.frames.append((time.monotonic() - self._began, svg))

    async def run(self) -> None:
        """Take frames until cancelled."""
        while True:
            self.take()
            await asyncio.sleep(EVERY_S)

    def to_svg(self) -> str:
        """All frames in one picture, each visible in its time."""
        end = self.frames[-1][0] + HOLD_S
        style, drawn = [], []
        for place, (begin, svg) in enumerate(self.frames):
            behind = self.frames[place + 1][0] if place + 1 < len(self.frames) else end
            first, last = (f"{100 * moment / end:.2f}%" for moment in (begin, behind))
            style.append(
                f"@keyframes f{place}{{0%{{visibility:hidden}}{first}{{visibility:visible}}"
                f"{last},100%{{visibility:{'visible' if behind == end else 'hidden'}}}}}"
                f".f{place}{{visibility:hidden;animation:f{place} {end:.2f}s step-end infinite}}"
            )
            body = re.sub(r"<!--.*?-->|@font-face \{.*?\}", "", svg, flags=re.DOTALL)
            body = body[body.index(">", body.index("<svg")) + 1 : body.rindex("</svg>")]
            drawn.append(f'<g class="f{place}">{body}</g>')
        still = (
            "@media (prefers-reduced-motion: reduce){g[class^=f]{animation:none}"
            f".f{len(drawn) - 1}{{visibility:visible}}}}"
        )
        box = re.search(r'viewBox="[^"]+"', self.frames[0][1])
        assert box is not None
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {box[0]}>'
            f"<style>{''.join(style)}{still}</style>{''.join(drawn)}</svg>\n"
        )


def _without_ids(svg: str) -> str:
    return re.sub(r"terminal-\d+", "", svg)


async def answered(pilot: Pilot[None], app: ChatApp) -> None:
    while not (app.chat.phase == "ready" and not app.chat.queue and not app.chat.running):
        await asyncio.sleep(0.05)
    await pilot.pause(0.4)


async def main() -> None:
    settings = Settings(samples=3, temperatures=(0.3, 0.7, 1.0), seed=1234, max_tokens=48)
    app = ChatApp(settings, LocalBackend())
    async with app.run_test(size=SIZE) as pilot:
        await answered(pilot, app)
        recording = Recording(app)
        taking = asyncio.create_task(recording.run())
        for key in "What is 15% of 640?":
            await pilot.press(key)
            await asyncio.sleep(0.04)
        await pilot.press("enter")
        await answered(pilot, app)
        await asyncio.sleep(0.8)
        await pilot.press("alt+2")
        for key in "Name a use of lasers.":
            await pilot.press(key)
            await asyncio.sleep(0.04)
        await pilot.press("enter")
        await answered(pilot, app)
        taking.cancel()
        recording.take()
    app.chat.close()
    (HERE / "recording.svg").write_text(recording.to_svg())


if __name__ == "__main__":
    asyncio.run(main())
