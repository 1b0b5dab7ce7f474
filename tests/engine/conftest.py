"""What the tests of the engine share."""

from __future__ import annotations

import sys

import pytest

from engine.threads import cores


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> None:
    """Tiny models only pay for a second thread; the default one runs on as many as in the
    program."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(cores() if "exact" in request.fixturenames else 1)
