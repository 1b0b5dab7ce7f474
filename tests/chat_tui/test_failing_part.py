"""A model that fails beside others costs its own answers; what is shown and what is kept have the
same numbers."""

from __future__ import annotations

import re

import pytest

from chat_tui.app import ChatApp
from chat_tui.backends.made import backend_for
from chat_tui.effects import Overflow, Returned, RowEnded
from chat_tui.screens.tree import TreeScreen
from chat_tui.settings import Settings, Source
from chat_tui.widgets.outline import OutlineView
from engine.messages import Died, Failed, Overflowed
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.running import Running, running, until
from tests.chat_tui.sse_server import Asked, Script, SseServer, Wire
from tests.chat_tui.sse_server import talk as answers
from tests.chat_tui.talking import A, B, Talk, both, notes, talk_of

THREE = Settings(models=(Source("a"), Source("b"), Source("c")), samples=1)


@pytest.fixture
def talk() -> Talk:
    """Two models, one answer each."""
    return talk_of(Settings(models=(A, B), samples=1))


def test_a_model_that_dies_costs_its_own_answers_alone(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    for backend in talk.backends:
        backend.start()
        backend.step("x")
    second.say(Died("The engine was killed."))
    first.step("y")
    talk.drain()
    assert notes(talk) == ["b: The engine was killed."]
    assert talk.seen(RowEnded) == [RowEnded(1, None, "")]
    talk.chat.send("And?")
    first.finish()
    talk.drain()
    assert talk.kept == ["Hi", "xy"]
    # The next message waits for the one that died, and then goes to both.
    assert len(second.loads) == 2
    assert len(first.asks) == 1
    second.ready("b")
    talk.drain()
    assert [backend.ask.text for backend in talk.backends] == ["And?", "And?"]


def test_what_a_model_that_fails_has_not_begun_leaves_no_trace(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    second.say(Failed(second.ask.ask, "Out of memory."))
    talk.drain()
    assert notes(talk) == ["b: Out of memory."]
    first.start()
    talk.drain()
    assert talk.seen(RowEnded) == [RowEnded(1, None, "", "Out of memory.")]
    talk.chat.focused = 1
    assert talk.chat.current is None
    first.step("x")
    talk.drain()
    talk.chat.pick(1)
    assert talk.told == "Answer 2 came to nothing."
    first.finish()
    talk.drain()
    assert talk.shown == ["x"]
    talk.chat.pick(1)
    assert talk.told == "There is 1 answer, no 2."
    talk.chat.send("And?")  # goes on with the one that there is
    assert talk.kept == ["Hi", "x"]
    assert len(talk.chat.conversation.tree.turns[1].answers) == 1


def test_when_every_model_fails_the_message_comes_back(talk: Talk) -> None:
    talk.chat.send("Hi")
    for backend in talk.backends:
        backend.say(Failed(backend.ask.ask, "Out of memory."))
        talk.drain()
    assert talk.seen(Returned) == [Returned("Hi")]
    assert notes(talk) == ["a: Out of memory.", "b: Out of memory."]
    assert talk.chat.turn is None


def test_a_prompt_that_fits_one_model_alone_is_answered_by_it(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    second.say(Overflowed(second.ask.ask, 2300, 2048, (1900, 20)))
    talk.drain()
    first.answer("x")
    talk.drain()
    assert not talk.seen(Overflow)
    (note,) = notes(talk)
    assert note.startswith("b: There is no room for an answer: its prompt has 2,300 tokens")
    assert talk.shown == ["x"]
    assert not talk.chat.running


def test_a_prompt_that_fits_none_is_asked_about_as_the_smallest_has_it(talk: Talk) -> None:
    talk.chat.send("Hi")
    first, second = both(talk)
    first.say(Overflowed(first.ask.ask, 4300, 4096, (500, 3000, 20)))
    second.say(Overflowed(second.ask.ask, 4400, 2048, (500, 3000, 20)))
    talk.drain()
    assert talk.seen(Overflow) == [Overflow("Hi", 4400, 2048, 2)]
    assert notes(talk) == []
    talk.chat.drop_oldest()
    assert len(first.asks) == len(second.asks) == 2


def test_a_model_that_cannot_be_loaded_leaves_the_others() -> None:
    talk = Talk(Settings(models=(A, B), samples=1), ready=False)
    talk.chat.send("Hi")
    talk.backends[0].ready("a")
    talk.drain()
    assert talk.backends[0].asks == [], "it waits for the other one"
    talk.backends[1].say(Failed(None, "b does not fit into memory."))
    talk.drain()
    assert notes(talk) == ["b does not fit into memory.", "The next message goes to a."]
    assert talk.seen(Returned) == [Returned("Hi")]
    talk.ask("Hi", "one")
    assert talk.kept == ["Hi", "one"]


def test_a_model_that_dies_while_it_loads_is_not_tried_for_ever(talk: Talk) -> None:
    first, second = both(talk)
    second.say(Died("The engine was killed."))
    talk.drain()
    talk.chat.send("Hi")
    second.say(Died("The engine was killed."))
    talk.drain()
    assert talk.seen(Returned) == [Returned("Hi")]
    talk.chat.send("Hi")
    assert first.ask.text == "Hi"
    assert len(second.loads) == 2


def test_a_model_that_joins_and_does_not_come_leaves_what_was_there() -> None:
    talk = talk_of(Settings(models=(A,), samples=1))
    talk.chat.change("models", ("a", "b"))
    talk.backends[0].ready("a")
    talk.backends[1].say(Failed(None, "There is no b."))
    talk.drain()
    assert talk.chat.settings.models == (A,)
    assert notes(talk)[-1] == "The next message goes to a again."
    talk.ask("Hi", "one")
    assert talk.kept == ["Hi", "one"]


# What is shown.


def refuses(asked: Asked, wire: Wire) -> None:
    wire.json(400, {"error": {"message": "I am not in the mood."}})


def breaks_off(asked: Asked, wire: Wire) -> None:
    """Before the first word."""
    wire.start(length=1000)


def says_what_went_wrong(asked: Asked, wire: Wire) -> None:
    wire.start()
    wire.event({"error": {"message": "Out of memory."}})


def agree(app: ChatApp) -> list[str]:
    """The texts of the panes, which are those of the turn's rows and of the tree's answers."""
    turn = app.chat.turn
    assert turn is not None
    assert turn.turn is not None
    assert [id(row) for row in turn.rows] == [id(answer) for answer in turn.turn.answers]
    assert [pane.answer for pane in app.grid.panes] == turn.rows
    assert [pane.index for pane in app.grid.panes] == list(range(len(turn.rows)))
    texts = [pane.text for pane in app.grid.panes]
    assert texts == [row.text for row in turn.rows]
    return texts


@pytest.mark.parametrize("failing", [refuses, breaks_off, says_what_went_wrong])
async def test_a_server_that_fails_beside_two_that_answer(failing: Script) -> None:
    with (
        SseServer(answers("Red", pause=0.01)) as first,
        SseServer(failing) as second,
        SseServer(answers("Blue and grey", pause=0.01)) as third,
    ):
        settings = Settings(
            models=tuple(Source("", server.url) for server in (first, second, third)), samples=1
        )
        app = ChatApp(settings, backend_for(settings.loads()[settings.models[0]]))
        async with app.run_test(size=(120, 30)) as pilot:
            chat = app.chat
            await until(pilot, lambda: chat.phase == "ready")
            for more in (False, True):
                app.act(chat.more if more else lambda: chat.send("Name a colour."))
                await until(pilot, lambda: chat.turn is not None and not chat.running)
                app.drain()
                assert agree(app) == ["Red", "Blue and grey"] * (1 + more)
            await pilot.press("alt+4")
            app.drain()
            (pick,) = chat.conversation.path
            assert (pick.answer.text, pick.picked) == ("Blue and grey", 3)
            assert pick.caption.startswith("4 of 4")
            app.act(chat.undo)
            assert agree(app) == ["Red", "Blue and grey"] * 2
            app.chat.close()


async def answers_beside(run: Running, fail: object) -> None:
    """The first and the third answer; the second fails while they do."""
    await run.send("Hi")
    first, second, third = run.backends
    third.start()
    third.step("blue")
    second.say(fail(second) if callable(fail) else fail)  # type: ignore[arg-type]
    await run.settle()
    first.start()
    first.step("red")
    await run.settle()


def failed(backend: FakeBackend) -> Failed:
    return Failed(backend.ask.ask, "Out of memory.")


def overflowed(backend: FakeBackend) -> Overflowed:
    return Overflowed(backend.ask.ask, 2300, 2048, (1900, 20))


FAILURES = [failed, overflowed, Died("The engine was killed.")]


async def numbers_in_the_tree(run: Running) -> list[tuple[str, str]]:
    """Number and text of each answer, as the tree draws them."""
    await run.press("ctrl+t")
    assert isinstance(run.app.screen, TreeScreen)
    view = run.app.screen.query_one(OutlineView)
    shown = [re.search(r" (\d+) . (\w+)", view.render_line(y).text) for y in range(len(view.rows))]
    await run.press("ctrl+t")
    return [(found[1], found[2]) for found in shown if found is not None]


@pytest.mark.parametrize("fail", FAILURES)
async def test_the_panes_keep_their_places_while_others_grow_and_close_up_afterwards(fail) -> None:
    async with running(THREE, size=(120, 30)) as run:
        await answers_beside(run, fail)
        assert [pane.text for pane in run.app.grid.panes] == ["red", "", "blue"]
        assert await numbers_in_the_tree(run) == [("1", "red"), ("3", "blue")]
        run.app.grid.focus_pane(2)
        await run.press("i")
        assert run.app.screen.subject.title.startswith("Answer 3 of 3 · c")
        await run.press("escape")
        run.backends[0].finish()
        run.backends[2].finish()
        await run.settle()
        assert agree(run.app) == ["red", "blue"]
        assert run.app.chat.focused == run.app.grid.focused_index == 1
        assert run.app.focused is run.app.grid.panes[1]
        assert await numbers_in_the_tree(run) == [("1", "red"), ("2", "blue")]
        await run.press("2")
        assert run.kept == ["blue"]
        assert run.app.chat.conversation.path[0].caption.startswith("2 of 2 · c")


@pytest.mark.parametrize("fail", FAILURES)
async def test_an_answer_that_was_picked_early_stays_the_one(fail) -> None:
    async with running(THREE, size=(120, 30)) as run:
        await answers_beside(run, fail)
        await run.press("alt+3")
        run.backends[0].finish("cancelled")
        run.backends[2].finish()
        await run.settle()
        assert run.kept == ["blue"]
        turn = run.app.chat.conversation.tree.turns[1]
        assert [answer.text for answer in turn.answers] == ["red", "blue"]
        assert turn.picked == turn.answers[1].id


async def test_where_the_pane_in_focus_goes_the_next_is_in_focus() -> None:
    async with running(THREE, size=(120, 30)) as run:
        await answers_beside(run, failed)
        run.app.grid.focus_pane(1)
        await run.press("z")
        run.backends[0].finish()
        run.backends[2].finish()
        await run.settle()
        assert agree(run.app) == ["red", "blue"]
        assert run.app.focused is run.app.grid.panes[1]
        await run.press("enter")
        assert run.kept == ["blue"]


async def test_one_that_is_left_stands_alone_and_is_gone_on_with() -> None:
    async with running(Settings(models=THREE.models[:2], samples=1)) as run:
        await run.send("Hi")
        first, second = run.backends
        first.start()
        first.step("red")
        second.say(failed(second))
        first.finish()
        await run.settle()
        assert agree(run.app) == ["red"]
        (pane,) = run.app.grid.panes
        assert pane.has_class("-alone")
        assert "Out of memory." in str(run.app.transcript.entries)
        await run.send("And?")
        assert run.kept == ["red"]
