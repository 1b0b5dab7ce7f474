"""The conversation as exact tokens, as a chat makes it; no screen involved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.answer import Prompt
from chat_tui.conversation import Conversation, HistoryChangedError, turns_to_drop
from chat_tui.effects import Fed, Noted, Overflow
from chat_tui.model import Model
from chat_tui.new_file import NotWrittenError
from chat_tui.tree import Tree
from engine.messages import Overflowed, ToolCall
from tests.chat_tui.fakes import CLOSE, PREFACE, encode, prompt_of
from tests.chat_tui.talking import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_the_picked_answer_is_kept_as_the_ids_that_were_generated(talk: Talk) -> None:
    talk.ask("Hi", "one two", "three four", pick=1)
    (turn,) = talk.chat.conversation.turns
    assert turn.answer.text == "three four"
    assert turn.answer.tokens == [1000 + sum(map(ord, "three")), 1000 + sum(map(ord, " four"))]
    prompt = prompt_of((), "Hi")
    assert talk.chat.conversation.tokens == [*prompt, *turn.answer.tokens, CLOSE]
    assert talk.chat.conversation.mask == [0] * len(prompt) + [1, 1, 0]


def test_the_next_ask_carries_those_ids_and_the_list_only_grows(talk: Talk) -> None:
    talk.ask("Hi", "one", "two", pick=1)
    before = list(talk.chat.conversation.tokens)
    talk.ask("More", "three", "four", pick=0)
    (exchange,) = talk.backend.ask.history
    assert exchange.tokens == tuple(talk.chat.conversation.turns[0].answer.tokens)
    assert talk.chat.conversation.tokens[: len(before)] == before
    assert sum(talk.chat.conversation.mask) == 2
    assert not talk.seen(Noted)


def test_forced_tokens_are_kept_with_mask_zero_and_their_span(talk: Talk) -> None:
    talk.chat.send("12*7?")
    talk.drain()
    talk.backend.start()
    talk.backend.step("<<12*7=", "It")
    call = ToolCall(0, 9, "12*7", "84", True)
    talk.backend.step("84>>", " is", forced=[0], calls=[(0, 0, call)])
    talk.backend.step(" ok", " 84")
    talk.backend.finish()
    talk.drain()
    talk.chat.pick(0)
    answer = talk.chat.conversation.turns[0].answer
    assert answer.mask == [1, 0, 1]
    assert answer.forced == [(7, 11)]
    assert answer.calls == [call]
    assert talk.seen(Fed)[2] == Fed(0, "84>>", True)


def test_a_prompt_that_does_not_continue_the_conversation_is_reported(talk: Talk) -> None:
    talk.ask("Hi", "one", "two", pick=0)
    talk.chat.send("More")
    talk.backend.start(prompt=[*PREFACE, *encode("something else entirely, and longer")])
    talk.drain()
    (note,) = talk.seen(Noted)
    assert isinstance(note, Noted)
    assert "differs from the conversation at token 4" in note.text


def test_another_preface_is_no_difference() -> None:
    tree, model = Tree(), Model("tiny")
    answer = tree.add_answer(
        tree.add_turn(None, "Hi"), prompt=Prompt(preface=(9, 9, 9), ids=(2,)), model=model
    )
    answer.append(5, 1, "one")
    answer.end("stop", (4,))
    conversation = Conversation(tree, answer)
    assert (conversation.tokens, conversation.mask) == ([9, 9, 9, 2, 5, 4], [0, 0, 0, 0, 1, 0])
    conversation.check([9, 2, 5, 4, 2, 6], 1, model)
    with pytest.raises(HistoryChangedError):
        conversation.check([9, 2, 5, 3, 2, 6], 1, model)
    with pytest.raises(HistoryChangedError):
        conversation.check([9, 2, 5], 1, model)


def test_dropped_turns_leave_the_history_and_the_prompt_may_shrink(talk: Talk) -> None:
    talk.ask("first", "one", "two", pick=0)
    talk.ask("second", "three", "four", pick=0)
    talk.chat.send("third")
    talk.drain()
    talk.backend.say(Overflowed(talk.backend.ask.ask, 2300, 2048, (900, 900, 20)))
    talk.drain()
    assert talk.seen(Overflow) == [Overflow("third", 2300, 2048, 1)]
    talk.chat.drop_oldest()
    talk.drain()
    assert [exchange.user for exchange in talk.backend.ask.history] == ["second"]
    talk.backend.answer("five", "six")
    talk.drain()
    talk.chat.pick(0)
    assert len(talk.chat.conversation.turns) == 2
    assert talk.chat.conversation.dropped == 1
    assert sum(talk.chat.conversation.mask) == 2
    notes = [note.text for note in talk.seen(Noted) if isinstance(note, Noted)]
    assert notes == ["The oldest turn is no longer part of what the model sees."]


@pytest.mark.parametrize(
    ("sizes", "prompt", "max_tokens", "drop"),
    [
        ((500, 500, 500, 20), 2048, None, 1),  # room for an answer is made as well
        ((100, 100, 1500, 20), 2100, None, 3),
        ((100, 100, 1500, 20), 2100, 8, 1),
        ((3000,), 3040, None, None),  # the message alone is too long
        ((40, 2030), 2080, None, 1),  # little room is better than none
        ((), 3040, None, None),
    ],
)
def test_how_many_turns_must_go(
    sizes: tuple[int, ...], prompt: int, max_tokens: int | None, drop: int | None
) -> None:
    assert turns_to_drop(Overflowed(1, prompt, 2048, sizes), max_tokens) == drop


def test_another_model_gets_the_conversation_as_text(talk: Talk) -> None:
    talk.ask("Hi", "one", "two", pick=0)
    talk.chat.change("models", ("other",))
    talk.backend.ready("Other-1B")
    talk.drain()
    talk.chat.send("More")
    assert talk.backend.ask.history[0].tokens is None
    assert talk.backend.ask.history[0].text == "one"
    talk.backend.start(prompt=[7, 7, 7, 7, 7])
    talk.drain()
    assert not talk.seen(Noted)


def test_a_saved_conversation_holds_tokens_masks_and_seeds(talk: Talk, tmp_path: Path) -> None:
    talk.ask("Hi ∂", "one two", "three", pick=1)
    path = tmp_path / "talk.json"
    talk.chat.conversation.save(path, model="m", system=None, tools=True)
    assert path.stat().st_mode & 0o777 == 0o600
    saved = json.loads(path.read_text("utf-8"))
    assert saved["tokens"] == talk.chat.conversation.tokens
    assert len(saved["mask"]) == len(saved["tokens"])
    (turn,) = saved["turns"]
    assert (turn["user"], turn["picked"]) == ("Hi ∂", 1)
    assert [sample["seed"] for sample in turn["samples"]] == [81_234, 81_235]
    assert [sample["text"] for sample in turn["samples"]] == ["one two", "three"]
    with pytest.raises(NotWrittenError):
        talk.chat.conversation.save(path, model="m", system=None, tools=True)
