"""What users of terminal chats complain about, where no other test holds it already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual import events
from textual.geometry import Offset
from textual.selection import Selection

from chat_tui.download_progress import DownloadProgress
from chat_tui.recording import save
from chat_tui.screens.tokens import TokenScreen
from chat_tui.session import Session
from chat_tui.settings import Settings
from chat_tui.terminal import InputParser
from engine.messages import Failed, Overflowed
from tests.chat_tui.running import Running, running
from tests.chat_tui.sse_server import SseServer, talk
from tests.chat_tui.talking import Talk

MARKUP = "[red]x[/] [/] [@click=app.quit]y[/] [$primary]"


def screen(run: Running) -> list[str]:
    """The lines that the terminal shows."""
    return [strip.text for strip in run.app.screen._compositor.render_strips()]


def shows(run: Running, text: str) -> bool:
    return any(text in line for line in screen(run))


async def test_console_markup_is_text_wherever_it_is_shown(tmp_path: Path) -> None:
    """In messages, answers, names, notices and errors; on each screen."""
    async with running(Settings(samples=2), size=(120, 40), keep=tmp_path / "s.db") as run:
        run.backend.loading(MARKUP, 1, 2)
        await run.settle()
        run.backend.ready(MARKUP)
        await run.settle()
        await run.send(f"/system {MARKUP}")
        assert MARKUP in run.told
        await run.send(MARKUP)
        run.backend.answer(MARKUP, f"**{MARKUP}**")
        await run.settle()
        assert sum(line.count("[red]x[/]") for line in screen(run)) >= 3
        await run.press("alt+1")
        await run.send(f"/rename {MARKUP}")
        assert MARKUP in run.told
        await run.send("More")
        run.backend.say(Failed(run.backend.ask.ask, MARKUP))
        await run.settle()
        assert shows(run, f"✗ {MARKUP}")
        for key in ("ctrl+t", "ctrl+o"):
            await run.press(key)
            assert shows(run, "[red]x[/]"), key
            await run.press("escape")
        await run.press("tab", "i")
        assert isinstance(run.app.screen, TokenScreen)
        assert shows(run, "[red]x[/]")
        await run.press("escape", "ctrl+p")
        await run.search("[/]")
        await run.press("escape", "escape")
        run.app.notify(MARKUP, markup=False)
        await run.settle()
        run.app.prompt.focus()
        await run.press("ctrl+u")
        await run.send("Long")
        run.backend.say(Overflowed(run.backend.ask.ask, 9000, 2048, (6000, 3000)))
        await run.settle()
        await run.press("escape")
        assert run.text == "Long"


@pytest.mark.parametrize(
    "reply",
    [
        "\x1b[?2026;2$y",  # synchronised output
        "\x1b[?2048;0$y",  # resizing told in band
        "\x1b[48;24;80;480;960t",  # a size that was told so
        "\x1b[I",  # the window has the focus
        "\x1b[O",
    ],
)
def test_what_a_terminal_answers_is_not_typed(reply: str) -> None:
    """Whole, or with its rest in another read."""
    for cut in range(1, len(reply)):
        parser = InputParser()
        messages = [m for part in (reply[:cut], reply[cut:], "z") for m in parser.feed(part)]
        keys = [message.key for message in messages if isinstance(message, events.Key)]
        assert keys == ["z"], cut


@pytest.mark.parametrize("reply", ["\x1b[?62;22c", "\x1b[?1u", "\x1b[?6n"])
def test_what_it_answers_to_an_earlier_program_is_not_typed_either(reply: str) -> None:
    messages = [*InputParser().feed(f"a{reply}b")]
    assert [message.key for message in messages if isinstance(message, events.Key)] == ["a", "b"]


async def test_a_copied_line_of_chinese_has_no_breaks_that_the_width_made() -> None:
    text = "多摩川は山梨県の笠取山から流れ出て東京湾に注ぐ川である。" * 4
    async with running(Settings(samples=1), size=(40, 24)) as run:
        await run.send(text)
        run.backend.answer(text)
        await run.settle()
        pane = run.app.grid.pane(0) if run.app.grid.panes else None
        view = run.app.transcript if pane is None else pane
        copied, _ = view.get_selection(Selection(None, None)) or ("", "")
        assert text in copied
        lines = screen(run)
        assert all(cell_len(line) == 40 for line in lines)
        assert len([line for line in lines if "川" in line]) > 4
        assert view.get_selection(Selection(Offset(0, 0), None)) is not None


async def test_long_narrow_and_tabbed_lines_are_drawn_once() -> None:
    words = ["\tif a:", "\n\t\treturn b", "\n", "long" * 30, "\n", "a\tb\tc", "\r\n", "end"]
    async with running(Settings(samples=2), size=(44, 24)) as run:
        await run.send("Code?")
        run.backend.start()
        for word in words:
            run.backend.step(word, "x")
            await run.settle()
        run.backend.finish()
        await run.settle()
        lines = screen(run)
        run.app.grid.panes[0].repaint()
        run.app.refresh(repaint=True, layout=True)
        await run.settle()
        assert screen(run) == lines  # drawn anew it is the same
        assert not any(char < " " for line in lines for char in line)
        assert all(cell_len(line) == 44 for line in lines)
        shown = "".join(line.strip(" │") for line in lines)
        assert shown.count("long" * 30) == 1
        assert shown.count("return b") == 1


def ask(
    *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from chat_tui.cli import main; main()", *arguments],
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_is_not_ascii_is_neither_lost_nor_an_error(encoding: str) -> None:
    with SseServer(talk("Grüße aus 東京 😀")) as server:
        done = ask("--server", server.url, stdin="naïve 東京".encode(), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert server.asked[-1].body["messages"][-1]["content"] == "naïve 東京"
    said = done.stdout.decode(encoding).strip()
    assert said == "Grüße aus 東京 😀".encode(encoding, "backslashreplace").decode(encoding)


def test_an_export_is_utf_8_wherever_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    chat = Talk()
    chat.ask("Wo? 東京", "Grüße 😀", "Hier", pick=0)
    save(Session(None, "東京", 1.5, 2.5, chat.chat.conversation))
    done = ask("export", "1", "-f", "dpo", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Grüße 😀" in done.stdout.decode("utf-8")
    listed = ask("sessions", "list", PYTHONIOENCODING="ascii")
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert b"\\u6771" in listed.stdout


def test_a_script_does_not_wait_for_a_pipe_that_says_nothing() -> None:
    """Some schedulers hand over one that never ends."""
    silent, held_open = os.pipe()
    with SseServer(talk("Hi")) as server:
        command = [sys.executable, "-c", "from chat_tui.cli import main; main()"]
        done = subprocess.run(
            [*command, "--server", server.url, "-p", "Hello"],
            stdin=silent,
            capture_output=True,
            timeout=120,
            check=False,
        )
    os.close(silent)
    os.close(held_open)
    assert (done.returncode, done.stdout) == (0, b"Hi\n")
    assert done.stderr.count(b"\n") == 1


def test_a_download_writes_some_lines_into_a_log_and_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = DownloadProgress()
    progress.show("Starting", 0, 0)
    for done in range(100_000):
        progress.show("Downloading, 98 MB", done, 100_000)
    progress.show("Downloading, 98 MB", 100_000, 100_000)
    progress.close()
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 5
    assert "\r" not in said.err
    assert "\x1b" not in said.err
