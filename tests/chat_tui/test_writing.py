"""Writing in the real program in a pseudo-terminal: pastes, a kill, an editor."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.chat_tui.sse_server import SseServer, talk
from tests.chat_tui.terminal import Terminal

APPENDS = "import sys; open(sys.argv[1], 'a').write(' (edited)')"


def test_a_paste_a_kill_and_an_editor(
    tmp_path: Path, session_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{number:04} def f(): \x1b[31m 漢字 🙂" for number in range(2_000)]
    editor = tmp_path / "editor.py"
    editor.write_text(APPENDS)
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    drafts = session_home / "state" / "drafts"

    with SseServer(talk("Never asked")) as server:
        write(server.url, lines, drafts)

    (path,) = drafts.glob("*.json")
    kept = json.loads(path.read_text())
    assert list(kept["folds"].values()) == ["\n".join(lines).replace("\x1b", "")]
    assert kept["shown"] == (
        "[pasted 2,000 lines] What is it? (edited)\nthe first line\nthe second line\n"
    )
    path.unlink()


def write(server: str, lines: list[str], drafts: Path) -> None:
    terminal = Terminal("--server", server)
    terminal.until("Enter sends")
    terminal.paste("\r".join(lines))
    terminal.until("[pasted 2,000 lines]")
    terminal.press(" What is it?")

    def on_disk() -> bool:
        texts = [path.read_text() for path in drafts.glob("*.json")]
        return any("What is it?" in text for text in texts)

    terminal.until(lambda screen: "What is it?" in screen and on_disk())
    os.kill(terminal.process.pid, signal.SIGKILL)
    terminal.end()

    terminal = Terminal("--server", server)
    terminal.until("What you were writing on")
    terminal.until("[pasted 2,000 lines] What is it?")
    terminal.press("\x07")  # Ctrl+G
    terminal.until("[pasted 2,000 lines] What is it? (edited)")
    terminal.process.send("\rthe first line\rthe second line\r")  # a terminal that marks no paste
    screen = terminal.until("the second line")
    assert "the first line" in screen
    terminal.press("ctrl+q")
    assert terminal.end() == 0
