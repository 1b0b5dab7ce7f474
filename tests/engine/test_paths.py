"""Where the program keeps what it keeps."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.loading.catalog import models_dir
from engine.paths import cache_dir, config_dir, data_dir, state_dir


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_four_folders_lie_under_home_and_are_private(home: Path) -> None:
    folders = [config_dir(), data_dir(), cache_dir(), state_dir()]
    assert folders == [home / "config", home / "data", home / "cache", home / "state"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in [home, *folders]} == {0o700}


def test_without_home_the_folders_are_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAT_TUI_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert models_dir() == tmp_path / "xdg" / "chat-tui" / "models"


def test_a_home_that_cannot_be_made_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="set CHAT_TUI_HOME to a folder that can be written"):
        cache_dir()
