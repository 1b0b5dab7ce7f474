"""llama.cpp beside `chat-tui`, on this machine and in one go: prints the table of the README.

    python bench/llama_cpp.py                          # the default model, tools from PATH
    python bench/llama_cpp.py MODEL.gguf --llama-cpp BUILD/bin --llama-cpp OTHER/bin --rounds 7

Needs `llama-bench` or `llama-batched-bench`, or both. In each round every program is run once, so
that all of them see the same minutes of the machine; what counts are medians over the rounds, and
of several builds the best for each row. llama.cpp's figures are those of its own tools: they leave
out sampling and detokenisation, which ours have in them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

PROMPTS = (512, 2048)
ROWS = (1, 8)
DECODED = 64

Row: TypeAlias = "tuple[str, int, int]"
"""(what, rows, prompt tokens): ("prefill", 1, 512), ("decode", 8, 2048)."""

Rates: TypeAlias = "dict[Row, float]"
"""Tokens per second, of all rows together."""


class ComparisonError(Exception):
    """One line for the user."""


def rates_of_bench(document: Mapping[str, Any]) -> Rates:
    """From `chat-tui bench --json`."""
    rates: Rates = {}
    for row in document["prefill"]:
        rates["prefill", 1, row["prompt_tokens"]] = row["tokens_per_s"]
    for row in document["decode"]:
        rates["decode", row["rows"], row["prompt_tokens"]] = row["tokens_per_s"]
    return rates


def rates_of_llama_bench(text: str) -> Rates:
    """From `llama-bench -o json`: pure prefills, and decodes of one row at a depth."""
    rates: Rates = {}
    for test in json.loads(text):
        if test["n_gen"] == 0:
            rates["prefill", 1, test["n_prompt"]] = test["avg_ts"]
        elif test["n_prompt"] == 0:
            rates["decode", 1, test.get("n_depth", 0)] = test["avg_ts"]
    return rates


def rates_of_batched_bench(text: str) -> Rates:
    """From `llama-batched-bench -pps --output-format jsonl`: one prefill, then all rows."""
    rates: Rates = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        test = json.loads(line)
        rates["decode", test["pl"], test["pp"]] = test["speed_tg"]
        # The prompt is shared, so each number of rows prefills the same: one of them will do.
        rates.setdefault(("prefill", 1, test["pp"]), test["pp"] / test["t_pp"])
    return rates


@dataclass(frozen=True)
class Build:
    """One build of llama.cpp: the tools of it that are there."""

    bench: str | None
    batched: str | None

    @classmethod
    def find(cls, folder: str | None) -> Build:
        """In `folder`, or on PATH."""
        return cls(*(shutil.which(f"llama-{name}", path=folder) for name in _TOOLS))

    def measure(self, model: Path, threads: int) -> Rates:
        """Every row once; of two tools that measure the same row, the better figure."""
        common = ("-m", str(model), "-t", str(threads))
        found: list[Rates] = []
        prompts = ",".join(map(str, PROMPTS))
        if self.bench:
            tests = (("-p", prompts, "-n", "0"), ("-p", "0", "-n", str(DECODED), "-d", prompts))
            found += [
                rates_of_llama_bench(run(self.bench, *common, *test, "-r", "1", "-o", "json"))
                for test in tests
            ]
        if self.batched:
            # Room without sharing, too: not every version keeps the rows in one cache.
            context = max(ROWS) * (max(PROMPTS) + DECODED)
            lengths = ("-npp", prompts, "-ntg", str(DECODED), "-npl", ",".join(map(str, ROWS)))
            options = ("-c", str(context), "-pps", "--output-format", "jsonl")
            found.append(rates_of_batched_bench(run(self.batched, *common, *lengths, *options)))
        return best(found)


_TOOLS = ("bench", "batched-bench")


def best(found: Iterable[Rates]) -> Rates:
    """For each row the highest rate."""
    rates: Rates = {}
    for one in found:
        for row, rate in one.items():
            rates[row] = max(rate, rates.get(row, 0.0))
    return rates


def run(*command: str) -> str:
    """What the command writes, to stderr where it writes nothing to stdout: llama.cpp's logger has
    used either."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ComparisonError(f"{Path(command[0]).name} failed ({done.returncode}): {last}")
    return done.stdout if done.stdout.strip() else done.stderr


def ours(model: str, threads: int) -> Rates:
    """Every row once."""
    start = "from chat_tui.cli import main; main()"
    options = {
        "--model": model,
        "--device": "cpu",
        "--threads": threads,
        "--prompt-tokens": ",".join(map(str, PROMPTS)),
        "--rows": ",".join(map(str, ROWS)),
        "--decode-tokens": DECODED,
        "--repeats": 1,
        "--turns": 0,
    }
    words = [str(word) for option in options.items() for word in option]
    return rates_of_bench(json.loads(run(sys.executable, "-c", start, "bench", "--json", *words)))


def medians(rounds: Iterable[Rates]) -> Rates:
    seen: dict[Row, list[float]] = defaultdict(list)
    for rates in rounds:
        for row, rate in rates.items():
            seen[row].append(rate)
    return {row: statistics.median(values) for row, values in seen.items()}


def table(mine: Rates, theirs: Rates) -> str:
    """Markdown; rows that both have measured."""
    lines = [
        "| tokens/s, all rows together | chat-tui | llama.cpp | ratio |",
        "|---|---|---|---|",
    ]
    for row in sorted(set(mine) & set(theirs), key=lambda row: (row[0] != "prefill", row[1:])):
        what, rows, prompt = row
        name = f"prefill {prompt:,} tokens"
        if what == "decode":
            name = f"decode, {rows} row{'s' * (rows > 1)} after {prompt:,}"
        ratio = mine[row] / theirs[row]
        lines.append(f"| {name} | {mine[row]:,.0f} | {theirs[row]:,.0f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="a GGUF file, or a name")
    parser.add_argument("--llama-cpp", action="append", metavar="DIR", help="with its tools")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="all rounds, instead of the table")
    arguments = parser.parse_args()
    try:
        builds = [Build.find(folder) for folder in arguments.llama_cpp or [None]]
        builds = [build for build in builds if build.bench or build.batched]
        if not builds:
            raise ComparisonError("no llama-bench found: put it on PATH or say --llama-cpp DIR.")
        from engine.errors import EngineError
        from engine.loading import catalog

        try:
            path = catalog.resolve(arguments.model, lambda what, done, total: None)
        except EngineError as error:
            raise ComparisonError(str(error)) from None
        mine: list[Rates] = []
        theirs: list[list[Rates]] = [[] for _ in builds]
        for round_ in range(arguments.rounds):
            print(f"round {round_ + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            mine.append(ours(arguments.model, arguments.threads))
            for build, rounds in zip(builds, theirs, strict=True):
                rounds.append(build.measure(path, arguments.threads))
    except ComparisonError as error:
        raise SystemExit(f"llama_cpp.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    if arguments.json:
        print(json.dumps({"ours": _plain(mine), "llama_cpp": [_plain(one) for one in theirs]}))
    else:
        print(table(medians(mine), best(medians(rounds) for rounds in theirs)))


def _plain(rounds: list[Rates]) -> list[dict[str, float]]:
    return [
        {f"{what} rows={rows} prompt={prompt}": rate for (what, rows, prompt), rate in one.items()}
        for one in rounds
    ]


if __name__ == "__main__":
    main()
