"""What is kept, shown and given away of answers that several models, system texts and settings gave
to one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.document import from_json, to_json
from chat_tui.export import write
from chat_tui.labels import fitted
from chat_tui.recording import save
from chat_tui.session import Session
from chat_tui.settings import Own, Settings
from chat_tui.store import Store
from tests.chat_tui.talking import A, B, Talk, talk_of


@pytest.fixture
def mixed() -> Talk:
    """Two models under two system texts; the second of the first is picked. They begin in another
    order than they stand in."""
    talk = talk_of(Settings(models=(A, B), systems=(None, "Be brief."), samples=1, top_ks=(5,)))
    talk.chat.change("own", Own(3, "top_k", None))
    talk.chat.send("Hi")
    first, second = talk.backends
    for backend, number, text in ((second, 1, "4"), (first, 1, "2"), (second, 0, "3")):
        backend.about(backend.asks[number]).answer(text)
    first.about(first.asks[0]).answer("1")
    talk.drain()
    talk.chat.pick(1)
    talk.drain()
    return talk


def session(talk: Talk) -> Session:
    return Session(title="Mixed", conversation=talk.chat.conversation)


def test_a_preference_says_what_made_either_answer(mixed: Talk) -> None:
    rows = [json.loads(line) for line in write(session(mixed), "dpo").splitlines()]
    assert [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows] == [
        ("2", "1"),
        ("2", "3"),
        ("2", "4"),
    ]
    last = rows[-1]
    for side, told in (
        ("chosen", ("a", "Be brief.", 0.7, 5)),
        ("rejected", ("b", "Be brief.", 0.7, None)),
    ):
        names = ("model", "system", "temperature", "top_k")
        assert tuple(last[f"{side}_{name}"] for name in names) == told
    assert last["prompt"][0] == {"role": "system", "content": "Be brief."}
    assert rows[0]["rejected_system"] is None
    assert last["chosen_seed"] == last["rejected_seed"]
    labels = [json.loads(line) for line in write(session(mixed), "kto").splitlines()]
    assert [(row["model"], row["system"], row["label"]) for row in labels] == [
        ("a", None, False),
        ("a", "Be brief.", True),
        ("b", None, False),
        ("b", "Be brief.", False),
    ]


def test_what_differs_is_told_wherever_an_answer_is_shown(mixed: Talk) -> None:
    pick = mixed.chat.conversation.path[0]
    assert pick.caption.startswith("2 of 4 · a · “Be brief.” · T 0.7 · top-k 5 · seed ")
    assert pick.sampling.startswith("2 of 4 · “Be brief.” · T 0.7 · top-k 5 · seed ")
    page = write(session(mixed), "html")
    assert "4 of 4 · b · “Be brief.” · T 0.7 · all tokens" in page
    mixed.chat.undo()
    assert mixed.chat.turn is not None
    assert mixed.chat.turn.labels == [
        "a · own system text · top-k 5",
        "a · “Be brief.” · top-k 5",
        "b · own system text · top-k 5",
        "b · “Be brief.” · all tokens",
    ]


def test_a_label_is_shortened_where_it_is_longest() -> None:
    label = "Qwen2.5-7B-Instruct · “You are a pirate.” · T 0.2"
    assert fitted(label, 60) == label
    assert fitted(label, 40) == "Qwen2.5-7… · “You are a pirate.” · T 0.2"
    assert fitted(label, 10) == "Qwen2.5… · “You ar… · T 0.2", "and no further"


def test_the_whole_comes_back_to_the_byte_in_whatever_order_it_came(mixed: Talk) -> None:
    text = to_json(session(mixed))
    again = from_json(text)
    assert to_json(again) == text
    answers = again.conversation.tree.turns[1].answers
    assert [(answer.model.name, answer.text) for answer in answers] == [
        ("a", "1"),
        ("a", "2"),
        ("b", "3"),
        ("b", "4"),
    ]


def test_the_database_keeps_them_apart(mixed: Talk, tmp_path: Path) -> None:
    number = save(session(mixed), tmp_path / "sessions.db")
    with Store.open(tmp_path / "sessions.db") as store:
        kept = store.load(number).conversation.tree.turns[1].answers
    own = mixed.chat.conversation.tree.turns[1].answers
    assert [(a.model, a.prompt, a.temperature, a.top_k, a.seed) for a in kept] == [
        (a.model, a.prompt, a.temperature, a.top_k, a.seed) for a in own
    ]


def test_a_saved_conversation_says_it_of_each_sample(mixed: Talk) -> None:
    saved = json.loads(mixed.chat.conversation.as_json(model="a", system=None, tools=True))
    samples = saved["turns"][0]["samples"]
    assert [(sample["model"], sample["system"]) for sample in samples] == [
        ("a", None),
        ("a", "Be brief."),
        ("b", None),
        ("b", "Be brief."),
    ]
