"""What all tests share: the default model, fetched once into the user's cache (98 MB)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.loading.catalog import fetch


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct in Q4_1, as a GGUF file."""
    return fetch("smollm2", lambda what, done, total: None)
