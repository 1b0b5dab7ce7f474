"""Makes the pictures of the README from the running program, with the real model.

    python docs/screenshots.py

The seed is fixed, so that the pictures change only when the program does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot

from chat_tui.app import ChatApp
from chat_tui.backends.local import LocalBackend
from chat_tui.prompts import read_prompts
from chat_tui.rate_app import RateApp
from chat_tui.session import Session
from chat_tui.settings import Settings

HERE = Path(__file__).parent
SIZE = (120, 32)


async def until(pilot: Pilot[None], seconds: float = 60) -> None:
    """Wait until the model is ready and nothing runs any more."""
    chat = pilot.app.chat  # type: ignore[attr-defined]
    for _ in range(int(seconds * 20)):
        await pilot.pause(0.05)
        if chat.phase == "ready" and not chat.queue and not chat.running:
            break
    await pilot.pause(0.5)


async def chatting() -> None:
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


async def rating(folder: Path) -> None:
    """Four prompts: two are rated, the third one is looked at."""
    settings = Settings(samples=3, temperatures=(0.3, 0.7, 1.0), seed=1234, max_tokens=120)
    file = folder / "prompts.txt"
    file.write_text(
        "What is 15% of 640?\nName three colours of the sea.\n"
        "Explain in a few sentences why the sky is blue.\nWrite a haiku about rain.\n"
    )
    now = [0.0]
    app = RateApp(
        settings,
        LocalBackend(),
        read_prompts(file),
        Session(),
        file=file.name,
        keep=folder / "sessions.db",
        clock=lambda: now[0],
    )
    async with app.run_test(size=SIZE) as pilot:
        for key in "2t":
            await until(pilot)
            now[0] += 8
            await pilot.press(key)
        await until(pilot)
        svg = app.export_screenshot(title="chat-tui rate prompts.txt -n 3 -t 0.3,0.7,1.0")
        (HERE / "rate.svg").write_text(svg)
    app.close()


if __name__ == "__main__":
    asyncio.run(chatting())
    with TemporaryDirectory() as folder:
        asyncio.run(rating(Path(folder)))
