"""Which session is gone on with, and with which models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chat_tui.resuming import as_before, spelled_out
from chat_tui.session import Session
from chat_tui.settings import Settings, Source
from tests.chat_tui.talking import Talk


@pytest.mark.parametrize(
    ("arguments", "spelled"),
    [
        (["--resume"], ["--resume=choose"]),
        (["--resume", "3"], ["--resume", "3"]),
        (["--resume", "-n", "3"], ["--resume=choose", "-n", "3"]),
        (["-p", "x"], ["-p", "x"]),
        ([], []),
    ],
)
def test_resume_may_stand_alone(arguments: list[str], spelled: list[str]) -> None:
    assert spelled_out(arguments) == spelled


@pytest.mark.parametrize(
    ("name", "path", "loaded"),
    [
        ("smollm2", __file__, "smollm2"),  # what would be loaded anyway, under its own name
        ("other", __file__, __file__),
        ("other", "/no/such/file", "smollm2"),
    ],
)
def test_a_session_goes_on_with_the_model_that_it_had(name: str, path: str, loaded: str) -> None:
    talk = Talk()
    talk.ask("Hi", "one", "two", pick=0)
    head = talk.chat.conversation.head
    assert head is not None
    head.model = replace(head.model, name=name, path=path)
    session = Session(conversation=talk.chat.conversation)
    assert as_before(Settings(), session).models[0].name == loaded


def test_a_session_goes_on_with_all_models_that_answered_together() -> None:
    talk = Talk()
    talk.ask("Hi", "one", "two")
    talk.chat.more(3)
    talk.answer("three", "four", "five")
    first, second, third, fourth, fifth = talk.chat.conversation.tree.answers.values()
    places = (__file__, "http://gpu:8000/v1", "/no/such/file", __file__)
    for answer, name, path in zip((first, second, third, fourth), "abcd", places, strict=True):
        answer.model = replace(answer.model, name=name, path=path)
    for answer in (second, third):
        answer.seed = first.seed
    fourth.seed = fifth.seed = first.seed + 9  # asked for later, of another model
    assert talk.chat.turn is not None
    session = Session(conversation=talk.chat.conversation, shown=talk.chat.turn.turn)
    settings = as_before(Settings(), session)
    assert settings.models == (Source(__file__), Source("b", "http://gpu:8000/v1"))
    assert settings.samples == 1
    assert as_before(Settings(samples=3), session, samples=3).samples == 3
    assert as_before(Settings(models=(Source("", "http://x"),)), session).server == "http://x"
