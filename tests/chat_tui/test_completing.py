"""What shells are offered behind options, in the words of each shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chat_tui import cli, completing
from chat_tui.store import FILE_NAME, Store
from engine.paths import data_dir
from tests.chat_tui.test_store import Kept


def offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, line: str
) -> str:
    """What the program prints for a shell in which Tab is pressed behind `line`."""
    words = line.split(" ")
    monkeypatch.setenv("_CHAT_TUI_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setattr(sys, "argv", ["chat-tui"])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("chat-tui --them", "--theme"),
        ("chat-tui --theme nor", "nord"),
        ("chat-tui --model smol", "smollm2"),
        ("chat-tui --dtype b", "bfloat16"),
        ("chat-tui conf", "config"),
        ("chat-tui export 1 --format dp", "dpo"),
        ("chat-tui models show smol", "smollm2"),
    ],
)
def test_names_are_offered_in_every_shell(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shell: str,
    line: str,
    expected: str,
) -> None:
    assert expected in offered(monkeypatch, capsys, shell, line)


@pytest.fixture
def titled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one session, whose title would be a command in zsh."""
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    talk = Kept(data_dir() / FILE_NAME)
    talk.ask("Hi", "one", "two", pick=0)
    talk.save()
    talk.close()
    with Store.open() as store:
        store.rename(1, 'Say \\`touch x\\` "now" $(y)\nor')
    return tmp_path


def test_sessions_are_offered_with_titles_that_no_shell_can_run(titled: Path) -> None:
    assert completing.sessions("") == [("1", "Say touch x now y or")]
    assert completing.sessions("2") == []


def test_a_store_that_cannot_be_read_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sessions.db").write_bytes(b"nonsense" * 200)
    assert completing.sessions("") == []


def test_paths_are_offered_where_the_shell_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.gguf").touch()
    (tmp_path / "mine.txt").touch()
    line = f"chat-tui --model {tmp_path}/mi"
    assert offered(monkeypatch, capsys, "fish", line).strip() == f"{tmp_path}/mine.gguf"
    assert offered(monkeypatch, capsys, "bash", line).strip() == ""
