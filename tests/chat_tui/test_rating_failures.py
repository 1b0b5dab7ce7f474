"""Rating goes on where prompts, answers and models fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_tui.prompts import FilePrompt
from chat_tui.settings import Settings, Source
from engine.messages import Died, Failed, Overflowed
from tests.chat_tui.sitting import PROMPTS, Sitting, file, of_two


@pytest.fixture
def prompts(tmp_path: Path) -> list[FilePrompt]:
    return file(tmp_path, *PROMPTS)


@pytest.fixture
def sitting(prompts: list[FilePrompt]) -> Sitting:
    return Sitting(prompts)


@pytest.fixture
def two(prompts: list[FilePrompt]) -> Sitting:
    return of_two(prompts)


def test_a_prompt_that_is_too_long_is_left_out_in_a_line(sitting: Sitting) -> None:
    for _ in range(2):
        sitting.backend.say(Overflowed(sitting.backend.ask.ask, 3400, 2048, (3400,)))
        sitting.drain()
    assert sitting.told == "Prompt 2 is left out: 3,400 tokens, and the model holds 2,048."
    assert sitting.shown == "prompt 3"
    sitting.answer()
    # One ahead is left out when it would have been next.
    sitting.backend.say(Overflowed(sitting.backend.ask.ask, 3400, 2048, (3400,)))
    sitting.drain()
    sitting.rating.pick(0)
    assert sitting.shown == "prompt 5"
    assert sitting.rating.progress.done == 4


def test_an_engine_that_is_lost_costs_the_running_answer_and_comes_back_with_a_key(
    sitting: Sitting,
) -> None:
    sitting.answer()
    sitting.rating.pick(0)
    sitting.backend.start()
    sitting.backend.step("half", "an")
    sitting.drain()
    sitting.backend.say(Died("The engine was killed."))
    sitting.drain()
    assert sitting.rating.problems == {1: "The engine was killed."}
    assert sitting.verdicts() == {"prompt 1": "yes"}
    # It is not started again and again by itself.
    assert len(sitting.backend.loads) == 1
    sitting.rating.retry()
    sitting.drain()
    assert len(sitting.backend.loads) == 2
    sitting.backend.ready()
    sitting.drain()
    sitting.answer("whole", "answers")
    assert sitting.asked[-2:] == ["prompt 2", "prompt 3"]
    assert [answer.text for answer in sitting.turns["prompt 2"].answers] == ["whole", "answers"]
    assert sitting.rating.problems == {}


def test_an_engine_that_is_lost_while_one_reads_is_started_when_one_goes_on(
    sitting: Sitting,
) -> None:
    sitting.answer()
    sitting.backend.start()
    sitting.backend.step("half", "an")
    sitting.backend.say(Died("The engine was killed."))
    sitting.drain()
    assert sitting.rating.turn is not None
    assert len(sitting.backend.loads) == 1
    assert list(sitting.turns) == ["prompt 1"]
    sitting.rating.pick(0)
    assert sitting.shown == "prompt 2"
    assert len(sitting.backend.loads) == 2
    sitting.backend.ready()
    sitting.drain()
    sitting.answer()
    assert sitting.asked == ["prompt 1", "prompt 2", "prompt 2", "prompt 3"]
    assert sitting.rating.problems == {}


def test_a_prompt_without_answers_need_not_be_waited_for(sitting: Sitting) -> None:
    sitting.backend.say(Failed(sitting.backend.ask.ask, "The server refused it."))
    sitting.drain()
    sitting.rating.say("skip")
    assert sitting.shown == "prompt 2"
    assert sitting.verdicts() == {}
    sitting.rating.undo()
    assert sitting.shown == "prompt 1"
    assert sitting.rating.problems == {0: "The server refused it."}


def test_a_failure_of_one_prompt_does_not_stop_the_next(sitting: Sitting) -> None:
    sitting.backend.say(Failed(sitting.backend.ask.ask, "The server refused it."))
    sitting.drain()
    assert sitting.rating.problems == {0: "The server refused it."}
    assert sitting.asked == ["prompt 1", "prompt 2"]
    sitting.answer()
    sitting.rating.retry()
    assert sitting.asked == ["prompt 1", "prompt 2", "prompt 3"]
    sitting.answer()
    assert sitting.asked[-1] == "prompt 1"


def test_a_failure_ahead_is_no_more_than_a_prompt_that_is_asked_later(sitting: Sitting) -> None:
    sitting.answer()
    sitting.backend.say(Failed(sitting.backend.ask.ask, "The server refused it."))
    sitting.drain()
    assert sitting.asked == ["prompt 1", "prompt 2", "prompt 3"]
    sitting.answer()
    sitting.answer()
    sitting.rating.pick(0)
    assert sitting.shown == "prompt 2"
    assert sitting.asked == ["prompt 1", "prompt 2", "prompt 3", "prompt 4", "prompt 2"]
    sitting.answer()
    sitting.rating.pick(0)
    assert sitting.verdicts() == {"prompt 1": "yes", "prompt 2": "yes"}


def test_a_model_that_does_not_load_can_be_tried_again(prompts: list[FilePrompt]) -> None:
    sitting = Sitting(prompts, ready=False)
    sitting.backend.say(Failed(None, "There is no such model."))
    sitting.drain()
    assert sitting.rating.problems == {0: "There is no such model."}
    sitting.rating.retry()
    sitting.backend.ready()
    sitting.drain()
    assert sitting.asked == ["prompt 1"]


def test_stopping_ends_what_is_waited_for_and_it_can_be_asked_again(sitting: Sitting) -> None:
    sitting.backend.start()
    sitting.backend.step("a", "b")
    sitting.drain()
    sitting.rating.stop()
    assert sitting.backend.cancels == [None]
    sitting.backend.finish("cancelled")
    sitting.drain()
    assert sitting.asked == ["prompt 1", "prompt 2"]
    sitting.rating.stop()
    assert sitting.told == "Nothing grows here."  # the next one goes on
    sitting.rating.retry()
    sitting.answer()
    assert sitting.asked == ["prompt 1", "prompt 2", "prompt 1"]
    sitting.answer()
    sitting.rating.retry()
    assert sitting.told == "The answers are there."


def test_one_model_that_fails_leaves_the_others_answer_and_is_asked_again(two: Sitting) -> None:
    first, second = two.backends
    second.say(Died("It was killed."))
    two.drain()
    first.answer("from a")
    two.drain()
    assert list(two.rating.problems.values()) == ["It was killed."]
    two.rating.retry()
    two.drain()
    assert len(second.loads) == 2
    second.ready("b")
    two.drain()
    # One ahead waited for the model already; the one that is looked at goes first.
    assert two.asked == ["prompt 1", "prompt 1"]
    assert second.ask.text == "prompt 1"
    first.answer("from a")
    second.answer("from b")
    two.drain()
    two.rating.pick(1)
    assert two.verdicts() == {"prompt 1": "from b"}


def test_a_model_that_does_not_come_is_not_left_out_of_the_comparison(
    prompts: list[FilePrompt],
) -> None:
    settings = Settings(models=(Source("a"), Source("b")), samples=1)
    sitting = Sitting(prompts, settings=settings, ready=False)
    sitting.backend.ready("a")
    sitting.drain()
    second = sitting.backends[1]
    second.say(Failed(None, "There is no b."))
    sitting.drain()
    assert sitting.rating.problems == {0: "b: There is no b."}
    assert sitting.asked == []
    sitting.rating.retry()
    sitting.drain()
    second = sitting.backends[-1]
    second.ready("b")
    sitting.drain()
    assert sitting.backend.ask.text == second.ask.text == "prompt 1"
