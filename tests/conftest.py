"""What all tests share: a home of their own, and the default model, fetched once into the user's
cache (98 MB)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.threads import SPINS

# As in the engine's own process, and for the same reason: tests share their cores with programs
# that they start. OpenMP reads it when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

from chat_tui.backends.local import LocalBackend
from engine.loading.catalog import fetch
from engine.messages import Load, Ready
from engine.native import library
from engine.paths import cache_dir, private_folder
from tests.chat_tui.browser import Browser, found
from tests.events import until

if TYPE_CHECKING:
    from engine import LoadedModel

NANOCHAT = Path(__file__).parent / "data" / "nanochat" / "V6"


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
    models = private_folder(session_home / "cache" / "models")
    for file in (path, *path.parent.glob(path.name + ".*")):
        (models / file.name).symlink_to(file)
    return path


@pytest.fixture(scope="session")
def exact(smollm2_path: Path) -> LoadedModel:
    """The default model with its weights in float32."""
    from engine import load_model  # and torch

    return load_model(str(smollm2_path), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def engine_process(smollm2_path: Path) -> Iterator[LocalBackend]:
    """The engine's process with the default model loaded. A test that leaves it without, or kills
    it, loads it again."""
    backend = LocalBackend()
    backend.send(Load("smollm2", device="cpu"))
    until(backend, Ready)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def endless_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny nanochat of noise with room for 65,536 tokens: it loads at once, and answers nonsense
    until it is stopped."""
    base = tmp_path_factory.mktemp("endless")
    for part in "chatsft_checkpoints", "tokenizer":
        shutil.copytree(NANOCHAT / part, base / part)
    folder = base / "chatsft_checkpoints" / "d4"
    (meta,) = folder.glob("meta_*.json")
    document = json.loads(meta.read_text())
    document["model_config"]["sequence_len"] = 65536
    meta.write_text(json.dumps(document))
    return folder


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
    """`CHAT_TUI_HOME` of all tests: nothing that they do touches the user's own files, but that the
    native step is compiled once for all of them."""
    home = tmp_path_factory.mktemp("home")
    outer = os.environ.get("CHAT_TUI_HOME")
    compiled = private_folder(cache_dir() / "native")
    if outer:
        os.environ["CHAT_TUI_TEST_HOME"] = outer
    os.environ["CHAT_TUI_HOME"] = str(home)
    (cache_dir() / "native").symlink_to(compiled)
    library.load()
    yield home
    if outer is None:
        del os.environ["CHAT_TUI_HOME"]
    else:
        os.environ["CHAT_TUI_HOME"] = outer
