"""The exported page in a browser: what it shows, and that it does nothing else."""

from __future__ import annotations

import base64
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chat_tui.page import to_html
from chat_tui.rendering.sanitise import sanitise
from chat_tui.session import Session
from chat_tui.settings import Settings
from tests.chat_tui.browser import Browser, Page
from tests.chat_tui.scored import answer_of
from tests.chat_tui.talking import Talk

HOSTILE = (
    '"><img src=http://x.invalid/a onerror=alert(1)></pre></article></title></style>'
    "<script>fetch('http://x.invalid')</script><svg onload=alert(2)>"
    "<a href=javascript:alert(3)>&amp; &#60;\x1b[31m\u202e"
)
LONG = "supercalifragilistic" * 20
ANSWERS = (
    ["Red", " is", " a", " warm", " colour", ".\n\n", "- and", " bright"],
    ["Fire", " and", " roses", ": ", "2+2=", "4", "."],
    ["A", " fox", "."],
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two turns: three answers of which one was picked, then two hostile ones."""
    talk = Talk(Settings(samples=3))
    talk.ask("Why is red warm?", *map("".join, ANSWERS), pick=1)
    talk.chat.change("samples", 2)
    talk.ask(HOSTILE, HOSTILE, LONG)
    answers = list(talk.chat.conversation.tree.answers.values())
    for answer, pieces in zip(answers, ANSWERS, strict=False):
        grown = answer_of(pieces, [0.9, 0.9, 0.001], forced=[5] if len(pieces) == 7 else [])
        answer.tokens, answer.mask, answer.ends = grown.tokens, grown.mask, grown.ends
        answer.scores = grown.scores
    assert talk.chat.turn is not None
    session = Session(None, HOSTILE, 1.5, 2.5, talk.chat.conversation, talk.chat.turn.turn)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(to_html(session), "utf-8")
    return path


@pytest.fixture(scope="module")
def page(browser: Browser, file: Path) -> Page:
    page = browser.page(1400, 900)
    page.go(file.as_uri())
    return page


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Where elements are, in the order of the page."""
    answer: list[dict[str, float]] = page.js(
        f"[...document.querySelectorAll('{selector}')].map(e => e.getBoundingClientRect().toJSON())"
    )
    return answer


def ground(page: Page, token: int) -> str:
    """The colour under a token of the first answer."""
    return str(
        page.js(f"getComputedStyle(document.querySelectorAll('#answer-1 .t')[{token}]).background")
    )


def strength(colour: str) -> float:
    """The opacity in `rgba(224, 92, 38, 0.4) none ...`; 1 where none is said."""
    inside = colour[colour.index("(") + 1 : colour.index(")")]
    parts = [part.strip() for part in inside.split(",")]
    return float(parts[3]) if len(parts) == 4 else 1.0


def test_answers_stand_side_by_side_and_below_each_other_where_it_is_narrow(page: Page) -> None:
    first = boxes(page, ".answer")[:3]
    assert len({box["top"] for box in first}) == 1
    assert first[0]["right"] < first[1]["left"] < first[1]["right"] < first[2]["left"]
    try:
        for width in (360, 280):
            page.resize(width, 700)
            assert page.js("document.documentElement.scrollWidth") <= width
            narrow = boxes(page, ".answer")
            assert all(a["bottom"] < b["top"] for a, b in pairwise(narrow))
            assert all(box["left"] >= 0 and box["right"] <= width for box in narrow)
    finally:
        page.resize(1400, 900)


def test_pointing_at_an_answer_shows_its_heat(page: Page) -> None:
    page.move(1390, 890)
    cold = [strength(ground(page, token)) for token in range(3)]
    assert cold == [0, 0, 0]
    box = boxes(page, "#answer-1")[0]
    page.move(box["left"] + 20, box["bottom"] - 10)
    warm = [strength(ground(page, token)) for token in range(3)]
    assert warm[0] == warm[1] < 0.05
    assert warm[2] > 0.8
    token = boxes(page, "#answer-1 .t")[2]
    page.move(token["left"] + 3, token["top"] + 5)
    under = page.js("document.querySelector('#answer-1 .t:hover').title")
    assert "p 0.10%" in under
    assert "or1" in under
    page.move(1390, 890)
    assert strength(ground(page, 2)) == 0


def test_what_was_forced_is_marked_and_the_pick_is_named(page: Page) -> None:
    forced = "[...document.querySelectorAll('.forced')].map(e => e.textContent)"
    assert page.js(forced) == ["4"]
    named = (
        "[...document.querySelectorAll('.answer h2')]"
        ".map(e => getComputedStyle(e, '::after').content).map(text => text.includes('picked'))"
    )
    assert page.js(named) == [False, True, False, False, False]


def test_the_page_stands_alone_and_runs_nothing(page: Page, file: Path) -> None:
    assert page.requests == [file.as_uri()]
    assert page.complaints == []
    elements = "[...new Set([...document.querySelectorAll('*')].map(e => e.localName))]"
    assert set(page.js(elements)) == {
        *("html", "head", "meta", "title", "style", "body", "h1", "p", "span", "section", "div"),
        *("article", "h2", "pre"),
    }
    attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert set(page.js(attributes)) <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "id", "tabindex"),
        *("style", "title"),
    }
    assert page.js("document.querySelectorAll('.user')[1].textContent") == sanitise(HOSTILE)
    assert page.js("document.querySelector('#answer-4 .text').textContent") == sanitise(HOSTILE)
    assert page.js("document.title") == " ".join(sanitise(HOSTILE).split())


def test_nothing_that_is_put_into_it_could_run(page: Page) -> None:
    """The page's own policy forbids it, should anything ever slip through."""
    page.js(
        "document.body.insertAdjacentHTML('beforeend',"
        " '<img id=slipped src=http://x.invalid/b onerror=\"window.ran = 1\">')"
    )
    page.js("document.body.append(Object.assign(document.createElement('script'),"
            " {textContent: 'window.ran = 2'}))")  # fmt: skip
    try:
        page.until("document.querySelector('#slipped').complete")
        assert page.js("window.ran === undefined")
        assert not any("x.invalid" in url for url in page.requests)
        assert any("Content Security Policy" in complaint for complaint in page.complaints)
    finally:
        page.js("document.querySelectorAll('#slipped, script').forEach(e => e.remove())")
        page._browser.events.clear()


def test_it_prints_with_its_heat(page: Page) -> None:
    printed: Any = page.call("Page.printToPDF")["data"]
    assert base64.b64decode(printed).startswith(b"%PDF-")
    page.media("print", prefers_color_scheme="dark")
    try:
        assert strength(ground(page, 2)) > 0.8
        assert page.js("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert page.js("document.querySelector('.pointing').offsetWidth") == 0
    finally:
        page.media()


def test_it_is_dark_for_who_wants_it_dark(page: Page) -> None:
    page.media(prefers_color_scheme="dark")
    try:
        assert page.js("getComputedStyle(document.body).color") == "rgb(255, 255, 255)"
    finally:
        page.media()
