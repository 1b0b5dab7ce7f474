"""The longer story with the real program and the real model: ask, look, fork, pick, undo, pick
another, go on, leave, come back, give it away. And at the end every id is held to the format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.loading.chat_formats import from_gguf
from engine.loading.gguf import read_gguf
from engine.tokenizer import Tokenizer
from tests.chat_tui.terminal import Terminal

OPTIONS = ("-n", "3", "-t", "0.8", "--seed", "11", "--max-tokens", "20")
PLACE = 4  # of the token that is forked at
Document = dict[str, Any]


@pytest.fixture
def home(smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without sessions; the model is there."""
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True, mode=0o700)
    for file in (Path(os.environ["CHAT_TUI_HOME"]) / "cache" / "models").iterdir():
        (models / file.name).symlink_to(file.resolve())
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    return tmp_path


def is_over(screen: str) -> bool:
    return "Enter continues with" in screen and "Esc stops" not in screen


def run(*arguments: str) -> str:
    command = [sys.executable, "-c", "from chat_tui.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def talk() -> None:
    """The first sitting."""
    terminal = Terminal(*OPTIONS, columns=120, lines=40)
    terminal.until("Enter sends")
    terminal.press("Why is the sky blue?", "enter")
    terminal.until(lambda screen: is_over(screen) and screen.count("ppl") == 3)

    # Look at the second answer, and fork at its fifth token.
    terminal.press("tab", "l", "i")
    terminal.until("Answer 2 of 3")
    terminal.press(*"l" * PLACE)
    terminal.until(f"token {PLACE + 1} of")
    terminal.press("enter")
    terminal.until("Enter fork")
    terminal.press("enter")
    terminal.until(lambda screen: screen.count(f"{PLACE + 1} from 2") == 3 and is_over(screen))

    # Pick a fork, take it back, pick another.
    terminal.press("alt+5")
    terminal.until("5 of 6")
    terminal.press("/undo", "enter")
    terminal.until("Enter continues with answer 5")
    terminal.press("alt+4")
    terminal.until("4 of 6")
    terminal.press("And at night?", "enter")
    terminal.until(lambda screen: is_over(screen) and screen.count("ppl") == 3)
    terminal.press("alt+2")
    terminal.until("2 of 3")
    terminal.press("ctrl+q")
    assert terminal.end() == 0


def come_back() -> None:
    """The second sitting: it is all there."""
    terminal = Terminal("--continue", *OPTIONS, columns=120, lines=40)
    terminal.until(lambda screen: "And at night?" in screen and "2 of 3" in screen)
    terminal.press("ctrl+t")
    terminal.until(lambda screen: "2 turns · 9 answers" in screen and screen.count("ppl") == 9)
    terminal.press("escape")
    terminal.until("Enter sends")
    terminal.press("ctrl+q")
    assert terminal.end() == 0


def answers_of(document: Document) -> dict[int, Document]:
    return {answer["id"]: answer for turn in document["turns"] for answer in turn["answers"]}


def test_fork_undo_pick_another_resume_and_give_away(smollm2_path: Path, home: Path) -> None:
    talk()
    come_back()
    (session,) = json.loads(run("sessions", "list", "--json"))["sessions"]
    number = str(session["id"])
    document = json.loads(run("export", number, "--format", "json"))
    answers = answers_of(document)
    metadata = read_gguf(smollm2_path).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    chat_format = from_gguf(metadata, tokenizer)

    # What was asked, answered and picked.
    first, second = document["turns"]
    assert [turn["user"] for turn in (first, second)] == ["Why is the sky blue?", "And at night?"]
    assert [answer["id"] for answer in first["answers"]] == [1, 2, 3, 4, 5, 6]
    assert (first["picked"], second["parent"], second["picked"]) == (4, 4, 8)
    assert [answers[n]["seed"] for n in range(1, 10)] == [*range(11, 17), 11, 12, 13]

    # The forks: the source's ids up to the place, there its likeliest other token, then their own.
    source = answers[2]
    score = source["scores"][PLACE]
    other = next(token for token, _, _ in score[6] if token != source["tokens"][PLACE])
    for fork in (answers[n] for n in (4, 5, 6)):
        assert (fork["source"], fork["given"]) == (2, PLACE + 1)
        assert fork["tokens"][: PLACE + 1] == [*source["tokens"][:PLACE], other]
        assert fork["mask"][: PLACE + 1] == [*source["mask"][:PLACE], 0]
        assert len(fork["tokens"]) <= PLACE + 1 + 20
    assert len({tuple(answers[n]["tokens"]) for n in (4, 5, 6)}) == 3

    # Every answer: its ids are its text, its scores are of its ids.
    for answer in answers.values():
        assert tokenizer.decode(answer["tokens"]).removesuffix("<|im_end|>") == answer["text"]
        assert answer["closing"] == chat_format.closing(answer["tokens"])
        assert len(answer["mask"]) == len(answer["ends"]) == len(answer["tokens"])
        assert [score[0] for score in answer["scores"]] == answer["tokens"]

    # Preference pairs: the pick against each other, that where it was forked too; the very ids.
    pairs = [json.loads(line) for line in run("export", number, "--format", "dpo").splitlines()]
    rejected = [(first, 4, n) for n in (1, 2, 3, 5, 6)] + [(second, 8, n) for n in (7, 9)]
    assert len(pairs) == len(rejected)
    picked = answers[4]
    begun = [*chat_format.following(first["user"])]
    gone_on = [
        *begun,
        *picked["tokens"],
        *picked["closing"],
        *chat_format.following(second["user"]),
    ]
    for pair, (turn, chosen, other_one) in zip(pairs, rejected, strict=True):
        assert pair["chosen_tokens"] == answers[chosen]["tokens"]
        assert pair["rejected_tokens"] == answers[other_one]["tokens"]
        assert pair["chosen"][0]["content"] == answers[chosen]["text"]
        assert pair["rejected"][0]["content"] == answers[other_one]["text"]
        assert pair["prompt"][-1] == {"role": "user", "content": turn["user"]}
        prompt = document["prompts"][answers[chosen]["prompt"]]
        ids = begun if turn is first else gone_on
        assert pair["prompt_tokens"] == [*prompt["preface"], *ids]
