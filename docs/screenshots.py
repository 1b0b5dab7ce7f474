"""Makes the pictures of the README from the running program, with the real model.

    python docs/screenshots.py

The seed is fixed, so that the pictures change only when the program does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.backends.local import LocalBackend
from chat_tui.settings import Settings

HERE = Path(__file__).parent
SIZE = (120, 32)


async def until(pilot: Pilot[None], seconds: float = 60) -> None:
    """Wait until the model is ready and nothing runs."""
    chat = pilot.app.chat  # type: ignore[attr-defined]
    for _ in range(int(seconds * 20)):
        await pilot.pause(0.05)
        if chat.phase == "ready" and not chat.queue and not chat.running:
            break
    await pilot.pause(0.5)


async def main() -> None:
    """One conversation: a calculation, of which the second answer is picked, and a question; then
    the tokens of an answer, and the tree."""
    settings = Settings(samples=3, temperatures=(0.3, 0.7, 1.0), seed=1234, max_tokens=160)
    app = ChatApp(settings, LocalBackend())

    def picture(name: str) -> None:
        (HERE / f"{name}.svg").write_text(app.export_screenshot(title="chat-tui --samples 3"))

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot)
        await pilot.press(*"What is 15% of 640?", "enter")
        await until(pilot)
        await pilot.press("alt+2")
        await pilot.press(*"Explain in a few sentences why the sky is blue.", "enter")
        await until(pilot)
        picture("compare")
        await pilot.press("tab", "i", *["right"] * 12)
        await pilot.pause(0.5)
        picture("tokens")
        await pilot.press("escape", "ctrl+t")
        await pilot.pause(0.5)
        picture("tree")


if __name__ == "__main__":
    asyncio.run(main())
