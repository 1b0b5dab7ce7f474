"""What all tests share: a home of their own, and the default model, fetched once into the user's
cache (98 MB)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.threads import SPINS

# As in the engine's own process, and for the same reason: tests share their cores with programs
# that they start. OpenMP reads it when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

from engine.loading.catalog import fetch
from tests.chat_tui.browser import Browser, found


@pytest.fixture(scope="session")
def smollm2_path(session_home: Path) -> Path:
    """SmolLM2-135M-Instruct in Q4_1, as a GGUF file; also in the cache of `session_home`."""
    chosen = os.environ.pop("CHAT_TUI_HOME")
    if outer := os.environ.get("CHAT_TUI_TEST_HOME"):
        os.environ["CHAT_TUI_HOME"] = outer
    try:
        path = fetch("smollm2", lambda what, done, total: None)
    finally:
        os.environ["CHAT_TUI_HOME"] = chosen
    models = session_home / "cache" / "models"
    models.mkdir(parents=True, mode=0o700, exist_ok=True)
    for file in (path, *path.parent.glob(path.name + ".*")):
        (models / file.name).symlink_to(file)
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, where there is one."""
    program = found()
    if program is None:
        pytest.skip("no Chromium: pages are only tested where it is installed")
    with Browser(program) as browser:
        yield browser


@pytest.fixture(scope="session", autouse=True)
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`CHAT_TUI_HOME` of all tests: nothing that they do touches the user's own files."""
    home = tmp_path_factory.mktemp("home")
    outer = os.environ.get("CHAT_TUI_HOME")
    if outer:
        os.environ["CHAT_TUI_TEST_HOME"] = outer
    os.environ["CHAT_TUI_HOME"] = str(home)
    yield home
    if outer is None:
        del os.environ["CHAT_TUI_HOME"]
    else:
        os.environ["CHAT_TUI_HOME"] = outer
