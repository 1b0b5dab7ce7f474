"""What is copied, exactly, and where it goes: programs that stand in for clipboards, the sequences
for terminals, a file."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chat_tui import clipboard
from chat_tui.parts import Wanted, wanted
from engine.messages import NO_ID, ToolCall
from tests.chat_tui.running import Running, running

Installed = Callable[..., Path]
CODE = "Here:\n\n```python\nprint(1)\n\nprint(2)\n```\n\n- and\n  ```sh\n  ls -l\n  ```\n\nDone."


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Puts a program on an otherwise empty PATH that writes its stdin to the file returned."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    for name in ("TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def install(name: str, exit_code: int = 0, **environ: str) -> Path:
        took = tmp_path / f"{name}.took"
        program = programs / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(took)!r}, 'wb').write("
            f"repr(sys.argv[1:]).encode() + b'|' + sys.stdin.buffer.read())\nsys.exit({exit_code})"
        )
        program.chmod(0o700)
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        return took

    return install


def test_the_clipboard_program_of_the_display_is_given_the_text(installed: Installed) -> None:
    took = installed("xclip", DISPLAY=":0")
    assert clipboard.to_programs("naïve\n漢字 \ud800") == ["the clipboard (xclip)"]
    assert took.read_bytes() == "['-selection', 'clipboard']|naïve\n漢字 ?".encode()


def test_a_program_that_fails_is_passed_over(installed: Installed) -> None:
    installed("wl-copy", exit_code=1, WAYLAND_DISPLAY="wayland-0", DISPLAY=":0")
    took = installed("xsel")
    assert clipboard.to_programs("text") == ["the clipboard (xsel)"]
    assert took.read_bytes().endswith(b"|text")


def test_no_program_is_no_error(installed: Installed) -> None:
    assert clipboard.to_programs("text") == []


def test_a_program_without_a_display_is_not_asked(installed: Installed) -> None:
    installed("xclip")
    assert clipboard.to_programs("text") == []


def test_windows_is_given_utf_16(installed: Installed) -> None:
    took = installed("clip.exe", WSL_DISTRO_NAME="Ubuntu")
    assert clipboard.to_programs("é") == ["the clipboard (clip.exe)"]
    assert took.read_bytes().partition(b"|")[2].decode("utf-16") == "é"


def test_tmux_is_asked_beside_the_clipboard(installed: Installed) -> None:
    installed("xclip", DISPLAY=":0")
    took = installed("tmux", TMUX="/tmp/tmux-0/default,1,0")
    assert clipboard.to_programs("text") == ["the clipboard (xclip)", "tmux and its terminal"]
    assert took.read_bytes() == b"['load-buffer', '-w', '-']|text"


def sent(sequence: str) -> str:
    """The text that a terminal would take."""
    (data,) = re.findall(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", sequence)
    return base64.b64decode(data).decode()


def test_a_terminal_is_asked_by_osc_52() -> None:
    (sequence,) = clipboard.to_terminal("naïve\n", {"TERM": "xterm-kitty"})
    assert sent(sequence) == "naïve\n"


def test_tmux_is_sent_it_plain_and_to_pass_on() -> None:
    plain, passed = clipboard.to_terminal("text", {"TERM": "screen-256color", "TMUX": "x"})
    assert sent(plain) == "text"
    assert passed.startswith("\x1bPtmux;\x1b\x1b]52;c;")
    assert sent(passed[7:-2].replace("\x1b\x1b", "\x1b")) == "text"


def test_screen_is_sent_it_in_strings_that_it_takes() -> None:
    text = "long " * 1000
    pieces = clipboard.to_terminal(text, {"TERM": "screen", "STY": "1.pts"})
    assert all(piece.startswith("\x1bP") and piece.endswith("\x1b\\") for piece in pieces)
    assert max(map(len, pieces)) < 768
    assert sent("".join(piece[2:-2] for piece in pieces)) == text


@pytest.mark.parametrize(
    "environ", [{"TERM": "linux"}, {"TERM": "xterm", "TERM_PROGRAM": "Apple_Terminal"}]
)
def test_a_terminal_that_knows_no_osc_52_is_sent_none(environ: dict[str, str]) -> None:
    assert clipboard.to_terminal("text", environ) == []


def test_a_text_beyond_what_terminals_take_is_not_sent() -> None:
    assert clipboard.to_terminal("x" * clipboard.OSC_52_BYTES, {}) != []
    assert clipboard.to_terminal("x" * (clipboard.OSC_52_BYTES + 1), {}) == []


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("", Wanted()),
        ("2", Wanted(2)),
        ("code", Wanted(None, "code")),
        ("code 3", Wanted(None, "code", 3)),
        (" 2  CODE 1", Wanted(2, "code", 1)),
        ("tokens", Wanted(None, "tokens")),
        ("12 json", Wanted(12, "json")),
        ("code x", None),
        ("tokens 2", None),
        ("2code", None),
        ("0", None),
        ("-1", None),
    ],
)
def test_what_copy_takes(words: str, want: Wanted | None) -> None:
    assert wanted(words) == want


async def copied(run: Running, *keys: str) -> str:
    """Press keys, and wait until what they copy is where it belongs."""
    await run.press(*keys)
    await run.app.workers.wait_for_complete()
    await run.settle()
    return run.app.clipboard


async def answered(run: Running, *texts: str) -> None:
    await run.send("Hi")
    run.backend.start()
    run.backend.step(*texts)
    run.backend.finish()
    await run.settle()


async def test_the_answer_in_focus_is_copied_as_it_was_written(
    installed: Installed, tmp_path: Path
) -> None:
    text = "**bold**, 12*7 is <<12*7=84>>84.  \n\n" + "a long line " * 30 + "\n"
    took = installed("xclip", DISPLAY=":0")
    async with running(state=tmp_path) as run:
        await answered(run, "other", text)
        assert await copied(run, "tab", "right", "y") == text
        assert took.read_bytes().partition(b"|")[2].decode() == text
        assert run.told == ("Copied answer 2 (397 characters in 3 lines) to the clipboard (xclip).")
        assert not (tmp_path / "copied.txt").exists()


async def test_without_a_clipboard_the_terminal_and_a_file_are_named(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(state=tmp_path) as run:
        written: list[str] = []
        monkeypatch.setattr(run.app._driver, "write", written.append)
        await answered(run, "naïve", "other")
        await run.type("/copy 1")
        assert await copied(run, "enter") == "naïve"
        assert [sent(each) for each in written if "]52;" in each] == ["naïve"]
        file = tmp_path / "copied.txt"
        assert file.read_text("utf-8") == "naïve"
        assert file.stat().st_mode & 0o777 == 0o600
        assert run.told.startswith("Copied answer 1 (5 characters) to the terminal (OSC 52) and /")
        assert run.text == ""


async def test_a_private_chat_writes_no_file(installed: Installed) -> None:
    async with running() as run:
        await answered(run, "x" * 80_000, "other")
        await copied(run, "tab", "y")
        assert run.told.startswith("Nothing here takes 80,000 characters")


async def test_code_blocks_one_after_the_other(installed: Installed) -> None:
    async with running() as run:
        await answered(run, CODE, "no code")
        assert await copied(run, "tab", "Y") == "print(1)\n\nprint(2)"
        assert run.told.startswith("Copied code block 1 of 2 of answer 1 (18 characters in 3 lines")
        assert await copied(run, "Y") == "ls -l"
        assert await copied(run, "Y") == "print(1)\n\nprint(2)"
        assert await copied(run, "right", "Y") == "print(1)\n\nprint(2)"
        assert run.told == "There is no code block in answer 2."
        await run.press("shift+tab")
        await run.send("/copy 1 code 7")
        assert run.told == "Code blocks in answer 1: 2, and no 7."
        assert run.text == "/copy 1 code 7"


async def test_token_ids_with_and_without_their_mask(installed: Installed) -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.start()
        run.backend.step("12*7=", "x")
        call = ToolCall(0, 9, "12*7", "84", True)
        run.backend.step("84>>", "y", forced=[0], calls=[(0, 0, call)])
        await run.settle()
        ids = run.app.chat.turn.rows[0].tokens
        assert json.loads(await copied(run, "tab", "t")) == ids
        assert run.told.startswith("Copied the 2 token ids of answer 1 so far (")
        run.backend.finish()
        await run.settle()
        await run.press("1")
        await run.type("/copy json")
        sample = json.loads(await copied(run, "enter"))
        assert (sample["text"], sample["tokens"], sample["mask"]) == ("12*7=84>>", ids, [1, 0])
        assert sample["tool_calls"] == [{"expression": "12*7", "result": "84"}]
        run.app.chat.current.tokens[0] = NO_ID
        await run.send("/copy tokens")
        assert run.told == "The server did not tell which tokens they are."


async def test_nothing_to_copy_is_said(installed: Installed) -> None:
    async with running() as run:
        await run.send("/copy")
        assert run.told == "There is no answer to copy yet."
        await run.press("ctrl+u")
        await run.send("/copy everything")
        assert run.told == "/copy takes an answer's number, and code, code N, tokens or json."
        await run.press("ctrl+u")
        await answered(run, "one", "two")
        await run.send("/copy 3")
        assert run.told == "Answers here: 2, and no 3."


async def test_what_is_selected_in_the_prompt_is_copied_unfolded(installed: Installed) -> None:
    text = "\n".join(map(str, range(40)))
    async with running() as run:
        run.app.prompt.take_paste(text)
        await run.press("ctrl+a", "shift+end")
        assert await copied(run, "ctrl+c") == text
        assert await copied(run, "ctrl+x") == text
        assert run.text == ""
        await run.press("ctrl+v")
        assert run.text == "[pasted 40 lines]"
