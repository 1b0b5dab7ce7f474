"""The real program in a pseudo-terminal rates prompts, is left, comes back and gives it away; a
scripted server answers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.sse_server import Asked, SseServer, Wire
from tests.chat_tui.terminal import Terminal

PROMPTS = ("Red?", "Blue?", "Green?", "Grey?")


def script(asked: Asked, wire: Wire) -> None:
    """The answer of temperature 0.2 is A, and that of 0.9 is B."""
    (question,) = [m["content"] for m in asked.body["messages"] if m["role"] == "user"]
    wire.start()
    wire.say(f"{question} is answer {'A' if asked.body['temperature'] < 0.5 else 'B'}")
    wire.end()
    wire.done()


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ('{"prompt": "a"}\n{}\n', [], 'line 2 has no "prompt"'),
        ("a", ["-n", "1"], "nothing to choose from one answer"),
        ('{"prompt": "a", "system": "b"}', ["--system", "c", "--system", "d"], "take either"),
        ("a", [], "rating needs a terminal"),
        ("a", ["-t", "hot"], "--temperature"),
    ],
)
def test_what_cannot_be_rated_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command_line: CommandLine,
    content: str,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    file = tmp_path / "prompts.txt"
    file.write_text(content)
    done = command_line("rate", str(file), *arguments)
    assert done.code != 0
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_rate_leave_come_back_and_give_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(PROMPTS))

    def run(*arguments: str) -> str:
        return command_line(*arguments).out

    with SseServer(script) as server:
        options = ("--server", server.url, "-n", "2", "-t", "0.2,0.9", "--no-tools", "--ascii")
        terminal = Terminal("rate", str(file), *options)
        assert terminal.until("Red? is answer B").isascii()
        terminal.press("2")
        terminal.until("Blue? is answer A")
        terminal.press("t")
        terminal.until("Green? is answer A")
        terminal.press("q")
        assert terminal.end() == 0

        terminal = Terminal(*options, "rate", str(file))  # options count before it as well
        terminal.until(lambda shown: "2/4" in shown and "Green? is answer A" in shown)
        assert terminal.text().isascii()
        terminal.press("b")
        terminal.until("Grey? is answer A")
        terminal.press("1")
        terminal.until("That was the last of 4 prompts: 2 picked, 1 tied, 1 all bad.")
        terminal.press("q")
        assert terminal.end() == 0

    with closing(sqlite3.connect(tmp_path / "data" / "sessions.db")) as connection:
        sessions = connection.execute("SELECT id, rated FROM sessions").fetchall()
        turns = connection.execute(
            "SELECT user, json_extract(judgement, '$.verdict'), answers.text "
            "FROM turns LEFT JOIN answers ON answers.session = 1 AND answers.id = picked "
            "ORDER BY turns.id"
        ).fetchall()
    assert sessions == [(1, str(file))]
    assert turns == [
        ("Red?", "pick", "Red? is answer B"),
        ("Blue?", "tie", None),
        ("Green?", "bad", None),
        ("Grey?", "pick", "Grey? is answer A"),
    ]
    pairs = [
        json.loads(line)
        for line in run("export", "--rated", str(file), "-f", "dpo").split("\n")[:-1]
    ]
    assert [(p["prompt"], p["chosen"], p["rejected"]) for p in pairs] == [
        (
            [{"role": "user", "content": question}],
            [{"role": "assistant", "content": f"{question} is answer {chosen}"}],
            [{"role": "assistant", "content": f"{question} is answer {rejected}"}],
        )
        for question, chosen, rejected in (("Red?", "B", "A"), ("Grey?", "A", "B"))
    ]
    assert [(p["chosen_temperature"], p["rejected_temperature"]) for p in pairs] == [
        (0.9, 0.2),
        (0.2, 0.9),
    ]
    labels = [
        json.loads(line)["label"]
        for line in run("export", "--rated", str(file), "-f", "kto").splitlines()
    ]
    assert labels == [False, True, False, False, True, False]
    stats = json.loads(run("stats", "--rated", str(file), "--by", "temperature", "--json"))
    assert (stats["picks"], stats["ties"], stats["all_bad"]) == (2, 1, 1)
    (standing,) = stats["standings"]
    assert [(e["value"], e["won"], e["tied"], e["lost"]) for e in standing["entries"]] == [
        (0.2, 1, 2, 1),
        (0.9, 1, 2, 1),
    ]
