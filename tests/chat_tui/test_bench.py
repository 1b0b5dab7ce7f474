"""`chat-tui bench`: the command, its tables, and the screen measured in a pseudo-terminal. Nothing
here depends on how long anything takes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from chat_tui import bench_tables, screen_bench
from chat_tui.screen_probe import Config, Lateness, ScriptedBackend
from chat_tui.settings import Settings, Source
from engine.bench.report import (
    Check,
    Decode,
    Goal,
    Kernel,
    KVUse,
    Machine,
    Prefill,
    Report,
    Screen,
    ScreenLoad,
    SharedPrefill,
    Start,
    Subject,
    Turn,
)
from engine.errors import EngineError
from engine.messages import Ask, Load, Ready, Started, Stepped
from tests.chat_tui.command_line import CommandLine

ROOT = Path(__file__).parent.parent.parent
MODEL = ROOT / "tests" / "data" / "nanochat" / "V6"

LOAD = ScreenLoad(200.0, 0.001, 0.012, 0.38, 0.04)
REPORT = Report(
    machine=Machine(
        31.5e9, 20.5e9, 4.29e11, "bfloat16", "cpu", "A CPU", 4, 2, "passive", "2.13", 5
    ),
    model=Subject(
        name="smollm2",
        family="llama",
        parameters=134_515_008,
        weight_bytes=94_765_056,
        kv_bytes_per_token=23_040,
        context=8192,
        dtype="Q4_1, Q8_0",
        device="cpu",
        backend="sdpa",
        backend_note="flash-attention needs an NVIDIA GPU, this is cpu",
        decoding="eager",
        kv=(KVUse(8, 2048, 59_000_000, 390_000_000, 53_000_000, 383_000_000, True),),
    ),
    prefill=(Prefill(2048, 0.95, 2155.8, 0.61),),
    decode=(
        Decode(1, 2048, 0.0173, 0.019, 57.8, 0.25),
        Decode(8, 2048, 0.043, 0.051, 186.0, 0.11),
    ),
    shared_prefill=(SharedPrefill(2000, 8, 1.0, 7.9),),
    conversation=(Turn(1, 128, 128, 0.06, 0.06), Turn(2, 288, 129, 0.13, 0.065)),
    screen=Screen(
        panes=8,
        tokens_per_s=200.0,
        engine_rate_kept=0.91,
        lateness_p50_s=0.001,
        lateness_p95_s=0.012,
        cpu_share=0.38,
        key_echo_p95_s=0.04,
        resize_s=0.15,
        long_answer=LOAD,
        with_engine=LOAD,
        start=Start(0.1, 0.31, 2.2),
    ),
)


def shown(report: Report, width: int = 80) -> str:
    out = StringIO()
    bench_tables.show(report, Console(file=out, width=width, highlight=False))
    return out.getvalue()


class TestTables:
    def test_a_bar_has_the_length_of_its_share(self):
        assert bench_tables.bar(1.0).plain == "█" * 20
        assert bench_tables.bar(0.5).plain == "█" * 10
        assert bench_tables.bar(0.51).plain == "█" * 10 + "▎"
        assert bench_tables.bar(0.0).plain == ""
        assert bench_tables.bar(7.0).plain == "█" * 20

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (31.5e9, "31.5 GB"),
            (4.2e11, "420 GB"),
            (23040, "23.0 kB"),
            (950, "950 B"),
            (0, "0.00 B"),
        ],
    )
    def test_sizes_have_three_digits(self, value, written):
        assert bench_tables.si(value, "B") == written

    @pytest.mark.parametrize(
        ("value", "written"), [(1.254, "1.25 s"), (0.0173, "17.3 ms"), (0.00085, "850 us")]
    )
    def test_times_have_their_unit(self, value, written):
        assert bench_tables.seconds(value) == written

    @pytest.mark.parametrize("width", [80, 120])
    def test_everything_fits_and_nothing_is_cut(self, width):
        text = shown(REPORT, width)
        assert "…" not in text
        assert all(len(line) <= width for line in text.splitlines())

    def test_the_savings_of_a_shared_prefill_are_told(self):
        text = shown(REPORT)
        assert "7.9 x sooner: 4.00 M prefill units, not 32.0 M" in text
        assert "1.01 x one row's first token" in text

    def test_another_loop_stands_beside_ours(self):
        eager = tuple(replace(row, tokens_per_s=row.tokens_per_s / 2) for row in REPORT.decode)
        text = shown(replace(REPORT, eager=eager))
        assert text.count("2.00 x") == 2
        assert "…" not in text

    def test_goals_are_met_or_missed_and_failed_checks_say_why(self):
        goals = (Goal("times eager", 4.25, 3.0), Goal("over one row", 1.2, 1.1, at_most=True))
        checks = (Check("one", True, "fine"), Check("two", False, "step 3 differs"))
        kernels = (Kernel("gemm", 80, 3e-4), Kernel("3 others", 20, 1e-4))
        text = shown(replace(REPORT, goals=goals, checks=checks, kernels=kernels))
        assert re.search(r"times eager +4.25 +at least 3 +met", text)
        assert re.search(r"over one row +1.20 +at most 1.1 +missed", text)
        assert "1 of 2 checks passed" in text
        assert "FAILED: two: step 3 differs" in text
        assert "A step of 1 row: 100 kernels, 400 us" in text

    def test_what_was_not_measured_is_not_shown(self):
        assert shown(Report()).strip() == ""
        assert "The screen" in shown(Report(screen=REPORT.screen))

    def test_the_screen_has_the_fields_that_scripts_rely_on(self):
        screen = json.loads(json.dumps(REPORT.document()))["screen"]
        assert {
            "panes",
            "tokens_per_s",
            "engine_rate_kept",
            "lateness_p50_s",
            "lateness_p95_s",
            "cpu_share",
        } <= set(screen)


class TestCommand:
    def test_json_is_one_document_and_nothing_else(self, command_line: CommandLine):
        model = next((MODEL / "chatsft_checkpoints" / "d4").glob("model_*.pt"))
        done = command_line(
            "bench",
            *("--model", str(model), "--device", "cpu", "--dtype", "float32", "--json", "--quick"),
            *("--prompt-tokens", "16,24", "--rows", "1,2", "--decode-tokens", "3"),
            *("--repeats", "1", "--turns", "2"),
        )
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert set(document) == {
            "machine",
            "model",
            "prefill",
            "decode",
            "shared_prefill",
            "conversation",
            "screen",
        }
        assert [(row["prompt_tokens"], row["rows"]) for row in document["decode"]] == [
            (16, 1),
            (16, 2),
            (24, 1),
            (24, 2),
        ]
        assert "some " in done.err
        assert "\x1b" not in done.err

    def test_the_measurement_of_a_gpu_can_be_tried_without_one(self, command_line: CommandLine):
        done = command_line(
            "bench",
            *("--suite", "gpu", "--device", "cpu", "--check", "--json"),
            *("--repeats", "1", "--turns", "0"),
        )
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert all(check["passed"] for check in document["checks"])
        assert document["model"]["decoding"] == "pipelined"
        assert "NVIDIA GPU" in document["model"]["backend_note"]
        cases = [(row["prompt_tokens"], row["rows"]) for row in document["decode"]]
        assert [(row["prompt_tokens"], row["rows"]) for row in document["eager"]] == cases
        assert document["kernels"]
        assert "figures mean nothing" in done.err

    def test_a_model_that_is_not_there_is_one_line(self, command_line: CommandLine):
        done = command_line("bench", "--model", "no-such-model")
        assert done.code == 1
        assert done.out == ""
        assert done.err.startswith("chat-tui: ")
        assert len(done.err.splitlines()) == 1

    @pytest.mark.parametrize(
        "arguments", [("--rows", "a"), ("--rows", "0"), ("--suite", "tpu"), ("--check",)]
    )
    def test_wrong_usage_has_exit_code_2(self, arguments, command_line: CommandLine):
        assert command_line("bench", *arguments).code == 2

    def test_help_does_not_wait_for_torch(self):
        check = (
            "import sys, chat_tui.bench; "
            "assert not {'torch', 'rich.table', 'textual'} & set(sys.modules), 'heavy'"
        )
        subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


class TestScriptedBackend:
    def test_it_says_what_is_due(self):
        now = [100.0]
        backend = ScriptedBackend(25.0, clock=lambda: now[0])
        backend.send(Load("any"))
        assert [type(event) for event in backend.drain()] == [Ready]
        backend.send(Ask(7, "?", samples=3))
        now[0] += 2.0
        events = backend.drain()
        assert isinstance(events[0], Started)
        steps = [event for event in events if isinstance(event, Stepped)]
        assert len(steps) == 50
        assert all(len(step.texts) == 3 and step.ask == 7 for step in steps)
        assert backend.drain() == []
        now[0] += 0.2
        assert len(backend.drain()) == 5

    def test_rows_may_hold_much_before_the_stream_begins(self):
        now = [0.0]
        backend = ScriptedBackend(25.0, held=4000, clock=lambda: now[0])
        backend.send(Ask(1, "?", samples=2))
        assert sum(isinstance(event, Stepped) for event in backend.drain()) == 4000
        now[0] += 1.0
        assert len(backend.drain()) == 25

    def test_rows_differ(self):
        backend = ScriptedBackend(1.0, held=3)
        backend.send(Ask(1, "?", samples=8))
        step = next(event for event in backend.drain() if isinstance(event, Stepped))
        assert len(set(step.texts)) > 4


async def test_a_pause_counts_with_every_timer_it_swallowed():
    lateness = Lateness()
    watching = asyncio.create_task(lateness.watch())
    await asyncio.sleep(0.05)
    lateness.seconds.clear()
    time.sleep(0.3)
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    watching.cancel()
    late = sorted(lateness.seconds)
    assert len(late) >= 14
    assert late[-1] >= 0.25
    assert late[len(late) // 2] >= 0.12


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
class TestProbe:
    def test_the_program_is_measured_and_its_keys_echo(self):
        run = screen_bench.run_probe(
            {"panes": 8, "rate": 25.0, "seconds": 1.0, "resize": screen_bench.RESIZED}
        )
        load = run.load()
        assert load.tokens_per_s > 0
        assert 0 < load.cpu_share < 8
        assert 0 <= load.lateness_p50_s <= load.lateness_p95_s
        assert len(run.echoes) >= 1
        assert run.figures["resize_s"] > 0

    def test_it_ends_with_the_process_that_measures(self, endless_path):
        """Killed, that tells nobody; and its pseudo-terminal is nobody's controlling terminal."""
        config = {"panes": 2, "rate": 0, "max_tokens": 60_000, "model": str(endless_path)}
        program = (
            "from chat_tui import screen_bench\n"
            "take = screen_bench._Watch._take_paint\n"
            "screen_bench._Watch._take_paint = lambda *_: (print('.', flush=True), take(*_))\n"
            f"screen_bench.run_probe({config})\n"
        )
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as measuring:
            assert measuring.stdout is not None
            assert measuring.stdout.readline(), "something is painted"
            (probe,) = psutil.Process(measuring.pid).children()
            while not (engines := probe.children()):
                time.sleep(0.01)
            measuring.kill()
        try:
            deadline = time.monotonic() + 20
            while any(map(runs, (probe, *engines))):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            for process in filter(runs, (probe, *engines)):
                process.kill()

    def test_a_program_that_fails_says_why(self):
        with pytest.raises(EngineError, match="there is no model"):
            screen_bench.run_probe({"panes": 2, "rate": 0, "model": "no-such-model"})

    def test_the_start_is_help_then_a_frame_then_a_model(self, endless_path):
        settings = Settings(models=(Source(str(endless_path)),))
        start = screen_bench.start_times(settings, repeats=1)
        assert start.help_s > 0
        assert 0 < start.first_frame_s < start.ready_s

    def test_with_and_without_a_screen_the_same_is_asked(self):
        config = Config(descriptor=-1, panes=3, model="smollm2", max_tokens=9, threads=2)
        settings = config.settings()
        assert settings == Settings(
            models=(Source("smollm2"),), samples=3, max_tokens=9, seed=1, tools=False, threads=2
        )
        assert Config(**json.loads(config.to_json())) == config

    def test_the_engine_alone_answers_what_it_is_asked(self, endless_path):
        asked = {"panes": 2, "rate": 0, "asks": 2, "max_tokens": 4, "model": str(endless_path)}
        rates = screen_bench.engine_alone(asked)
        assert len(rates) == 2
        assert all(rate > 0 for rate in rates)

    def test_a_key_is_one_that_nothing_else_paints(self):
        from chat_tui.screen_probe import _SCRIPT

        assert len(set(screen_bench.KEYS)) == len(screen_bench.KEYS) >= 50
        assert not set(screen_bench.KEYS) & set(_SCRIPT)
