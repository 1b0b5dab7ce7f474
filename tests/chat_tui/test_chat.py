"""Moving in the tree of a conversation and growing it, without a screen."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from chat_tui.chat import Chat
from chat_tui.document import from_json, to_json
from chat_tui.effects import CountsCame, Extended, Moved, Noted, Picked, Returned
from chat_tui.session import Session
from chat_tui.settings import Settings
from engine.messages import Count, Counted, Died, Failed, Overflowed
from tests.chat_tui.fakes import encode
from tests.chat_tui.talking import Talk


@pytest.fixture
def talk() -> Talk:
    """Two turns of two answers each."""
    talk = Talk()
    talk.ask("Hi", "one two", "three four", pick=1)
    talk.ask("More", "five", "six", pick=0)
    return talk


def test_undo_shows_the_answers_of_the_last_turn_again(talk: Talk) -> None:
    talk.chat.undo()
    assert talk.shown == ["five", "six"]
    assert talk.kept == ["Hi", "three four"]
    talk.chat.pick(1)
    assert talk.kept == ["Hi", "three four", "More", "six"]
    assert len(talk.backend.asks) == 2


def test_undo_goes_back_as_far_as_there_are_picks(talk: Talk) -> None:
    talk.chat.undo()
    talk.chat.undo()
    assert talk.shown == ["one two", "three four"]
    assert talk.kept == []
    talk.chat.undo()
    assert talk.told == "There is no pick to take back."
    talk.chat.pick(0)
    talk.ask("Else", "a", "b")
    assert talk.backend.ask.history[0].text == "one two"
    tree = talk.chat.conversation.tree
    assert [turn.user for turn in tree.turns.values()] == ["Hi", "More", "Else"]


def test_undo_takes_an_early_pick_back_while_the_row_still_grows(talk: Talk) -> None:
    talk.chat.send("Third")
    talk.drain()
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.undo()
    assert talk.told == "The answers are still growing; stop them first."
    talk.chat.pick(1)
    talk.chat.undo()
    talk.drain()
    assert talk.seen(Picked)[-1] == Picked(None)
    talk.backend.finish()
    talk.drain()
    assert talk.shown == ["a", "b"]


def test_the_token_list_after_a_detour_is_that_of_the_path(talk: Talk) -> None:
    before = talk.chat.conversation.tokens, talk.chat.conversation.mask
    talk.chat.undo()
    talk.chat.pick(1)
    assert talk.chat.conversation.tokens != before[0]
    talk.ask("Third", "seven", "eight", pick=0)
    talk.chat.show(talk.chat.conversation.tree.turns[2])
    talk.chat.pick(0)
    assert (talk.chat.conversation.tokens, talk.chat.conversation.mask) == before
    assert not talk.seen(Noted)


def test_any_answer_can_be_gone_to_and_is_then_what_the_next_message_follows(talk: Talk) -> None:
    answer = talk.chat.conversation.tree.answers[1]
    talk.chat.go(answer)
    talk.drain()
    assert talk.seen(Moved)[-1] == Moved(tuple(talk.chat.conversation.path), None)
    talk.ask("Else", "a", "b", pick=0)
    assert talk.kept == ["Hi", "one two", "Else", "a"]
    assert talk.chat.conversation.tree.turns[1].picked == answer.id


def test_more_answers_grow_beside_the_old_ones_under_the_same_prompt(talk: Talk) -> None:
    first = talk.backend.ask
    talk.chat.more(3)
    talk.drain()
    assert talk.shown == ["five", "six"]
    ask = talk.backend.ask
    assert (ask.text, ask.history, ask.samples) == (first.text, first.history, 3)
    talk.answer("seven", "eight", "nine")
    assert talk.shown == ["five", "six", "seven", "eight", "nine"]
    assert talk.seen(Extended)
    talk.chat.pick(3)
    assert talk.kept[-1] == "eight"
    prompts = {row.prompt for row in talk.chat.conversation.tree.turns[2].answers}
    assert len(prompts) == 1
    assert not talk.seen(Noted)


def test_more_answers_keep_the_system_text_that_the_turn_was_asked_with(talk: Talk) -> None:
    talk.chat.change("systems", ("Be brief.",))
    talk.chat.more(1)
    assert talk.backend.ask.system is None


def test_every_temperature_and_top_k_gets_an_answer_that_says_which(talk: Talk) -> None:
    talk.chat.change("temperatures", (0.2, 1.2))
    talk.chat.change("top_ks", (1, 20, None))
    talk.ask("Third", "a", "b", "c")
    assert talk.backend.ask.params.top_ks == (1, 20, None)
    assert talk.chat.turn is not None
    rows = talk.chat.turn.rows
    assert [(row.temperature, row.top_k) for row in rows] == [(0.2, 1), (1.2, 20), (0.2, None)]
    labels = ["T 0.2 · top-k 1", "T 1.2 · top-k 20", "T 0.2 · all tokens"]
    assert talk.chat.turn.labels == labels
    talk.chat.show(talk.chat.conversation.tree.turns[3])
    assert talk.chat.turn.labels == labels


def test_a_set_seed_moves_on_rather_than_to_repeat_an_answer() -> None:
    talk = Talk(Settings(seed=11))
    talk.ask("Hi", "one", "two")
    talk.chat.more(2)
    assert talk.backend.ask.params.seed == 13
    talk.answer("three", "four")
    assert [row.seed for row in talk.chat.conversation.tree.turns[1].answers] == [11, 12, 13, 14]


def test_an_old_answer_can_be_picked_while_new_ones_are_on_their_way(talk: Talk) -> None:
    talk.chat.more(2)
    talk.chat.pick(1)
    assert talk.backend.cancels == [None]
    talk.backend.start()
    talk.backend.finish("cancelled")
    talk.drain()
    assert talk.kept[-1] == "six"
    assert len(talk.chat.conversation.tree.turns[2].answers) == 2


def test_more_that_comes_to_nothing_leaves_the_old_answers(talk: Talk) -> None:
    talk.chat.more(2)
    talk.backend.start()
    talk.backend.say(Failed(talk.backend.ask.ask, "Out of memory."))
    talk.drain()
    assert talk.shown == ["five", "six"]
    assert not talk.seen(Returned)
    assert set(talk.chat.conversation.tree.answers) == {1, 2, 3, 4}
    talk.chat.more(2)
    talk.backend.say(Overflowed(talk.backend.ask.ask, 3000, 2048, (2990, 10)))
    talk.drain()
    assert talk.shown == ["five", "six"]
    assert "no room for another answer" in str(talk.seen(Noted)[-1])


def test_the_engine_dying_keeps_the_new_answers_that_had_begun(talk: Talk) -> None:
    talk.chat.more(2)
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.backend.say(Died("The engine was killed."))
    talk.drain()
    assert talk.shown == ["five", "six", "a", "b"]
    talk.chat.more(1)
    assert talk.told == "The engine is started anew; try again when it is ready."


def test_an_edited_message_begins_a_branch_beside_the_old_one(talk: Talk) -> None:
    tree = talk.chat.conversation.tree
    talk.chat.edit(tree.turns[1], "Hello")
    assert talk.kept == []
    assert talk.backend.ask.history == ()
    talk.answer("seven", "eight")
    talk.chat.pick(0)
    assert talk.kept == ["Hello", "seven"]
    assert [turn.user for turn in tree.children(None)] == ["Hi", "Hello"]
    assert [turn.user for turn in tree.children(tree.answers[2])] == ["More"]


def test_an_edit_that_is_not_answered_comes_back_and_so_does_what_was_there(talk: Talk) -> None:
    talk.chat.edit(talk.chat.conversation.tree.turns[2], "More!")
    talk.backend.say(Failed(talk.backend.ask.ask, "Out of memory."))
    talk.drain()
    assert talk.seen(Returned) == [Returned("More!")]
    assert talk.kept == ["Hi", "three four", "More", "five"]
    talk.chat.undo()
    talk.chat.edit(talk.chat.conversation.tree.turns[1], "Hello")
    talk.backend.start()
    talk.drain()
    talk.chat.stop()
    talk.backend.finish("cancelled")
    talk.drain()
    assert talk.shown == ["five", "six"]
    assert len(talk.chat.conversation.tree.turns) == 2


def test_an_edit_while_answers_grow_gives_the_text_back(talk: Talk) -> None:
    talk.chat.send("Third")
    talk.drain()
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.edit(talk.chat.conversation.tree.turns[1], "Hello")
    talk.drain()
    assert talk.seen(Returned) == [Returned("Hello")]


def stopped(talk: Talk) -> None:
    """A third turn that was stopped after a few words."""
    talk.chat.send("Third")
    talk.drain()
    talk.backend.start()
    talk.backend.step("The", "It")
    talk.backend.step(" sea", " is")
    talk.backend.finish("cancelled")
    talk.drain()


def test_a_stopped_answer_continues_from_its_exact_tokens(talk: Talk) -> None:
    stopped(talk)
    source = talk.chat.turn.rows[0] if talk.chat.turn is not None else None
    assert source is not None
    talk.chat.continue_(source)
    assert talk.backend.ask.answer == tuple(source.tokens)
    assert talk.backend.ask.samples == 1
    talk.answer(" is blue")
    assert talk.shown == ["The sea", "It is", "The sea is blue"]
    talk.chat.pick(2)
    answer = talk.chat.conversation.path[-1].answer
    assert (answer.given, answer.source, answer.mask) == (2, source.id, [1] * 5)
    assert answer.prompt == source.prompt
    talk.ask("Fourth", "a", "b", pick=0)
    assert not talk.seen(Noted)


def test_an_answer_that_ended_by_itself_is_not_continued(talk: Talk) -> None:
    talk.chat.continue_(talk.chat.conversation.tree.answers[1])
    assert "ended by itself" in talk.told
    assert len(talk.backend.asks) == 2


def test_what_a_content_filter_ended_is_told_from_what_ended_by_itself(talk: Talk) -> None:
    talk.chat.send("Third")
    talk.drain()
    talk.backend.start()
    talk.backend.step("The", "It")
    talk.backend.end_row(0, "content_filter")
    talk.backend.finish()
    talk.drain()
    talk.chat.pick(0)
    pick = talk.chat.conversation.path[-1]
    assert pick.caption.endswith("cut by the server's content filter")
    talk.chat.continue_(pick.answer)
    assert talk.told.startswith("The server's content filter ended it")
    again = from_json(to_json(Session(conversation=talk.chat.conversation)))
    assert [answer.reason for answer in again.conversation.path[-1].turn.answers] == [
        "content_filter",
        "stop",
    ]


def test_a_fork_goes_on_with_another_token_in_the_place_of_one(talk: Talk) -> None:
    stopped(talk)
    assert talk.chat.turn is not None
    source = talk.chat.turn.rows[1]
    talk.chat.fork(source, 1, encode("~")[0], 2)
    assert talk.backend.ask.answer == (source.tokens[0], *encode("~"))
    talk.answer("a", "b")
    assert talk.shown == ["The sea", "It is", "It~a", "It~b"]
    fork = talk.chat.turn.rows[3]
    assert (fork.given, fork.mask) == (2, [1, 0, 1])
    assert talk.chat.turn.labels == ["", "", "2 from 2", "2 from 2"]


def test_a_fork_with_ones_own_words(talk: Talk) -> None:
    stopped(talk)
    assert talk.chat.turn is not None
    talk.chat.fork(talk.chat.turn.rows[1], 1, " was", 1)
    assert talk.backend.ask.answer_text == " was"
    talk.answer(" red")
    assert talk.shown[-1] == "It was red"
    assert talk.chat.turn.rows[2].mask == [1, 0, 0, 0, 0, 1, 1]


def test_an_edited_answer_is_continued_from(talk: Talk) -> None:
    talk.chat.edit_answer(talk.chat.conversation.tree.answers[2], "three apples and")
    assert talk.kept == []
    talk.answer(" pears")
    assert talk.shown == ["one two", "three four", "three apples and pears"]


def test_another_models_answer_is_forked_as_text_and_not_by_its_ids(talk: Talk) -> None:
    talk.chat.change("models", ("other",))
    talk.backend.ready("Other-1B")
    talk.drain()
    source = talk.chat.conversation.tree.answers[2]
    talk.chat.fork(source, 1, 1234)
    assert "mean nothing" in talk.told
    talk.chat.fork(source, 1, " five", 1)
    assert (talk.backend.ask.answer, talk.backend.ask.answer_text) == ((), "three five")


def test_two_models_answers_stand_side_by_side_in_one_turn(talk: Talk) -> None:
    talk.chat.change("models", ("other",))
    talk.backend.ready("Other-1B")
    talk.drain()
    talk.chat.more(1)
    talk.answer("seven")
    names = [answer.model.name for answer in talk.chat.conversation.tree.turns[2].answers]
    assert names == ["SmolLM2-135M-Instruct"] * 2 + ["Other-1B"]
    talk.chat.pick(2)
    assert talk.kept == ["Hi", "three four", "More", "seven"]
    talk.ask("Fourth", "a", "b", pick=0)
    assert not talk.seen(Noted)


def test_dropped_turns_are_dropped_where_they_were_and_nowhere_else(talk: Talk) -> None:
    talk.chat.send("Third")
    talk.drain()
    talk.backend.say(Overflowed(talk.backend.ask.ask, 2300, 2048, (900, 900, 20)))
    talk.drain()
    talk.chat.drop_oldest()
    talk.answer("seven", "eight")
    talk.chat.pick(0)
    assert [pick.user for pick in talk.chat.conversation.turns] == ["More", "Third"]
    assert len(talk.chat.conversation.path) == 3
    talk.chat.undo()
    talk.chat.more(1)
    assert [exchange.user for exchange in talk.backend.ask.history] == ["More"]
    talk.backend.start()
    talk.backend.finish("cancelled")
    talk.drain()
    talk.chat.undo()
    assert [pick.user for pick in talk.chat.conversation.turns] == ["Hi"]
    assert sum(talk.chat.conversation.mask) == 2


def test_a_new_conversation_ends_what_grew(talk: Talk) -> None:
    old = talk.chat.conversation
    talk.chat.send("Third")
    talk.drain()
    talk.backend.start()
    talk.backend.step("a", "b")
    talk.drain()
    talk.chat.new()
    assert [answer.reason for answer in list(old.tree.answers.values())[-2:]] == ["cancelled"] * 2
    assert talk.chat.conversation.tree is not old.tree
    assert talk.kept == []


def act(chat: Chat, random: Random, message: str) -> None:
    """Anything that the user could do now."""
    tree = chat.conversation.tree
    answer = random.choice([*tree.answers.values(), None])
    if answer is None:
        return chat.send(message)
    turn = random.choice(list(tree.turns.values()))
    place = random.randrange(len(answer.tokens))
    acts: list[Callable[[], None]] = [
        chat.undo,
        lambda: chat.pick(random.randrange(3)),
        lambda: chat.more(random.choice([1, 2])),
        lambda: chat.show(turn),
        lambda: chat.go(answer),
        lambda: chat.edit(turn, message),
        lambda: chat.continue_(answer),
        lambda: chat.fork(answer, place, " word"),
        lambda: chat.edit_answer(answer, answer.text[:place] + " and"),
    ]
    return random.choice(acts)()


@pytest.mark.parametrize("seed", range(40))
def test_the_model_sees_what_was_kept_wherever_the_user_goes(seed: int) -> None:
    """Random walks through the tree: the list only grows along a path, masks and ids agree."""
    random = Random(seed)
    talk = Talk(Settings(samples=2))
    conversation = talk.chat.conversation
    for number in range(60):
        act(talk.chat, random, f"message {number}")
        talk.drain()
        if talk.chat.running:
            count = talk.backend.ask.samples
            talk.backend.start()
            for _ in range(random.randrange(1, 4)):
                talk.backend.step(
                    *(random.choice(["red", "blue sea", "a b c"]) for _ in range(count))
                )
            talk.backend.finish(random.choice(["stop", "length", "cancelled"]))
            talk.drain()
        for answer in conversation.tree.answers.values():
            assert len(answer.mask) == len(answer.tokens) == len(answer.ends)
            assert answer.ends[-1] == len(answer.text)
            assert answer.reason is not None
        assert len(conversation.mask) == len(conversation.tokens)
    assert not talk.seen(Noted)
    assert not talk.seen(Returned)


def test_texts_are_counted_by_what_answers() -> None:
    talk = Talk(ready=False)
    assert talk.chat.count(["one"]) is None
    talk.backend.ready()
    talk.drain()
    asks = [talk.chat.count(["one", "two"]), talk.chat.count(["three"]), talk.chat.count(["four"])]
    assert talk.backend.requests[-3] == Count(asks[0], ("one", "two"))
    assert talk.chat.pace == "waiting"
    talk.backend.say(Counted(asks[0], (3, 4)), Failed(asks[1], "cannot"), Died("gone"))
    talk.drain()
    assert talk.seen(CountsCame) == [
        CountsCame(asks[0], (3, 4)),
        CountsCame(asks[1]),
        CountsCame(asks[2]),
    ]
    assert talk.chat.pace == "idle"
