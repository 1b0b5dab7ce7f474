"""Several models, system texts and settings side by side in one turn, without a screen."""

from __future__ import annotations

from random import Random

import pytest

from chat_tui.effects import Began, Fed, Noted, Prefilled, Returned, ScoresCame
from chat_tui.settings import Own, Settings
from engine.messages import Cancel, Died, Event, Failed, Overflowed, Scored
from tests.chat_tui.fakes import FakeBackend, encode
from tests.chat_tui.talking import A, B, Talk, both, talk_of


@pytest.fixture
def talk() -> Talk:
    """Two models, one answer each."""
    return talk_of(Settings(models=(A, B), samples=1))


def test_each_model_is_asked_once_for_its_own_answers() -> None:
    talk = talk_of(Settings(models=(A, B), samples=2, temperatures=(0.2, 1.2), seed=7))
    talk.chat.send("Hi")
    first, second = both(talk)
    assert len(first.asks) == len(second.asks) == 1
    assert first.ask.params == second.ask.params
    assert (first.ask.samples, first.ask.params.seed) == (2, 7)
    assert first.ask.ask != second.ask.ask


def test_the_same_seed_is_drawn_for_all_models(talk: Talk) -> None:
    talk.chat.send("Hi")
    seeds = {backend.ask.params.seed for backend in talk.backends}
    assert len(seeds) == 1
    assert None not in seeds


def test_answers_stand_in_the_order_of_the_models_whoever_begins(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    second.start()
    second.step("two")
    talk.drain()
    (began,) = talk.seen(Began)
    assert isinstance(began, Began)
    assert began.turn.labels == ["a", "b"]
    assert talk.seen(Fed) == [Fed(1, "two", False)]
    first.start()
    first.step("one")
    talk.drain()
    assert talk.shown == ["one", "two"]
    turn = talk.chat.conversation.tree.turns[1]
    assert [(answer.model.name, answer.text) for answer in turn.answers] == [
        ("a", "one"),
        ("b", "two"),
    ]
    assert {effect.rows for effect in talk.seen(Prefilled)} == {(0,), (1,)}


def answered(talk: Talk, text: str, first: str, second: str) -> None:
    talk.chat.send(text)
    talk.backends[0].answer(first)
    talk.backends[1].answer(second)
    talk.drain()


def test_the_conversation_goes_on_with_all_models_each_in_its_own_ids(talk: Talk) -> None:
    answered(talk, "Hi", "one", "two")
    talk.chat.pick(1)
    answered(talk, "More", "three", "four")
    (told_a,), (told_b,) = (backend.ask.history for backend in talk.backends)
    assert (told_a.tokens, told_a.text) == (None, "two")
    assert told_b.tokens == tuple(talk.chat.conversation.path[0].answer.tokens)
    talk.chat.pick(0)
    assert talk.kept == ["Hi", "two", "More", "three"]
    assert talk.chat.conversation.tokens[-2] == talk.chat.conversation.path[1].answer.tokens[-1]
    answered(talk, "Third", "five", "six")
    talk.chat.pick(1)
    history = [exchange.tokens for exchange in talk.backends[1].ask.history]
    assert history[0] is not None
    assert history[1] is None
    assert not talk.seen(Noted)
    conversation = talk.chat.conversation
    assert len(conversation.tokens) == len(conversation.mask)
    assert sum(conversation.mask) == 2, "what b wrote, in the list that b was shown"


def test_the_answers_of_a_model_belong_together() -> None:
    talk = talk_of(Settings(models=(A, B), samples=3))
    answered_by = zip(talk.backends, ("x", "y"), strict=True)
    talk.chat.send("Hi")
    for backend, text in answered_by:
        backend.answer(text, text, text)
    talk.drain()
    assert talk.chat.turn is not None
    assert talk.chat.turn.group == 3
    talk.chat.change("models", ("a",))
    talk.chat.more(1)
    talk.backends[0].answer("z")
    talk.drain()
    assert talk.chat.turn.group == 1


def test_picking_one_models_answer_early_stops_the_others(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    first.start()
    first.step("a")
    talk.drain()
    talk.chat.pick(1)
    assert talk.told == "Answer 2 has not begun yet."
    talk.chat.pick(0)
    assert second.requests[-1] == Cancel(second.ask.ask)
    assert not any(isinstance(request, Cancel) for request in first.requests)
    second.start()
    second.finish("cancelled")
    first.finish()
    talk.drain()
    assert talk.kept == ["Hi", "a"]


def test_stopping_stops_all_of_them(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.chat.stop()
    for backend in talk.backends:
        assert backend.requests[-1] == Cancel(backend.ask.ask)
        backend.start()
        backend.finish("cancelled")
        talk.drain()
    assert talk.seen(Returned) == [Returned("Hi")]
    assert talk.chat.conversation.tree.turns == {}


def test_two_system_texts_are_two_prompts_of_one_model() -> None:
    talk = talk_of(Settings(models=(A,), systems=(None, "Be brief."), samples=2))
    talk.chat.send("Hi")
    (backend,) = talk.backends
    assert [(ask.system, ask.samples) for ask in backend.asks] == [(None, 2), ("Be brief.", 2)]


def test_panes_that_share_a_prompt_share_a_prefill_wherever_they_stand() -> None:
    talk = talk_of(Settings(models=(A,), samples=3))
    talk.chat.change("own", Own(1, "system", "Be brief."))
    talk.chat.change("own", Own(2, "temperature", 1.5))
    talk.chat.send("Hi")
    (backend,) = talk.backends
    plain, brief = backend.asks
    assert (plain.system, plain.params.temperatures) == (None, (0.7, 1.5))
    assert (brief.system, brief.samples) == ("Be brief.", 1)
    backend.about(plain).answer("one", "three")
    backend.about(brief).answer("two")
    talk.drain()
    assert talk.shown == ["one", "two", "three"]
    assert talk.chat.turn is not None
    assert talk.chat.turn.labels == [
        "own system text · T 0.7",
        "“Be brief.” · T 0.7",
        "own system text · T 1.5",
    ]
    rows = talk.chat.turn.rows
    assert [row.prompt.system for row in rows] == [None, "Be brief.", None]
    talk.chat.show(talk.chat.conversation.tree.turns[1])
    assert len(set(talk.chat.turn.labels)) == 3


def test_a_pane_that_is_not_there_is_refused(talk: Talk) -> None:
    assert not talk.chat.change("own", Own(2, "temperature", 1.0))
    assert talk.told == "There are 2 panes, no 3: /samples makes more."
    assert not talk.chat.change("samples", 17)
    assert "34 answers" in talk.told


def test_more_answers_come_from_all_models_under_the_prompts_of_the_turn(talk: Talk) -> None:
    answered(talk, "Hi", "one", "two")
    talk.chat.change("systems", ("Be brief.",))
    talk.chat.more()
    assert [backend.ask.system for backend in talk.backends] == [None, None]
    for backend, text in zip(talk.backends, ("three", "four"), strict=True):
        backend.answer(text)
    talk.drain()
    assert talk.shown == ["one", "two", "three", "four"]
    assert talk.chat.turn is not None
    assert talk.chat.turn.labels == ["a", "b", "a", "b"]


def test_what_grows_out_of_an_answer_is_asked_of_its_own_model() -> None:
    talk = talk_of(Settings(models=(A, B), samples=1, max_tokens=2))
    talk.chat.change("own", Own(1, "temperature", 1.3))
    talk.chat.send("Hi")
    for backend in talk.backends:
        backend.start()
        backend.step("x")
        backend.finish("length")
    talk.drain()
    first, second = both(talk)
    source = talk.chat.conversation.tree.answers[2]
    talk.chat.continue_(source)
    assert len(first.asks) == 1
    assert second.ask.answer == tuple(source.tokens)
    assert second.ask.params.temperatures == (1.3,), "sampled as it was"
    second.answer("y")
    talk.drain()
    talk.chat.fork(source, 0, encode("~")[0], 2)
    assert len(first.asks) == 1
    assert second.ask.samples == 2


def test_the_model_that_wrote_an_answer_scores_it(talk: Talk) -> None:
    answered(talk, "Hi", "one", "two")
    answers = talk.chat.conversation.tree.answers
    first, second = both(talk)
    ask = talk.chat.score(answers[2].model, [1, 2, 3], 1)
    assert second.requests[-1].ask == ask
    assert ask is not None
    second.say(Scored(ask, ()))
    other = talk.chat.score(answers[1].model, [1, 2, 3], 1)
    assert other is not None
    first.say(Died("killed"))
    talk.drain()
    assert talk.seen(ScoresCame) == [ScoresCame(other, problem="killed"), ScoresCame(ask)]
    assert talk.chat.score(answers[1].model, [1, 2, 3], 1) is None


def test_the_figures_are_those_of_the_model_in_focus() -> None:
    talk = talk_of(Settings(models=(A, B), samples=2))
    talk.chat.send("Hi")
    for backend, word in zip(talk.backends, ("one", "two"), strict=True):
        backend.answer(word, word)
    talk.drain()
    assert talk.chat.lane.name == "a"
    talk.chat.focused = 2
    assert talk.chat.lane.name == "b"
    assert talk.chat.part is not None
    assert talk.chat.part.places == (2, 3)
    assert talk.chat.turn is not None
    assert talk.chat.turn.samples == 4


@pytest.mark.parametrize("seed", range(40))
def test_whatever_two_models_do_nothing_is_lost(seed: int) -> None:
    """Random models: each part starts, steps, fails, overflows or dies when it likes; every text
    that was sent is asked, waits, or came back."""
    random = Random(seed)
    talk = Talk(Settings(models=(A, B), samples=random.choice([1, 2])), ready=False)
    chat = talk.chat
    sent: list[str] = []
    begun: set[int] = set()
    loaded: dict[int, int] = {}

    def fail(backend: FakeBackend, failures: list[Event]) -> None:
        failure = random.choice(failures)
        if isinstance(failure, Died):
            loaded[id(backend)] = len(backend.loads)
        backend.say(failure)

    def speak(backend: FakeBackend) -> None:
        """The next word of a backend."""
        number = loaded.setdefault(id(backend), 0)
        if number < len(backend.loads):
            loaded[id(backend)] += 1
            if random.random() < 0.7:
                return backend.ready(backend.loads[number].name)
            return backend.say(random.choice([Failed(None, "no"), Failed(None, "no", kept=True)]))
        parts = [] if chat.turn is None else [part for part in chat.turn.parts if not part.over]
        asks = {part.ask for part in parts}
        if not backend.asks or backend.ask.ask not in asks:
            return None
        number = backend.ask.ask
        failures: list[Event] = [Failed(number, "no"), Died("dead")]
        if number not in begun:
            begun.add(number)
            failures.append(Overflowed(number, 3000, 2048, (1500, 900)))
            return backend.start() if random.random() < 0.8 else fail(backend, failures)
        if random.random() < 0.1:
            return fail(backend, failures)
        if random.random() < 0.3:
            return backend.finish(random.choice(["stop", "cancelled"]))
        return backend.step(*"abc"[: backend.ask.samples])

    def send() -> None:
        sent.append(f"message {len(sent)}")
        chat.send(sent[-1])

    for _ in range(250):
        random.choice(
            [
                *[lambda: speak(random.choice(talk.backends))] * 10,
                send,
                lambda: chat.pick(random.randrange(4)),
                chat.stop,
                chat.drop_oldest,
                chat.decline,
                chat.more,
                lambda: chat.change("models", random.choice([("a", "b"), ("b",), ("a",)])),
            ]
        )()
        talk.drain()
        conversation = chat.conversation
        assert len(conversation.mask) == len(conversation.tokens)
        tree = conversation.tree
        places = [turn.user for turn in tree.turns.values()]
        returned = "\n\n".join(e.text for e in talk.seen(Returned) if isinstance(e, Returned))
        if chat.overflow is not None:
            places.append(chat.overflow.text)
        if chat.turn is not None and chat.turn.turn is None:
            places.append(chat.turn.user)
        assert sorted([*places, *chat.queue, *returned.split("\n\n")]) == sorted(
            [*sent, *([""] if not returned else [])]
        )
        shown = chat.turn
        if shown is not None and shown.turn is not None:
            there = {answer.id for answer in shown.turn.answers} | shown.turn.expected
            assert [row.id for row in shown.rows] == sorted(there), "as the tree counts them"
            assert [shown.turn.told(row.id) for row in shown.rows] == [
                *range(1, len(shown.rows) + 1)
            ]
            if shown.over:
                assert shown.rows == shown.turn.answers
        for turn in tree.turns.values():
            growing = shown is not None and turn is shown.turn and not shown.over
            assert growing or not turn.expected
            assert turn.answers, "no turn without an answer"
            for answer in turn.answers:
                assert answer.prompt.ids, "no answer without a prompt"
