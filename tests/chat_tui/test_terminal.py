"""The real program with the real model in a real pseudo-terminal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.loading.chat_formats import from_gguf
from engine.loading.gguf import read_gguf
from engine.tokenizer import Tokenizer
from tests.chat_tui.terminal import Terminal

pytestmark = pytest.mark.usefixtures("smollm2_path")


def tokens_shown(screen: str) -> list[int]:
    """The token counts under the panes."""
    return [int(count) for count in re.findall(r"(\d+) tok · ", screen)]


def test_ask_compare_pick_go_on_and_quit(smollm2_path: Path, tmp_path: Path):
    """Two questions, two answers each; the second answer of the first is picked; then the exact ids
    are checked."""
    saved = tmp_path / "conversation.json"
    terminal = Terminal("-n", "2", "-t", "0.9", "--seed", "11", "--max-tokens", "40")
    terminal.until("Enter sends")
    terminal.press("What is 4821 - 977?", "enter")  # typed before the model is there
    terminal.until(lambda screen: screen.count("✓") + screen.count("…") >= 2 and "TTFT" in screen)
    terminal.press("alt+2")
    terminal.until("2 of 2")
    terminal.press("Name a fruit.", "enter")
    terminal.until(lambda screen: "Name a fruit." in screen and len(tokens_shown(screen)) == 2)
    terminal.until("Enter continues with")
    terminal.press("alt+1")
    terminal.until("1 of 2")
    terminal.press(f"/save {saved}", "enter")
    terminal.until("2 turns written")
    terminal.press("ctrl+q")
    assert terminal.end() == 0

    document = json.loads(saved.read_text("utf-8"))
    assert [turn["user"] for turn in document["turns"]] == ["What is 4821 - 977?", "Name a fruit."]
    assert [turn["picked"] for turn in document["turns"]] == [1, 0]
    assert all(len(turn["samples"]) == 2 for turn in document["turns"])

    # The list is what the chat format makes of these turns, with the picked ids as generated.
    metadata = read_gguf(smollm2_path).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    chat_format = from_gguf(metadata, tokenizer)
    expected: list[int] = []
    for turn in document["turns"]:
        answer = turn["samples"][turn["picked"]]
        expected += [*chat_format.following(turn["user"]), *answer["tokens"]]
        assert answer["closing"] == chat_format.closing(answer["tokens"])
        expected += answer["closing"]
    assert document["tokens"][document["preface_tokens"] :] == expected

    # What was forced is marked so: the calculator's answer, and everything that is not an answer.
    call = document["turns"][0]["samples"][1]
    assert call["tool_calls"][0]["result"] is not None
    forced = [token for token, mask in zip(call["tokens"], call["mask"], strict=True) if not mask]
    assert tokenizer.decode(forced) == call["tool_calls"][0]["result"] + ">>"
    assert len(document["mask"]) == len(document["tokens"])
    sampled = sum(sum(turn["samples"][turn["picked"]]["mask"]) for turn in document["turns"])
    assert sum(document["mask"]) == sampled


def test_a_killed_engine_costs_no_answer_and_a_lost_terminal_leaves_nothing_behind(
    endless_path: Path,
):
    terminal = Terminal("-m", str(endless_path), "-n", "2", "-t", "0")
    terminal.until("0/65,536")
    terminal.press("Write a very long story about the sea.", "enter")
    terminal.until(lambda screen: min(tokens_shown(screen), default=0) > 5)
    program = psutil.Process(terminal.process.pid)
    (engine,) = program.children(recursive=True)
    engine.kill()
    screen = terminal.until("The engine was killed")
    assert min(tokens_shown(screen)) > 5
    terminal.press("Write another one.", "enter")  # starts it anew, going on with what was streamed
    terminal.until(
        lambda screen: "▌ Write another" in screen and min(tokens_shown(screen), default=0) > 3
    )
    terminal.press("ctrl+c")  # stops what runs
    terminal.until("■")
    terminal.press("ctrl+c")  # nothing runs: says how to leave
    terminal.until("Ctrl+Q quits")

    # In the middle of an answer the terminal goes away, as when an ssh connection breaks.
    terminal.press("And one more.", "enter")
    terminal.until(
        lambda screen: "▌ And one" in screen and min(tokens_shown(screen), default=0) > 3
    )
    started = [program, *program.children(recursive=True)]
    terminal.lose()
    gone, alive = psutil.wait_procs(started, timeout=20)
    assert not alive
    assert len(gone) == 2


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from chat_tui.cli import main; main()", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_question_from_the_command_line_is_one_json_document():
    done = run("-p", "What is 36*17?", "-t", "0,0.8", "-k", "50,7", "--max-tokens", "30", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert list(document) == ["model", "prompt_tokens", "samples", "stats"]
    assert document["model"] == "smollm2"
    assert document["prompt_tokens"] > 100
    first, second = document["samples"]
    assert list(first) == [
        "index",
        "text",
        "tokens",
        "mask",
        "finish_reason",
        "tool_calls",
        "seed",
        "temperature",
        "top_k",
    ]
    assert first["text"].replace(" ", "") == "36*17=<<36*17=612>>612"
    assert first["tool_calls"] == [{"expression": "36*17", "result": "612"}]
    assert first["finish_reason"] == "stop"
    assert len(first["tokens"]) == len(first["mask"])
    assert (first["temperature"], second["temperature"]) == (0.0, 0.8)
    assert (first["top_k"], second["top_k"]) == (50, 7)
    assert second["seed"] == first["seed"] + 1
    assert set(document["stats"]) == {
        "ttft_s",
        "prefill_s",
        "decode_s",
        "tokens_per_s",
        "backend",
    }


def test_what_goes_wrong_is_one_line_and_a_code():
    done = run("-p", "Hi", "-m", "no-such-model")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("chat-tui: There is no model 'no-such-model'")
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupt_ends_with_130_and_keeps_what_was_written(endless_path: Path):
    program = (sys.executable, "-c", "from chat_tui.cli import main; main()")
    asked = ("-p", "Write a very long story.", "-t", "0", "--max-tokens", "60000")
    process = subprocess.Popen(
        [*program, "-m", str(endless_path), *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert first
    assert rest.endswith(b"\n")
    assert errors == b""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_neither_torch_nor_textual(arguments):
    program = (
        "import sys\n"
        "from chat_tui.cli import main\n"
        f"sys.argv = ['chat-tui', *{arguments}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'textual', 'tiktoken', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_is_the_program():
    command = [sys.executable, "-m", "chat_tui", "--version"]
    assert subprocess.check_output(command, text=True).startswith("chat-tui ")


def test_the_first_frame_needs_no_torch():
    program = "import sys, chat_tui.app; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
