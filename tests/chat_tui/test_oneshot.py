"""One question from the command line or a pipe, to the real model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chat_tui.backends.local import LocalBackend
from engine.messages import Score, Scored
from tests.chat_tui.command_line import CommandLine
from tests.events import until


@pytest.fixture
def ask_once(
    command_line: CommandLine, engine_process: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    """The command line, with an engine that runs already and goes on running."""
    monkeypatch.setattr(engine_process, "close", lambda: None)
    monkeypatch.setattr("chat_tui.backends.local.LocalBackend", lambda: engine_process)
    yield command_line
    engine_process.send(Score(0, (1, 2), start=1))
    until(engine_process, Scored)  # and all that it may still have had to say


def test_a_pipe_is_answered_with_the_text_alone_and_a_seed_repeats_it(ask_once):
    arguments = ("-t", "0.9", "--max-tokens", "12", "--seed", "5")
    done = ask_once(*arguments, stdin="Name a colour, in one word: naïve 東京 😀\n")
    again = ask_once(*arguments, "-p", "Name a colour, in one word: naïve 東京 😀")
    assert (done.code, done.err) == (0, "")
    assert done.out.strip()
    assert done.out == again.out


def test_several_answers_stand_under_headers(ask_once):
    done = ask_once("-p", "Hi", "-n", "3", "--max-tokens", "4", "--seed", "5")
    headers = [line for line in done.out.splitlines() if line.startswith("--- ")]
    assert [line.split()[1] for line in headers] == ["1/3", "2/3", "3/3"]
    assert [re.search(r"seed (\d+)", line).group(1) for line in headers] == ["5", "6", "7"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-p", "Hi", "-m", "no-such-model"), 1, "no-such-model"),
        (("-p", ""), 2, "nothing to ask"),
        (("-p", "Hi", "-t", "warm"), 2, "takes one number"),
        (("-p", "Hi", "-k", "1,-2"), 2, "--top-k takes a whole number"),
        (("-p", "Hi", "-n", "0"), 2, "--samples"),
        (("-p", "Hi", "--sampels", "2"), 2, "--samples"),
        (("-p", "Hi", "--device", "abacus"), 1, "abacus"),
        (("-p", "Hi", "--dtype", "int3"), 1, "int3"),
        (("-p", "word " * 9000), 1, "tokens and the model holds 8192"),
        ((), 2, "nothing to ask"),
    ],
)
def test_bad_input_is_one_line_and_a_code(ask_once, arguments, code, message):
    done = ask_once(*arguments)
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
