"""A model that fails beside others: what is shown and what is kept have the same numbers."""

from __future__ import annotations

import re

import pytest

from chat_tui.app import ChatApp
from chat_tui.backends.made import backend_for
from chat_tui.screens.tree import TreeScreen
from chat_tui.settings import Settings, Source
from chat_tui.widgets.outline import OutlineView
from engine.messages import Died, Failed, Overflowed
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.running import Running, running, until
from tests.chat_tui.sse_server import Asked, Script, SseServer, Wire, talk

THREE = Settings(models=(Source("a"), Source("b"), Source("c")), samples=1)


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
        SseServer(talk("Red", pause=0.01)) as first,
        SseServer(failing) as second,
        SseServer(talk("Blue and grey", pause=0.01)) as third,
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
