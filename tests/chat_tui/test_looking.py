"""From the chat to the token view and the tree, and back with what was asked for there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from chat_tui.app import ChatApp
from chat_tui.export import write
from chat_tui.screens.help import HelpScreen
from chat_tui.screens.tokens import TokenScreen
from chat_tui.screens.tree import TreeScreen
from chat_tui.settings import Settings
from chat_tui.store import Store
from chat_tui.widgets import pane
from engine.messages import Failed, Score, Scored, Stepped
from tests.chat_tui.fakes import FakeBackend
from tests.chat_tui.pictures import SIZES, Clock, Snap, by_size, pictures
from tests.chat_tui.running import Running, running, until
from tests.chat_tui.scored import answer_of, score_of

APPLES = (
    ["There", " are", " 96", " apples", "."],
    ["There", " are", " some", " apples", "."],
    ["There", " are", " 96", " of", " them", "."],
)


def step(run: Running, *pieces: str | bytes | None, probability: float = 0.5) -> None:
    """A token with its score for each row."""
    answers = [answer_of([piece], [probability]) if piece is not None else None for piece in pieces]
    for row, answer in enumerate(answers):
        run.backend._counts[row] += answer is not None
    run.backend.say(
        Stepped(
            run.backend.ask.ask,
            tuple(answer.tokens[0] if answer else None for answer in answers),
            tuple(1 if answer else None for answer in answers),
            tuple(answer.text if answer else "" for answer in answers),
            (),
            tuple(answer.scores[0] if answer else None for answer in answers),
        )
    )


async def answered(
    run: Running, rows: Sequence[Sequence[str]] = APPLES, text: str = "How many?"
) -> None:
    await run.send(text)
    run.backend.start()
    for place in range(max(map(len, rows))):
        for row, words in enumerate(rows):
            if place == len(words):
                run.backend.end_row(row)
        step(run, *(words[place] if place < len(words) else None for words in rows))
    run.backend.finish()
    await run.settle()


def tokens(run: Running) -> TokenScreen:
    screen = run.app.screen
    assert isinstance(screen, TokenScreen)
    return screen


def tree(run: Running) -> TreeScreen:
    screen = run.app.screen
    assert isinstance(screen, TreeScreen)
    return screen


def first_line(screen: TokenScreen) -> str:
    return screen.view.render_line(0).text.rstrip()


async def test_i_opens_the_answer_in_focus_and_a_fork_is_asked_for() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("tab", "right", "i")
        assert first_line(tokens(run)) == "There·are·some·apples."
        await run.press("right", "right", "enter", "down", "enter")
        assert run.app.screen is run.app.main
        answer = run.app.chat.conversation.tree.answers[2]
        assert run.backend.ask.answer[:2] == tuple(answer.tokens[:2])
        score = answer.scores[2]
        assert score is not None
        assert run.backend.ask.answer[2] == score.alternatives[2].token  # the third likeliest
        assert run.backend.ask.samples == 3


async def test_own_text_is_asked_for_behind_the_tokens_before() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("tab", "i", "right", "right", "t", *" no", "enter")
        assert run.backend.ask.answer == tuple(run.app.chat.conversation.tree.answers[1].tokens[:2])
        assert run.backend.ask.answer_text == " no"


async def test_it_opens_while_the_answer_grows_but_does_not_fork_then() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("How many?")
        run.backend.start()
        step(run, "Nine", "Ten")
        await run.settle()
        await run.press("tab", "i")
        step(run, " or", " or")
        await run.settle()
        await until(run.pilot, lambda: first_line(tokens(run)) == "Nine·or")
        await run.press("t", "x", "enter")
        assert len(run.backend.asks) == 1
        assert isinstance(run.app.screen, TokenScreen)  # nothing that was chosen is lost


async def test_the_last_picked_answer_and_its_message() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("alt+3", "tab", "i")
        assert first_line(tokens(run)) == "There·are·96·of·them."
        await run.press("p")
        (request,) = (request for request in run.backend.requests if isinstance(request, Score))
        prompt = run.app.chat.conversation.tree.answers[3].prompt
        assert request.tokens == (*prompt.preface, *prompt.ids)
        assert request.start == len(prompt.preface)
        assert request.temperature is None
        pieces = [b"<user>", *(char.encode() for char in "How many?"), b"<assistant>"]
        scores = tuple(score_of(piece, 0.5 if len(piece) == 1 else 1e-6) for piece in pieces)
        run.backend.say(Scored(request.ask, scores))
        await run.settle()
        assert first_line(tokens(run)) == "<user>How·many?<assistant>"
        # How surprising it was is a question about what the user wrote.
        assert "2 template · ppl 2.00" in tokens(run).heading.content.plain
        assert run.app.chat.pace == "idle"
        await run.press("escape", "i", "p")
        assert "ppl 2.00" in tokens(run).heading.content.plain
        assert sum(isinstance(request, Score) for request in run.backend.requests) == 1


async def test_a_message_is_not_read_by_a_model_with_other_tokens() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        run.backend.ready("another")
        await run.settle()
        await run.press("tab", "i", "p")
        about = tokens(run).panel.about
        assert about is not None
        assert "has other tokens" in about.missing
        assert not any(isinstance(request, Score) for request in run.backend.requests)


async def test_a_message_that_cannot_be_scored_says_why() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("tab", "i", "p")
        (request,) = (request for request in run.backend.requests if isinstance(request, Score))
        run.backend.say(Failed(request.ask, "It is too long."))
        await run.settle()
        about = tokens(run).panel.about
        assert about is not None
        assert about.missing == "It is too long."


async def test_an_answer_without_scores_gets_them_from_the_model() -> None:
    async with running(Settings(samples=2)) as run:
        await run.send("Hello")
        run.backend.answer("a b", "c d e")
        await run.settle()
        await run.press("tab", "i", "s")
        (request,) = (request for request in run.backend.requests if isinstance(request, Score))
        answer = run.app.chat.conversation.tree.answers[1]
        assert request.tokens[request.start :] == tuple(answer.tokens)
        assert (request.temperature, request.top_k) == (answer.temperature, answer.top_k)
        scores = tuple(score_of(piece, 0.25) for piece in (b"a", b" b"))
        run.backend.say(Scored(request.ask, scores))
        await run.settle()
        assert first_line(tokens(run)) == "a·b"
        assert "ppl 4.00" in tokens(run).heading.content.plain
        await run.press("escape")
        assert "ppl 4.00" in str(run.app.grid.pane(0).border_title)


async def test_scores_that_were_asked_for_are_kept_and_given_away(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with running(Settings(samples=2), keep=path) as run:
        await run.send("Hello")
        run.backend.answer("a b", "c d e")
        await run.settle()
        run.app.keeping.flush()
        await run.press("tab", "i", "s")
        (request,) = (request for request in run.backend.requests if isinstance(request, Score))
        await run.press("escape")  # whoever does not wait for them finds them later
        run.backend.say(Scored(request.ask, (score_of(b"a", 0.25), score_of(b" b", 0.5))))
        await run.settle()
    with Store.open(path) as store:
        session = store.load(1)
        answer = session.conversation.tree.answers[1]
        assert [score and score.piece for score in answer.scores] == [b"a", b" b"]
        assert "p 25.00%" in write(session, "html")


async def test_what_was_known_of_a_forks_first_tokens_stays_known() -> None:
    async with running(Settings(samples=1)) as run:
        await answered(run, [["Nine", " or", " ten"]])
        source = run.app.chat.conversation.tree.answers[1]
        run.app.act(lambda: run.app.chat.fork(source, 1, "x y"))
        run.backend.start()
        step(run, " too")
        run.backend.finish()
        await run.settle()
        fork = run.app.chat.conversation.tree.answers[2]
        given = [score is not None for score in fork.scores]
        assert given == [True, False, False, False, True]
        run.app.grid.focus_pane(1)
        await run.press("i", "s")
        (request,) = (request for request in run.backend.requests if isinstance(request, Score))
        fresh = tuple(score_of(b"?", 0.125) for _ in fork.tokens)
        run.backend.say(Scored(request.ask, fresh))
        await run.settle()
        scores = [score for score in fork.scores if score is not None]
        assert [score.piece for score in scores] == [b"Nine", b"?", b"?", b"?", b" too"]
        # Nobody sampled what the user wrote.
        assert [score.sampled_logprob is None for score in scores] == [False, *[True] * 3, False]


async def test_there_is_nothing_to_look_at_yet() -> None:
    async with running() as run:
        await run.press("tab", "i")
        assert "no answer to look at" in run.told


async def test_the_panes_say_how_surprised_the_model_was() -> None:
    async with running(Settings(samples=3), size=(150, 30)) as run:
        await answered(run)
        assert "ppl 2.00 · H" in str(run.app.grid.pane(0).border_title)
    async with running(Settings(samples=3), size=(80, 24)) as run:
        await answered(run)
        await run.press("tab", "z")
        strip = run.app.grid.strip
        assert "▂▂▂▂▂" in "".join(text for line in strip._lines for text, _ in line)


async def test_d_marks_where_the_answers_part() -> None:
    async with running(Settings(samples=3), size=(150, 30)) as run:
        await answered(run)
        await run.press("tab", "d")
        marked = [pane.flow._parting for pane in run.app.grid.panes]
        assert marked == [(9, 12), (9, 14), (9, 12)]
        await run.press("d")
        assert [pane.flow._parting for pane in run.app.grid.panes] == [None] * 3


async def test_the_token_view_opens_where_the_answers_part_if_that_is_marked() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("tab", "i")
        assert tokens(run).view.cursor == 0
        await run.press("d")  # the same key goes there
        assert tokens(run).view.cursor == 2
        await run.press("escape", "d", "i")
        assert tokens(run).view.cursor == 2


async def test_ctrl_t_shows_the_tree_and_goes_to_another_answer() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("alt+1")
        await answered(run, [["Yes"], ["No"], ["Perhaps"]], "Sure?")
        await run.press("ctrl+t")
        assert len(tree(run).view.rows) == 8
        await run.press("g", "down", "down")
        assert tree(run).view.row is not None
        await run.press("enter")
        assert run.app.screen is run.app.main
        assert [pick.answer.id for pick in run.app.chat.conversation.path] == [2]
        await run.press("ctrl+t")
        row = tree(run).view.row
        assert row is not None
        assert row.answer is run.app.chat.conversation.tree.answers[2]
        await run.press("i")
        assert first_line(tokens(run)) == "There·are·some·apples."
        await run.press("escape", "ctrl+t")
        assert run.app.screen is run.app.main


async def test_enter_on_a_turn_shows_its_answers_again() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        await run.press("alt+1")
        await run.press("ctrl+t", "g", "enter")
        assert run.app.screen is run.app.main
        assert len(run.app.grid.panes) == 3


async def test_f1_tells_the_keys_of_what_is_looked_at() -> None:
    async with running(Settings(samples=3)) as run:
        await answered(run)
        for key, title in (("i", "In the tokens"), ("ctrl+t", "In the tree")):
            await run.press("tab", key, "f1")
            screen = run.app.screen
            assert isinstance(screen, HelpScreen)
            assert screen.content().plain.startswith(title)
            await run.press("escape", "escape")
            assert run.app.screen is run.app.main


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_how_parting_looks(
    snap_compare: Snap, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(pane, "time", clock)
    backend = FakeBackend()
    app = ChatApp(Settings(samples=3), backend, clock=clock.monotonic)
    beginning = [
        "The",
        " sky",
        " is",
        " **",
        "blue",
        "**",
        " because",
        " of",
        " the",
        " air",
        ":\n",
    ]
    ends = (
        ["\n", "- it", " scatters", " light", "."],
        [" light", " scatters."],
        ["\n", "1.", " it"],
    )

    async def before(pilot: object) -> None:
        run = Running(app, backend, pilot)  # type: ignore[arg-type]
        backend.ready()
        await run.settle()
        await answered(run, [[*beginning, *end] for end in ends], "Why is the sky blue?")
        await run.press("tab", "d")
        for _ in range(3):
            await run.settle()

    assert snap_compare(app, terminal_size=size, run_before=before)
