"""One story with the real program and the real model: ask, continue, look, fork, pick, undo, pick
another, leave, come back, go on, give it away. And at the end every id is held to the format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chat_tui.document import from_json, to_json
from chat_tui.store import Store
from engine.loading.chat_formats import from_gguf
from engine.loading.gguf import read_gguf
from engine.tokenizer import Tokenizer
from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.terminal import Terminal

PLACE = 4  # of the token that is forked at
Document = dict[str, Any]


@pytest.fixture
def home(smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without sessions; the model is there."""
    (tmp_path / "cache").symlink_to(Path(os.environ["CHAT_TUI_HOME"]) / "cache")
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    return tmp_path


def talk() -> None:
    """The first sitting: two answers are cut; the first is continued, the second forked."""
    options = ("-n", "2", "-t", "0.9", "--seed", "11", "--max-tokens", "12")
    terminal = Terminal(*options, columns=120, lines=40)
    terminal.until("Enter sends")
    terminal.press("Tell me about the sea.", "enter")
    terminal.until(lambda screen: screen.count("cut: token limit") == 2)
    terminal.press("tab", "c")
    terminal.until(lambda screen: "from 1" in screen and screen.count("cut: token limit") == 3)

    # Look at the second answer, and fork at its fifth token.
    terminal.press("2", "/undo", "enter")
    terminal.until("Enter continues with answer 2")
    terminal.press("tab", "i")
    terminal.until("Answer 2 of 3")
    terminal.press(*"l" * PLACE)
    terminal.until(f"token {PLACE + 1} of")
    terminal.press("enter")
    terminal.until("Enter fork")
    terminal.press("enter")
    terminal.until(
        lambda screen: (
            screen.count(f"{PLACE + 1} from 2") == 2 and screen.count("cut: token limit") == 5
        )
    )

    # Pick a fork, take it back, pick another.
    terminal.press("alt+4")
    terminal.until("4 of 5")
    terminal.press("/undo", "enter")
    terminal.until("Enter continues with answer 4")
    terminal.press("alt+5")
    terminal.until("5 of 5")
    terminal.press("ctrl+q")
    assert terminal.end() == 0


def come_back(pairs: Path, whole: Path) -> None:
    """The second sitting: it is all there; it goes on, and is given away."""
    options = ("--continue", "-n", "2", "-t", "1.2", "--max-tokens", "5", "--seed", "3")
    terminal = Terminal(*options, columns=120, lines=40)
    terminal.until("5 of 5")
    terminal.press("ctrl+t")
    terminal.until(lambda screen: "1 turn · 5 answers" in screen and screen.count("ppl") == 5)
    terminal.press("escape")
    terminal.until("Enter sends")
    terminal.press("And the sky?", "enter")
    terminal.until(lambda screen: "seed 3" in screen and screen.count("cut: token limit") == 2)
    terminal.press("alt+2")
    terminal.until("2 of 2")
    terminal.press(f"/export dpo {pairs}", "enter")
    terminal.until("Written to")
    terminal.press(f"/export json {whole}", "enter")
    terminal.until(lambda screen: "whole.json" in screen and "Written to" in screen)
    terminal.press("ctrl+q")
    assert terminal.end() == 0


def test_branch_fork_undo_leave_come_back_and_give_away(
    smollm2_path: Path, home: Path, command_line: CommandLine
) -> None:
    pairs_file, whole = home / "pairs.jsonl", home / "whole.json"
    talk()
    come_back(pairs_file, whole)
    text = whole.read_text("utf-8")
    session = from_json(text)
    assert to_json(session) == text
    with Store.open() as store:
        number = store.last()
        assert number is not None
        assert store.load(number).conversation.tree.turns == session.conversation.tree.turns
    exported = command_line("export", str(number), "-f", "dpo").out
    assert exported == pairs_file.read_text("utf-8")

    # What was asked, answered and picked.
    document = json.loads(text)
    first, second = document["turns"]
    answers = {answer["id"]: answer for turn in (first, second) for answer in turn["answers"]}
    assert [turn["user"] for turn in (first, second)] == ["Tell me about the sea.", "And the sky?"]
    assert [[answer["id"] for answer in turn["answers"]] for turn in (first, second)] == [
        [1, 2, 3, 4, 5],
        [6, 7],
    ]
    assert (first["picked"], second["parent"], second["picked"]) == (5, 5, 7)
    assert [answers[n]["seed"] for n in range(1, 8)] == [*range(11, 16), 3, 4]
    assert [len(answers[n]["tokens"]) for n in range(1, 8)] == [12, 12, 24, 17, 17, 5, 5]

    # What was continued: the first answer's ids and scores, then its own.
    continued = answers[3]
    assert (continued["source"], continued["given"]) == (1, 12)
    assert continued["tokens"][:12] == answers[1]["tokens"]
    assert continued["scores"][:12] == answers[1]["scores"]
    assert continued["text"].startswith(answers[1]["text"])

    # The forks: the source's ids up to the place, there its likeliest other token, then their own.
    source = answers[2]
    score = source["scores"][PLACE]
    other = next(token for token, _, _ in score[6] if token != source["tokens"][PLACE])
    for fork in (answers[4], answers[5]):
        assert (fork["source"], fork["given"]) == (2, PLACE + 1)
        assert fork["tokens"][: PLACE + 1] == [*source["tokens"][:PLACE], other]
        assert fork["mask"][: PLACE + 1] == [*source["mask"][:PLACE], 0]
    assert answers[4]["tokens"] != answers[5]["tokens"]

    # Every answer: its ids are its text, its scores are of its ids.
    metadata = read_gguf(smollm2_path).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    chat_format = from_gguf(metadata, tokenizer)
    for answer in answers.values():
        assert tokenizer.decode(answer["tokens"]).removesuffix("<|im_end|>") == answer["text"]
        assert answer["closing"] == chat_format.closing(answer["tokens"])
        assert len(answer["mask"]) == len(answer["ends"]) == len(answer["tokens"])
        assert [score[0] for score in answer["scores"]] == answer["tokens"]

    # What the second sitting prefilled is what the first one had kept, and the new message.
    tree = session.conversation.tree
    assert not tree.answers[6].prompt.anew
    assert tree.answers[1].prompt == tree.answers[3].prompt

    # Preference pairs: the pick against each other, that where it was forked too; the very ids.
    pairs = [json.loads(line) for line in exported.splitlines()]
    rejected = [(first, 5, n) for n in (1, 2, 3, 4)] + [(second, 7, 6)]
    assert len(pairs) == len(rejected)
    begun = [*chat_format.following(first["user"])]
    gone_on = [
        *begun,
        *answers[5]["tokens"],
        *answers[5]["closing"],
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
