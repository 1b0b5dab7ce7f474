"""Rating prompts, without a screen: what is asked when, what is said, and what is kept of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from chat_tui.chat import Chat
from chat_tui.conversation import Conversation
from chat_tui.effects import Fed, Told
from chat_tui.export import write
from chat_tui.model import GIVEN
from chat_tui.packing import StoredScores
from chat_tui.prompts import FilePrompt, read_prompts
from chat_tui.rating import AHEAD, Rating, Turned
from chat_tui.recording import save
from chat_tui.session import Session
from chat_tui.settings import Settings, Source
from chat_tui.store import Store
from chat_tui.tree import Turn
from engine.messages import Died, Failed, Load, Overflowed, TokenScore
from tests.chat_tui.fakes import FakeBackend

PROMPTS = tuple(f"prompt {number}" for number in range(1, 7))


class Sitting:
    """A file that is being rated; the backend says what the test tells it to."""

    def __init__(
        self,
        prompts: list[FilePrompt],
        session: Session | None = None,
        settings: Settings | None = None,
        *,
        blind: bool = False,
        ready: bool = True,
    ) -> None:
        self.backend = FakeBackend()
        self.backends = [self.backend]
        self.now = 0.0
        self.session = session or Session(title="Rated", rated="prompts.txt")
        chat = Chat(
            self.backend, settings or Settings(samples=2), make=self._make, clock=self.clock
        )
        self.rating = Rating(
            chat, prompts, self.session, blind=blind, clock=self.clock, today=self.clock
        )
        self.effects: list[object] = []
        if ready:
            self.backend.ready()
        self.drain()

    def _make(self, load: Load) -> FakeBackend:
        self.backends.append(FakeBackend())
        return self.backends[-1]

    def clock(self) -> float:
        return self.now

    def drain(self) -> None:
        self.rating.drain()
        self.effects += self.rating.effects()

    def answer(self, *texts: str) -> None:
        """To the prompt that is asked now."""
        self.backend.answer(*(texts or ("yes", "no")))
        self.drain()

    @property
    def asked(self) -> list[str]:
        return [ask.text for ask in self.backend.asks]

    @property
    def told(self) -> str:
        self.effects += self.rating.effects()
        return next((e.text for e in reversed(self.effects) if isinstance(e, Told)), "")

    @property
    def shown(self) -> str:
        prompt = self.rating.prompt
        return prompt.text if prompt is not None else ""

    @property
    def turns(self) -> dict[str, Turn]:
        return {turn.user: turn for turn in self.session.conversation.tree.turns.values()}

    def verdicts(self) -> dict[str, object]:
        """What was said of each prompt; the text of what was picked."""
        answers = self.session.conversation.tree.answers
        return {
            user: answers[turn.picked].text if turn.picked else turn.verdict
            for user, turn in self.turns.items()
            if turn.judgement is not None
        }


def file(folder: Path, *lines: object) -> list[FilePrompt]:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": line}) + "\n" for line in lines))
    return read_prompts(path)


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
    """Two models, one answer each; both are there."""
    sitting = Sitting(
        prompts, settings=Settings(models=(Source("a"), Source("b")), samples=1), ready=False
    )
    for backend in sitting.backends:
        backend.ready(backend.loads[-1].name)
        sitting.drain()
    return sitting


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
