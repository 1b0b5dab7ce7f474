"""One story with the real model in a pseudo-terminal: branch, leave, come back, give it away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.document import from_json, to_json
from chat_tui.store import Store
from tests.chat_tui.terminal import Terminal

pytestmark = pytest.mark.usefixtures("smollm2_path")


def test_branch_quit_resume_and_export(tmp_path: Path) -> None:
    """Two answers are cut; one is continued and picked; the pick is taken back for the other one;
    then the program ends and another goes on. Every id is where it should be."""
    terminal = Terminal("-n", "2", "-t", "0.9", "--seed", "11", "--max-tokens", "12")
    terminal.until("Enter sends")
    terminal.press("Tell me about the sea.", "enter")
    terminal.until(lambda screen: screen.count("cut: token limit") == 2)
    terminal.press("tab", "c")
    terminal.until(lambda screen: "from 1" in screen and screen.count("cut: token limit") == 3)
    terminal.press("alt+3")
    terminal.until("3 of 3")
    terminal.press("/undo", "enter")
    terminal.until("Enter continues with answer 3")
    terminal.press("alt+2")
    terminal.until("2 of 3")
    terminal.press("ctrl+q")
    assert terminal.end() == 0

    pairs, whole = tmp_path / "pairs.jsonl", tmp_path / "whole.json"
    terminal = Terminal("--continue", "-n", "1", "--max-tokens", "5", "--seed", "3")
    terminal.until("2 of 3")
    terminal.until("Enter sends")
    terminal.press("And the sky?", "enter")
    terminal.until("seed 3 · cut")
    terminal.press(f"/export dpo {pairs}", "enter")
    terminal.until("Written to")
    terminal.press(f"/export json {whole}", "enter")
    terminal.until(lambda screen: "whole.json" in screen and "Written to" in screen)
    terminal.press("ctrl+q")
    assert terminal.end() == 0

    text = whole.read_text("utf-8")
    session = from_json(text)
    assert to_json(session) == text
    tree = session.conversation.tree
    first, second, third, fourth = tree.answers.values()
    assert [len(answer.tokens) for answer in (first, second, third, fourth)] == [12, 12, 24, 5]
    assert third.tokens[:12] == first.tokens
    assert third.scores[:12] == first.scores
    assert (third.given, third.source, third.seed) == (12, first.id, 13)
    assert third.text.startswith(first.text)
    assert [score.token for score in third.scores if score is not None] == third.tokens
    assert [pick.answer.id for pick in session.conversation.path] == [second.id, fourth.id]
    # What the second program prefilled is what the first one had kept, and the new message.
    assert not fourth.prompt.anew
    assert first.prompt == third.prompt
    rows = [json.loads(line) for line in pairs.read_text("utf-8").splitlines()]
    assert [row["rejected_tokens"] for row in rows] == [first.tokens, third.tokens]
    assert all(row["chosen_tokens"] == second.tokens for row in rows)
    with Store.open() as store:
        number = store.last()
        assert number is not None
        kept = store.load(number)
        assert kept.conversation.tree.turns == tree.turns
