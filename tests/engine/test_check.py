"""The checks that go before a measurement on a GPU: that they can fail, and say where."""

from __future__ import annotations

import re
from itertools import islice

import pytest
import torch

from engine.bench import check
from engine.bench.check import checks
from engine.static_cache import StaticCache

CPU = torch.device("cpu")


def test_a_check_that_breaks_is_told_and_the_others_run(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: an illegal memory access\nstack")

    cases = [("first", broken), ("second", lambda: (True, "as it should be"))]
    monkeypatch.setattr(check, "_of_attention", lambda device: iter(cases))
    monkeypatch.setattr(check, "_of_decoding", lambda device, decoding: iter(()))
    told: list[str] = []
    first, second = checks(CPU, tell=told.append)
    assert (first.passed, first.detail) == (
        False,
        "RuntimeError: CUDA error: an illegal memory access",
    )
    assert second.passed
    assert [line.split()[0] for line in told] == ["FAILED", "ok"]


def test_rows_that_are_not_given_the_prompt_are_found(monkeypatch):
    def width_alone(self: StaticCache, rows: int) -> None:
        self._use(rows)
        self.cache_seqlens.fill_(self._length)

    first_two = list(islice(check._of_decoding(CPU, "pipelined"), 2))
    monkeypatch.setattr(check, "_of_attention", lambda device: iter(()))
    monkeypatch.setattr(check, "_of_decoding", lambda device, decoding: iter(first_two))
    monkeypatch.setattr(StaticCache, "spread", width_alone)
    one, eight = checks(CPU)
    assert one.passed
    assert not eight.passed
    assert re.match(r"step \d+ emits \(.*\) and should \(", eight.detail)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_gpu_of_this_machine_computes_what_it_should():
    failed = [one for one in checks(torch.device("cuda")) if not one.passed]
    assert failed == []
