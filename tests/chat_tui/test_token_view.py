"""The token view: what it shows, how its cursor moves, and what it asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.pilot import Pilot

from chat_tui.answer import Answer
from chat_tui.rendering import Palette
from chat_tui.scores import Scored, scored
from chat_tui.screens.tokens import Subject, TokenScreen
from chat_tui.theme import DARK
from chat_tui.widgets.token_panel import FACTS, About, alternatives, figures, percent
from engine.messages import NO_ID
from tests.chat_tui.pictures import SIZES, Snap, by_size, pictures
from tests.chat_tui.running import until
from tests.chat_tui.scored import answer_of, id_of

SKY = [
    "The sky is blue because of Rayleigh scattering: molecules of the air are much smaller than",
    " the waves of light, and scatter the short, blue ones far more than the long, red ones.\n\n",
    "At dusk the light has a longer way through the air; what is left of it is",
    " 12*7=84>> red. 空が青い 🌊 naïve",
]
PIECES: list[str | bytes] = [
    *(
        piece
        for line in SKY
        for piece in (line.replace(" ", "\0 ").replace("\n\n", "\0\n\n").split("\0"))
        if piece
    ),
    " ",
    b"\xe2",
    b"\x9c",
    b"\x93",
    "\n",
    "<|im_end|>",
]


class Host(App[None]):
    """The token view and nothing else; remembers what it asked for."""

    def __init__(
        self, answers: Sequence[Answer], prompt: Sequence[Scored] | None = None, shown: int = 0
    ) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name
        self.forks: list[TokenScreen.Fork] = []
        self.wanted: list[TokenScreen.Wanted] = []
        subjects = [
            Subject(
                f"Answer {place} of {len(answers)}",
                self._reads(answer),
                "T 0.7, top-k 50",
                place,
                source=answer,
            )
            for place, answer in enumerate(answers, 1)
        ]
        about = None
        if prompt is not None:
            about = Subject("Prompt", lambda start: prompt[start:], source=prompt)
        self.view = TokenScreen(subjects, about, shown=shown)

    @staticmethod
    def _reads(answer: Answer) -> Callable[[int], list[Scored]]:
        return lambda start: scored(answer, start)

    def on_mount(self) -> None:
        self.push_screen(self.view)

    def on_token_screen_fork(self, message: TokenScreen.Fork) -> None:
        self.forks.append(message)
        self.pop_screen()

    def on_token_screen_wanted(self, message: TokenScreen.Wanted) -> None:
        self.wanted.append(message)

    def about(self) -> str:
        return "\n".join(
            "".join(text for text, _ in row).rstrip() for row in self.view.panel._drawn
        )

    def text(self) -> list[str]:
        view = self.view.view
        return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def test_every_token_is_on_the_screen() -> None:
    app = Host([answer_of(["Hello", ",", " wor", "ld", "\n", "\n", "x", b"\xe2", b"\x9c\x93"])])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.text()[:3] == ["Hello,·world↵", "↵", "x<0xE2><0x9C><0x93>"]


async def test_the_panel_tells_about_the_token_under_the_cursor() -> None:
    app = Host([answer_of(["Hello", " world"], [0.5, 0.25], forced=[1])])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        about = app.about()
        assert "token 1 of 2" in about
        assert f"id       {id_of(b'Hello')}" in about
        assert "48 65 6C 6C 6F" in about
        assert "T 1, before top-k    50.0 %  ln  -0.693" in about
        assert "T 0.7, top-k 50      60.0 %  ln  -0.511" in about
        await pilot.press("right")
        assert "token 2 of 2 · forced" in app.about()
        assert "T 0.7, top-k 50    not sampled" in app.about()


async def test_the_character_that_half_a_token_belongs_to() -> None:
    app = Host([answer_of(["a", b"\xe2", b"\x9c\x93", "b"])])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("right", "right")
        assert "part of  ✓" in app.about()
        await pilot.press("right")
        assert "part of" not in app.about()


async def test_the_cursor_moves_by_tokens_and_by_lines() -> None:
    app = Host([answer_of(["one", " two", " three", "\n", "four", " five", "\n", "\n", "six"])])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        view = app.view.view
        for keys, place in (
            (("right", "l"), 2),
            (("down",), 5),
            (("up", "up"), 2),
            (("j", "j"), 7),
            (("j",), 8),
            (("k", "k"), 5),
            (("home",), 4),
            (("end",), 6),
            (("g",), 0),
            (("left",), 0),
            (("G",), 8),
            (("right",), 8),
            (("pageup",), 0),
            (("pagedown",), 8),
        ):
            await pilot.press(*keys)
            assert view.cursor == place, keys


async def test_n_goes_to_the_surprising_tokens_and_round() -> None:
    probabilities = [0.9] * 30
    for place in (4, 11, 12, 20, 29):
        probabilities[place] = 0.01
    app = Host([answer_of([" x"] * 30, probabilities)])
    async with app.run_test(size=(80, 24)) as pilot:
        places = []
        for _ in range(6):
            await pilot.press("n")
            places.append(app.view.view.cursor)
        assert places == [4, 11, 12, 20, 29, 4]
        await pilot.press("N")
        assert app.view.view.cursor == 29


async def test_the_cursor_stays_in_sight_of_a_long_text() -> None:
    app = Host([answer_of([f" word{n}" for n in range(3000)])])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("G")
        view = app.view.view
        assert "·word2999" in app.text()[view.size.height - 1]
        await pilot.press("g")
        assert app.text()[0].startswith("·word0·word1")


async def test_an_answer_that_grows_is_followed_from_its_end() -> None:
    answer = answer_of(["one", " two"])
    app = Host([answer])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("G")
        more = answer_of([" three", " four"])
        for place, token in enumerate(more.tokens):
            first, end = more.span(place)
            answer.append(token, 1, more.text[first:end], more.scores[place])
        await until(pilot, lambda: app.text()[0] == "one·two·three·four")
        assert app.view.view.cursor == 3


async def test_an_alternative_is_chosen_and_forked_from() -> None:
    app = Host([answer_of(["a", "b", "c"]), answer_of(["a", " b", "c"], number=2)], shown=1)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "enter")
        panel = app.view.panel
        assert panel.has_focus
        first = panel.choice
        await pilot.press("down", "enter")
        assert panel.choice is None or first is not None
        assert len(app.screen_stack) == 1
    (fork,) = app.forks
    assert (fork.answer, fork.index) == (2, 1)
    assert fork.instead == panel.alternatives[(first or 0) + 1].token


async def test_escape_goes_back_from_the_panel_then_closes() -> None:
    app = Host([answer_of(["a", "b"])])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "escape")
        assert app.view.view.has_focus
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
    assert app.forks == []


async def test_own_text_forks_too_and_escape_takes_it_back() -> None:
    app = Host([answer_of(["a", "b"])])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "t", *"oh", "escape")
        assert app.view.view.has_focus
        await pilot.press("t", *"[red]q", "enter")
    assert [(fork.answer, fork.index, fork.instead) for fork in app.forks] == [(1, 1, "[red]q")]


async def test_other_answers_and_the_same_place_in_them() -> None:
    answers = [answer_of([f"{n}a", " b", " c"], number=n) for n in (1, 2, 3)]
    app = Host(answers)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "right", "2")
        assert (app.text()[0], app.view.view.cursor) == ("2a·b·c", 2)
        await pilot.press("]", "]")
        assert app.text()[0] == "1a·b·c"
        await pilot.press("[")
        assert app.text()[0] == "3a·b·c"


async def test_the_prompt_asks_for_its_scores_and_shows_them_when_they_come() -> None:
    given = answer_of(["Why", " is", " the", " sky", " blue"])
    text = [Scored(token, None) for token in given.tokens]
    app = Host([answer_of(["a"])], text)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("p")
        assert [message.place for message in app.wanted] == [1]
        assert f"[{given.tokens[0]}]" in app.text()[0]
        assert "reading it" in app.about()
        text[:] = scored(given)
        app.view.scored(1)
        await pilot.pause()
        assert app.text()[0] == "Why·is·the·sky·blue"
        await pilot.press("t", "enter")  # a prompt cannot be forked
        assert app.forks == []
        await pilot.press("p")
        assert app.text()[0] == "a"


async def test_missing_scores_are_said_to_be_missing_and_can_be_asked_for() -> None:
    app = Host([answer_of(["Hello", " you"], scores=False)])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.text()[0] == "Hello·you"
        assert "was not asked" in app.about()
        assert "%" not in app.about()
        await pilot.press("enter")
        assert app.view.view.has_focus  # there is nothing to choose from
        await pilot.press("s", "s")
    assert len(app.wanted) == 1


async def test_a_server_that_tells_no_ids_is_forked_from_by_text() -> None:
    answer = answer_of(["a", " b"], [0.3, 0.3])
    answer.tokens = [NO_ID, NO_ID]
    answer.scores = [
        score
        and score._replace(
            token=NO_ID,
            entropy=math.nan,
            alternatives=tuple(other._replace(token=NO_ID) for other in score.alternatives),
        )
        for score in answer.scores
    ]
    app = Host([answer])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "enter")
        assert "not told" in app.about()
        assert app.about().count("▸") == 1
        await pilot.press("down", "down", "enter")
    assert [(fork.index, fork.instead) for fork in app.forks] == [(1, " or2")]


async def test_no_row_of_the_panel_is_wider_than_its_room() -> None:
    pieces = ["x", " " * 60, "日本語" * 9, b"\xff" * 40, "\x1b[31m", "a\n\n\nb", "e\u0301"]
    app = Host([answer_of(pieces)])
    async with app.run_test(size=(80, 24)):
        palette = Palette.of(app)
        tokens = scored(answer_of(pieces, [0.9, 1e-8, 1.0, 0.2, 0.3, 0.4, 0.5]))
        for place, token in enumerate(tokens):
            about = About(token, place, len(tokens), "T 0.7, top-k 50", "✓")
            rows = [(row, FACTS) for row in figures(about, palette)]
            for width in (30, 36, 60):
                rows += [(row, width) for row in alternatives(token, width, palette, 0)]
            for row, room in rows:
                assert cell_len("".join(text for text, _ in row)) <= room


@pytest.mark.parametrize(
    ("logprob", "shown"),
    [
        (0.0, "100 %"),
        (-1e-6, ">99.99 %"),
        (-0.00012, "99.99 %"),
        (-0.005, "99.50 %"),
        (-0.7, "49.7 %"),
        (-4.7, "0.91 %"),
        (-12.0, "6e-06"),
        (-800.0, "0"),
    ],
)
def test_probabilities_can_be_read(logprob: float, shown: str) -> None:
    assert percent(logprob) == shown


def picture(
    snap: Snap, size: tuple[int, int], *keys: str, theme: str = "", scores: bool = True
) -> None:
    forced = [place for place, piece in enumerate(PIECES) if "84>>" in str(piece)]
    answers = [answer_of(PIECES, number=n, forced=forced, scores=scores) for n in (1, 2, 3)]
    app = Host(answers, [], shown=1)
    if theme:
        app.theme = theme

    async def before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()

    assert snap(app, terminal_size=size, run_before=before)


@pictures
@pytest.mark.parametrize("size", SIZES, ids=by_size)
def test_how_it_looks(snap_compare: Snap, size: tuple[int, int]) -> None:
    picture(snap_compare, size, "n", "n")


@pictures
@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark"])
def test_how_it_looks_in_other_colours(snap_compare: Snap, theme: str) -> None:
    picture(snap_compare, (100, 30), "n", theme=theme)


@pictures
def test_how_it_looks_without_colours(snap_compare: Snap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    picture(snap_compare, (80, 24), "n")


@pictures
def test_choosing_an_alternative(snap_compare: Snap) -> None:
    picture(snap_compare, (80, 24), "n", "enter", "down")


@pictures
def test_typing_own_text(snap_compare: Snap) -> None:
    picture(snap_compare, (80, 24), "n", "t", *"blue")


@pictures
def test_an_answer_without_scores(snap_compare: Snap) -> None:
    picture(snap_compare, (80, 24), "right", scores=False)
