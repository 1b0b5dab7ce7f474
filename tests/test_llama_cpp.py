"""`bench/llama_cpp.py`: what it reads out of llama.cpp's tools, and the table it makes of it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "bench" / "llama_cpp.py"

BENCH = json.dumps(
    [
        {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 1200.0},
        {"n_prompt": 0, "n_gen": 64, "n_depth": 512, "avg_ts": 70.0},
    ]
)
BATCHED = (
    "llama_batched_bench: loading\n"
    '{"n_kv_max": 4096, "pp": 512, "tg": 64, "pl": 1, "t_pp": 0.5, "speed_tg": 65.0}\n'
    '{"n_kv_max": 4096, "pp": 512, "tg": 64, "pl": 8, "t_pp": 0.6, "speed_tg": 148.0}\n'
)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("llama_cpp_comparison", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_llama_bench_has_prefills_and_single_rows(script):
    assert script.rates_of_llama_bench(BENCH) == {
        ("prefill", 1, 512): 1200.0,
        ("decode", 1, 512): 70.0,
    }


def test_batched_bench_has_all_rows_behind_one_prefill(script):
    assert script.rates_of_batched_bench(BATCHED) == {
        ("prefill", 1, 512): 1024.0,
        ("decode", 1, 512): 65.0,
        ("decode", 8, 512): 148.0,
    }


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
def test_of_two_tools_the_better_figure_counts(script, tmp_path):
    for name, said in (("llama-bench", BENCH), ("llama-batched-bench", BATCHED)):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        tool.chmod(0o755)
    rates = script.Build.find(str(tmp_path)).measure(Path("any.gguf"), threads=2)
    assert rates == {
        ("prefill", 1, 512): 1200.0,
        ("decode", 1, 512): 70.0,
        ("decode", 8, 512): 148.0,
    }


def test_a_tool_that_fails_is_one_line(script):
    with pytest.raises(script.ComparisonError, match="failed"):
        script.run(sys.executable, "-c", "raise SystemExit('no model')")


def test_the_table_compares_medians_of_what_both_have(script):
    mine = script.medians(
        [{("decode", 8, 512): rate, ("prefill", 1, 512): 2400.0} for rate in (100.0, 296.0, 900.0)]
    )
    theirs = {("decode", 8, 512): 148.0, ("prefill", 1, 512): 1200.0, ("decode", 1, 512): 70.0}
    assert script.table(mine, theirs).splitlines()[2:] == [
        "| prefill 512 tokens | 2,400 | 1,200 | 2.00 |",
        "| decode, 8 rows after 512 | 296 | 148 | 2.00 |",
    ]
