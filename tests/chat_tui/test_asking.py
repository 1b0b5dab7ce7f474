"""What is asked and what becomes of it, without a screen: picks, stops, failures, what waits."""

from __future__ import annotations

from random import Random

import pytest

from chat_tui.effects import Cleared, Kept, Noted, Picked, Returned, Withdrawn
from chat_tui.settings import Settings
from engine.messages import Died, Event, Failed, Overflowed
from tests.chat_tui.fakes import prompt_of
from tests.chat_tui.talking import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_declining_gives_the_message_back(talk: Talk) -> None:
    talk.chat.send("too long")
    talk.drain()
    talk.backend.say(Overflowed(talk.backend.ask.ask, 3000, 2048, (2990,)))
    talk.drain()
    talk.chat.decline()
    talk.drain()
    assert talk.seen(Returned) == [Returned("too long")]
    assert talk.chat.turn is None


def test_picking_early_cancels_the_other_rows_and_waits_for_the_picked_one(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.pick(1)
    assert talk.backend.cancels == [0]
    talk.backend.end_row(0, "cancelled")
    talk.backend.step("", "c")
    talk.drain()
    assert not talk.seen(Kept)
    talk.backend.finish()
    talk.drain()
    assert talk.chat.conversation.turns[0].answer.text == "bc"


def test_a_message_sent_meanwhile_waits_until_the_picked_row_has_ended(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.focused = 1
    talk.chat.send("And then?")
    talk.drain()
    assert talk.seen(Picked) == [Picked(1)]
    assert list(talk.chat.queue) == ["And then?"]
    assert len(talk.backend.asks) == 1
    talk.backend.finish()
    talk.drain()
    assert talk.backend.ask.text == "And then?"
    assert talk.backend.ask.history[0].text == "b"


def test_a_finished_turn_without_a_pick_is_continued_with_the_focused_row(talk: Talk) -> None:
    talk.ask("Hi", "one", "two")
    assert talk.chat.conversation.turns == []
    talk.chat.focused = 1
    talk.chat.send("More")
    assert talk.backend.ask.history[0].text == "two"


def test_one_sample_needs_no_pick() -> None:
    talk = Talk(Settings(samples=1))
    talk.ask("Hi", "one two")
    assert [turn.answer.text for turn in talk.chat.conversation.turns] == ["one two"]


def test_stopping_keeps_what_is_there(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    assert talk.chat.stop()
    assert talk.backend.cancels == [None]
    talk.backend.finish("cancelled")
    talk.drain()
    talk.chat.pick(0)
    assert talk.chat.conversation.turns[0].answer.text == "a"
    assert talk.chat.conversation.turns[0].answer.reason == "cancelled"


def test_an_engine_that_does_not_stop_is_ended_by_asking_again(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.stop()
    talk.now = 1.0
    talk.chat.stop()
    assert talk.chat.running
    talk.now = 2.5
    assert talk.chat.hangs
    talk.chat.stop()
    talk.drain()
    assert talk.backend.closed
    assert talk.seen(Noted) == [Noted("The engine did not stop and was ended.", "error")]
    talk.chat.send("More")
    assert len(talk.backend.loads) == 2
    assert talk.chat.conversation.turns[0].answer.text == "a"


def test_stopping_before_the_first_token_gives_the_message_back(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.drain()
    talk.chat.stop()
    talk.backend.finish("cancelled")
    talk.drain()
    assert talk.seen(Withdrawn)
    assert talk.seen(Returned) == [Returned("Hi")]
    assert talk.chat.conversation.tokens == []
    notes = len(talk.seen(Noted))
    talk.ask("Hi again", "one", "two", pick=0)
    assert len(talk.seen(Noted)) == notes == 1


def test_what_is_sent_while_the_model_loads_is_asked_when_it_is_ready() -> None:
    talk = Talk(ready=False)
    talk.chat.send("first")
    talk.chat.send("second")
    talk.drain()
    assert talk.backend.asks == []
    talk.backend.ready()
    talk.drain()
    assert talk.backend.ask.text == "first"
    talk.backend.answer("one", "two")
    talk.drain()
    assert talk.backend.ask.text == "second"
    assert talk.backend.ask.history[0].text == "one"


def test_the_engine_dying_keeps_the_streamed_text_and_the_next_message_starts_it(
    talk: Talk,
) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.backend.say(Died("The engine was killed."))
    talk.drain()
    assert talk.seen(Noted) == [Noted("The engine was killed.", "error")]
    assert len(talk.backend.loads) == 1
    talk.chat.send("And?")
    assert len(talk.backend.loads) == 2
    assert len(talk.backend.asks) == 1
    talk.backend.ready()
    talk.drain()
    assert talk.backend.ask.text == "And?"
    assert talk.backend.ask.history[0].tokens == tuple(
        talk.chat.conversation.turns[0].answer.tokens
    )


def test_the_engine_dying_before_the_first_token_gives_the_texts_back(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.chat.send("and more")
    talk.drain()
    talk.backend.say(Died("The engine was killed."))
    talk.drain()
    assert talk.seen(Returned) == [Returned("Hi\n\nand more")]
    assert talk.seen(Noted) == [Noted("The engine was killed.", "error")]
    assert talk.chat.turn is None
    assert talk.chat.phase == "absent"


def test_a_failed_ask_gives_the_text_back_and_needs_no_new_engine(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.drain()
    talk.backend.say(Failed(talk.backend.ask.ask, "Out of memory."))
    talk.drain()
    assert talk.seen(Returned) == [Returned("Hi")]
    talk.chat.send("Hi")
    assert len(talk.backend.loads) == 1
    assert len(talk.backend.asks) == 2


def test_a_model_that_cannot_be_loaded_leaves_the_last_one_for_the_next_message(
    talk: Talk,
) -> None:
    talk.chat.change("models", ("nonsense",))
    talk.chat.send("Hi")
    talk.backend.say(Failed(None, "There is no model nonsense."))
    talk.drain()
    assert talk.seen(Returned) == [Returned("Hi")]
    assert talk.chat.settings.models == Settings().models
    talk.chat.send("Hi")
    assert [load.name for load in talk.backend.loads][1:] == ["nonsense", "smollm2"]


def test_new_forgets_the_conversation_and_late_events(talk: Talk) -> None:
    talk.ask("Hi", "one", "two", pick=0)
    talk.chat.send("More")
    talk.backend.start()
    talk.drain()
    talk.chat.new()
    talk.backend.step("a", "b")
    talk.backend.finish("cancelled")
    talk.drain()
    assert talk.seen(Cleared)
    assert talk.chat.conversation.tokens == []
    talk.ask("Again", "three", "four", pick=0)
    assert talk.backend.ask.history == ()


def test_the_figures_count_from_the_second_token(talk: Talk) -> None:
    talk.chat.send("Hi")
    talk.backend.start()
    talk.drain()
    assert talk.chat.turn is not None
    talk.now = 0.5
    talk.backend.step("a", "b")
    talk.drain()
    assert talk.chat.part is not None
    assert talk.chat.turn.ttft(talk.chat.part) == 0.5
    assert talk.chat.turn.rate() is None
    talk.now = 2.5
    for _ in range(20):
        talk.backend.step("a", "b")
    talk.drain()
    assert talk.chat.part.rates() == (10.0, 20.0)
    assert talk.chat.turn.rate() == 20.0
    assert talk.chat.context_used == len(prompt_of((), "Hi")) + 21


@pytest.mark.parametrize("seed", range(60))
def test_nothing_typed_is_lost_whatever_happens(seed: int) -> None:
    """Random users and backends: every text is asked, waits, or came back into the prompt."""
    random = Random(seed)
    talk = Talk(Settings(samples=random.choice([1, 2, 3])), ready=False)
    backend, chat = talk.backend, talk.chat
    sent: list[str] = []
    answered = 0

    def answer_a_step() -> None:
        nonlocal answered
        if len(backend.asks) > answered:
            answered = len(backend.asks)
            backend.start()
        elif chat.running:
            backend.step(*"abc"[: backend.ask.samples])

    def send() -> None:
        sent.append(f"message {len(sent)}")
        chat.send(sent[-1])

    def finish() -> None:
        if chat.running and chat.turn is not None and chat.turn.started:
            backend.finish(random.choice(["stop", "cancelled"]))

    def fail() -> None:
        if chat.running:
            answered_by: list[Event] = [
                Failed(backend.ask.ask, "no"),
                Died("dead"),
                Overflowed(backend.ask.ask, 3000, 2048, (1500, 900)),
            ]
            unstarted = chat.turn is not None and not chat.turn.started
            backend.say(random.choice(answered_by if unstarted else answered_by[:2]))

    def load() -> None:
        if chat.phase == "loading":
            backend.say(Died("dead")) if random.random() < 0.2 else backend.ready()

    actions = [
        *[answer_a_step] * 6,
        send,
        send,
        finish,
        finish,
        fail,
        *[load] * 3,
        lambda: chat.pick(random.randrange(3)),
        chat.stop,
        chat.drop_oldest,
        chat.decline,
    ]
    for _ in range(200):
        random.choice(actions)()
        talk.drain()
        returned = "\n\n".join(e.text for e in talk.seen(Returned) if isinstance(e, Returned))
        places = [
            *(turn.user for turn in chat.conversation.turns),
            *dropped_users(talk),
            *chat.queue,
            *returned.split("\n\n"),
            *([chat.turn.user] if chat.turn is not None else []),
            *([chat.overflow.text] if chat.overflow is not None else []),
        ]
        assert sorted(text for text in places if text) == sorted(sent)
        assert len(chat.conversation.mask) == len(chat.conversation.tokens)


def dropped_users(talk: Talk) -> list[str]:
    """The users' texts of turns that were kept once and dropped from the context later."""
    kept = [effect.pick.user for effect in talk.seen(Kept) if isinstance(effect, Kept)]
    return kept[: len(kept) - len(talk.chat.conversation.turns)]
