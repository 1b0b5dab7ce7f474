"""Rating prompts, without a screen: what is asked when, what is said, and what is kept of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from chat_tui.conversation import Conversation
from chat_tui.effects import Fed
from chat_tui.export import write
from chat_tui.model import GIVEN
from chat_tui.packing import StoredScores
from chat_tui.prompts import FilePrompt, read_prompts
from chat_tui.rating import AHEAD, Turned
from chat_tui.recording import save
from chat_tui.settings import Settings
from chat_tui.store import Store
from engine.messages import TokenScore
from tests.chat_tui.sitting import PROMPTS, Sitting, file, of_two


@pytest.fixture
def prompts(tmp_path: Path) -> list[FilePrompt]:
    return file(tmp_path, *PROMPTS)


@pytest.fixture
def sitting(prompts: list[FilePrompt]) -> Sitting:
    return Sitting(prompts)


def test_the_next_prompts_are_answered_while_one_is_read(sitting: Sitting) -> None:
    assert sitting.asked == ["prompt 1"]
    for _ in range(1 + AHEAD):
        sitting.answer()
    # The one that is shown, and so many ahead of it; then it waits.
    assert sitting.asked == list(PROMPTS[: 1 + AHEAD])
    assert sitting.rating.progress.ahead == AHEAD
    sitting.rating.pick(0)
    sitting.drain()
    assert sitting.shown == "prompt 2"
    assert sitting.asked[-1] == PROMPTS[1 + AHEAD]
    # Each is a conversation of its own.
    assert all(ask.history == () for ask in sitting.backend.asks)


def test_picks_ties_and_all_bad_are_kept_with_how_they_stood(sitting: Sitting) -> None:
    sitting.answer("a", "b")
    sitting.now = 4.5
    sitting.rating.pick(1)
    sitting.answer("c", "d")
    sitting.rating.say("tie")
    sitting.answer("e", "f")
    sitting.rating.say("bad")
    sitting.answer("g", "h")
    sitting.rating.say("skip")
    assert sitting.verdicts() == {
        "prompt 1": "b",
        "prompt 2": "tie",
        "prompt 3": "bad",
        "prompt 4": "skip",
    }
    judgement = sitting.turns["prompt 1"].judgement
    assert judgement is not None
    assert (judgement.order, judgement.blind) == ((1, 2), False)
    assert (judgement.at, judgement.seconds) == (4.5, 4.5)
    assert sitting.rating.counts == Counter(["pick", "tie", "bad", "skip"])
    assert sitting.rating.turn is not None
    assert sitting.shown == "prompt 5"


def test_a_pick_does_not_wait_for_the_answers_and_they_are_not_cut(sitting: Sitting) -> None:
    sitting.backend.start()
    sitting.backend.step("good", "no")
    sitting.drain()
    sitting.rating.pick(0)
    assert sitting.shown == "prompt 2"
    assert sitting.backend.cancels == []
    sitting.backend.step(" enough", " way")
    sitting.backend.finish()
    sitting.drain()
    assert [answer.text for answer in sitting.turns["prompt 1"].answers] == [
        "good enough",
        "no way",
    ]
    assert sitting.asked == ["prompt 1", "prompt 2"]


def test_nothing_is_said_of_answers_that_are_not_there(sitting: Sitting) -> None:
    for act in (lambda: sitting.rating.pick(0), lambda: sitting.rating.say("tie")):
        act()
        assert sitting.told == "There is no answer yet."
    sitting.answer()
    sitting.rating.pick(2)
    assert "no 3" in sitting.told
    assert sitting.verdicts() == {}


def test_undo_goes_back_to_the_last_one_and_then_on_from_where_one_was(sitting: Sitting) -> None:
    for _ in range(3):
        sitting.answer()
    sitting.rating.pick(0)
    sitting.rating.say("tie")
    sitting.rating.undo()
    sitting.rating.undo()
    assert sitting.shown == "prompt 1"
    assert sitting.verdicts() == {}
    assert sitting.rating.turn is not None
    assert [answer.text for answer in sitting.rating.turn.rows] == ["yes", "no"]
    sitting.rating.undo()
    assert sitting.told == "Nothing was rated yet."
    sitting.rating.pick(1)
    assert sitting.shown == "prompt 2"
    assert sitting.verdicts() == {"prompt 1": "no"}


def again(sitting: Sitting, prompts: list[FilePrompt], path: Path, **options: bool) -> Sitting:
    """Another program takes the file up, from what is in the database."""
    number = save(sitting.session, path)
    return Sitting(prompts, Store.open(path).load(number), **options)


def test_it_goes_on_where_it_stopped(
    sitting: Sitting, prompts: list[FilePrompt], tmp_path: Path
) -> None:
    for _ in range(3):
        sitting.answer()
    sitting.rating.pick(1)
    sitting.rating.say("skip")
    other = again(sitting, prompts, tmp_path / "sessions.db")
    assert other.shown == "prompt 3"
    assert other.asked == ["prompt 3"]
    # What was answered ahead, and not judged, is gone.
    assert list(other.turns) == ["prompt 1", "prompt 2"]
    assert other.rating.progress.done == 2
    other.rating.undo()
    other.rating.undo()
    assert other.shown == "prompt 1"
    assert other.rating.turn is not None
    assert [answer.text for answer in other.rating.turn.rows] == ["yes", "no"]


def test_a_file_that_was_added_to_and_sorted_is_known_again(
    sitting: Sitting, tmp_path: Path
) -> None:
    sitting.answer()
    sitting.rating.pick(0)
    prompts = file(tmp_path, "new", *reversed(PROMPTS), "prompt 1")
    other = again(sitting, prompts, tmp_path / "sessions.db")
    assert other.shown == "new"
    assert (other.rating.progress.done, other.rating.progress.total) == (1, 8)
    for _ in range(7):
        other.rating.say("skip")
    assert other.shown == ""


def test_skipped_prompts_can_be_gone_through_again(tmp_path: Path) -> None:
    sitting = Sitting(file(tmp_path, "one", "two"))
    sitting.answer()
    sitting.answer()
    sitting.rating.say("skip")
    sitting.rating.pick(0)
    assert sitting.rating.prompt is None
    sitting.rating.skipped_again()
    assert sitting.shown == "one"
    sitting.rating.pick(1)
    assert sitting.rating.prompt is None
    assert sitting.verdicts() == {"one": "no", "two": "yes"}
    sitting.rating.skipped_again()
    assert sitting.told == "None was skipped."
    assert sitting.asked == ["one", "two"]


def test_blind_answers_are_shuffled_and_shown_when_all_are_there(
    prompts: list[FilePrompt], tmp_path: Path
) -> None:
    settings = Settings(samples=4, temperatures=(0.2, 0.7, 1.0, 1.3), seed=3)
    sitting = Sitting(prompts, settings=settings, blind=True)
    sitting.backend.start()
    sitting.backend.step("a", "b", "c", "d")
    sitting.drain()
    assert not sitting.rating.visible
    assert not any(isinstance(effect, Fed) for effect in sitting.effects)
    sitting.rating.pick(0)
    assert "when all of them are there" in sitting.told
    sitting.backend.finish()
    sitting.drain()
    assert isinstance(sitting.effects[-1], Turned)
    assert sitting.rating.visible
    orders = {sitting.rating.place: list(sitting.rating.order)}
    sitting.rating.pick(2)
    answers = sitting.turns["prompt 1"].answers
    judgement = sitting.turns["prompt 1"].judgement
    assert judgement is not None
    assert judgement.blind
    assert judgement.order == tuple(answers[row].id for row in orders[0])
    assert sitting.turns["prompt 1"].picked == judgement.order[2]
    for _ in range(4):
        sitting.answer("a", "b", "c", "d")
        orders[sitting.rating.place] = list(sitting.rating.order)
        sitting.rating.pick(0)
    assert len({tuple(order) for order in orders.values()}) > 2
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders.values())
    # The seed says it all: another sitting shuffles them the same way.
    other = Sitting(prompts, settings=settings, blind=True)
    other.answer("a", "b", "c", "d")
    assert other.rating.order == orders[0]


def test_a_prompt_comes_with_its_messages_and_its_system_text(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Red?"},
    ]
    path.write_text(json.dumps({"prompt": said}) + '\n{"prompt": "Blue?"}\n')
    prompts = read_prompts(path)
    sitting = Sitting(prompts, settings=Settings(samples=2, systems=("Be kind.",)))
    sitting.answer("a", "b")
    first, second = sitting.backend.asks
    assert [(e.user, e.tokens, e.text) for e in first.history] == [("Hi", None, "Hello!")]
    assert (first.system, second.system) == ("Be brief.", "Be kind.")
    sitting.rating.pick(0)
    sitting.rating.skipped_again()
    other = again(sitting, prompts, tmp_path / "sessions.db")
    assert other.shown == "Blue?"
    (row,) = (json.loads(line) for line in write(other.session, "dpo").splitlines())
    assert row["prompt"] == said
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("a", "b")
    # It was prefilled with its messages, which stand in the tree as any others do.
    tree = other.session.conversation.tree
    assert tree.answers[1].model == GIVEN
    turn = other.turns["Red?"]
    ids = Conversation(tree, tree.parent(turn)).prompt_tokens(turn.answers[0].prompt)
    assert row["prompt_tokens"] == list(ids)


@pytest.fixture
def two(prompts: list[FilePrompt]) -> Sitting:
    return of_two(prompts)


def test_models_are_compared_whoever_answers_first(two: Sitting) -> None:
    first, second = two.backends
    assert first.ask.text == second.ask.text == "prompt 1"
    second.answer("from b")
    two.drain()
    assert two.asked == ["prompt 1"]
    first.answer("from a")
    two.drain()
    assert first.ask.text == second.ask.text == "prompt 2"
    two.rating.pick(1)
    assert two.verdicts() == {"prompt 1": "from b"}
    assert [answer.model.name for answer in two.turns["prompt 1"].answers] == ["a", "b"]


def test_scores_of_what_was_judged_before_are_packed(sitting: Sitting) -> None:
    sitting.answer()
    answer = sitting.turns["prompt 1"].answers[0]
    scores = [TokenScore(answer.tokens[0], b"yes", -0.5, None, 1.0, 0, ())]
    answer.scores = list(scores)
    sitting.rating.pick(0)
    assert answer.scores == scores
    sitting.answer()
    sitting.rating.pick(0)
    assert isinstance(answer.scores, StoredScores)
    assert list(answer.scores) == scores


def test_the_pace_tells_how_long_it_will_take(sitting: Sitting) -> None:
    assert sitting.rating.progress.per_minute is None
    for _ in range(3):
        sitting.answer()
        sitting.now += 10
        sitting.rating.pick(0)
    progress = sitting.rating.progress
    assert (progress.done, progress.total) == (3, 6)
    assert progress.per_minute == pytest.approx(6)
    assert progress.left_s == pytest.approx(30)
    sitting.answer()
    sitting.now += 3600  # lunch
    sitting.rating.pick(0)
    assert sitting.rating.progress.left_s == pytest.approx(2 * (30 + 120) / 4)
