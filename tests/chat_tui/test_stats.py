"""What picks say of settings, as a table and as JSON."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from chat_tui import cli
from chat_tui.model import Model
from chat_tui.preferences import compared, labelled, preferred
from chat_tui.recording import save
from chat_tui.standing import ELO, SETTINGS, standing
from chat_tui.stats import By, since
from chat_tui.stats_table import show
from tests.chat_tui.judging import Said, judge
from tests.chat_tui.talking import Talk

COLD, WARM, HOT = Said("cold", 0.2), Said("warm", 0.7), Said("hot", 1.2)


def said(pairs: object) -> list[tuple[object, ...]]:
    return [
        tuple(part.text if hasattr(part, "text") else part for part in pair)
        for pair in pairs  # type: ignore[attr-defined]
    ]


def test_a_pick_is_better_than_each_answer_that_was_turned_down() -> None:
    turn = judge().judge(1, COLD, WARM, HOT, Said("warm"), Said(""))
    # What says the same was not turned down; what ended without a word was.
    assert said(preferred(turn)) == [("warm", "cold"), ("warm", "hot"), ("warm", "")]
    assert said(compared(turn)) == [(*pair, 1.0) for pair in said(preferred(turn))]
    assert said(labelled(turn)) == [
        ("cold", False),
        ("warm", True),
        ("hot", False),
        ("", False),
    ]


@pytest.mark.parametrize(
    ("verdict", "labels"), [("tie", []), ("bad", [("cold", False), ("hot", False)]), ("skip", [])]
)
def test_without_a_pick_nothing_is_preferred(verdict: str, labels: list[object]) -> None:
    turn = judge().judge(verdict, COLD, HOT)  # type: ignore[arg-type]
    assert list(preferred(turn)) == []
    assert said(compared(turn)) == ([] if verdict == "skip" else [("cold", "hot", 0.5)])
    assert said(labelled(turn)) == labels


def test_answers_that_came_after_the_judgement_are_not_in_it() -> None:
    own = judge()
    turn = own.judge("tie", COLD, HOT)
    own._answer(turn, WARM)
    assert said(compared(turn)) == [("cold", "hot", 0.5)]


def test_a_pick_goes_before_a_tie_and_one_that_was_taken_back_says_nothing() -> None:
    own = judge()
    tie, pick = own.judge("tie", COLD, HOT), own.judge(0, COLD, HOT)
    tie.picked, pick.picked = tie.answers[1].id, None
    assert said(compared(tie)) == [("hot", "cold", 1.0)]
    assert (pick.verdict, list(compared(pick))) == (None, [])


def test_picks_in_a_chat_count() -> None:
    talk = Talk()
    talk.ask("What is red?", "The rose", "A fox", pick=1)
    talk.ask("Alone", "one", "two")
    (turn, _) = talk.chat.conversation.tree.turns.values()
    assert said(preferred(turn)) == [("A fox", "The rose")]


def test_temperatures_stand_as_two_players_do() -> None:
    own = judge()
    for place in [0] * 12 + [1] * 6:
        own.judge(place, COLD, HOT)
    own.judge("tie", COLD, HOT)
    own.judge("bad", COLD, HOT)
    own.judge(0, COLD, Said("colder", 0.2))  # says nothing about temperatures
    found = standing(own.turns, "temperature")
    cold, hot = found.entries
    assert (found.judgements, found.comparisons) == (20, 20)
    assert (cold.name, cold.value, cold.won, cold.tied, cold.lost) == ("T 0.2", 0.2, 12, 2, 6)
    assert cold.win_rate == pytest.approx(13 / 20)
    assert cold.score == pytest.approx(ELO * math.log(13 / 7) / 2)
    assert hot.score == pytest.approx(-cold.score)  # type: ignore[operator]
    assert found.notes[0].startswith("T 0.2 and T 1.2 cannot be told apart yet: 108 points")


def test_one_that_is_clearly_ahead_is_said_to_be() -> None:
    own = judge()
    for place in [0] * 40 + [1] * 10:
        own.judge(place, COLD, HOT)
    (note,) = standing(own.turns, "temperature").notes
    assert note.startswith("T 0.2 is ahead of T 1.2 by 241 points, from ")


@pytest.mark.parametrize(
    ("by", "one", "other", "names"),
    [
        ("top-k", Said("a", top_k=1), Said("b", top_k=None), ("top-k 1", "all tokens")),
        ("system", Said("a", system="Be  brief."), Said("b"), ('"Be brief."', "the model's own")),
        (
            "model",
            Said("a", model=Model("m", "/a/m", fingerprint="1")),
            Said("b", model=Model("m", "/b/m", fingerprint="2")),
            ("m", "m (/b/m)"),
        ),
    ],
)
def test_each_kind_of_setting_has_its_standing(
    by: str, one: Said, other: Said, names: tuple[str, str]
) -> None:
    own = judge()
    own.judge(0, one, other)
    assert tuple(entry.name for entry in standing(own.turns, by).entries) == names
    for kind in SETTINGS:
        assert bool(standing(own.turns, kind).entries) is (kind == by)


def test_who_won_all_has_no_score_and_it_is_said_why() -> None:
    own = judge()
    for _ in range(3):
        own.judge(0, COLD, HOT)
    found = standing(own.turns, "temperature")
    assert [entry.score for entry in found.entries] == [None, None]
    assert found.notes == (
        "3 judgements, and T 0.2 won every comparison: no score is high or low enough for that.",
    )


def test_what_was_never_compared_stands_apart() -> None:
    own = judge()
    for place in (0, 1):
        own.judge(place, COLD, HOT)
        own.judge(place, WARM, Said("x", 0.0))
    found = standing(own.turns, "temperature")
    assert [entry.group for entry in found.entries] == [0, 0, 1, 1]
    assert "2 groups that were never compared" in found.notes[0]
    assert sum("2 judgements: too few" in note for note in found.notes) == 2


def test_the_table_shows_bars_counts_and_intervals() -> None:
    own = judge()
    for place in [0, 0, 0, 1]:
        own.judge(place, COLD, HOT)
    found = standing(own.turns, "temperature")
    drawn = StringIO()
    console = Console(file=drawn, width=80, highlight=False)
    show(Counter(["pick"] * 4 + ["bad"]), [found], console)
    text = drawn.getvalue()
    assert "4 picks · 1 all bad" in text
    assert "By temperature · 4 judgements, 4 comparisons" in text
    line = next(line for line in text.splitlines() if " T 0.2 " in line)
    assert line.split()[2:] == ["███████▌", "75%", "3", "0", "1", "+95", "-132", "to", "+322"]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_models_name_is_no_more_than_text_in_the_table() -> None:
    own = judge()
    own.judge(0, COLD, Said("hot", model=Model("[red]\x1b[31m\nhot")))
    drawn = StringIO()
    show(Counter(["pick"]), [standing(own.turns, "model")], Console(file=drawn, width=80))
    assert "[red]" in drawn.getvalue()
    assert "\x1b" not in drawn.getvalue()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, ["stats", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_command_says_where_picks_come_from_when_there_are_none(home: Path) -> None:
    assert "chat-tui rate FILE" in run()
    assert json.loads(run("--json")) == {
        "picks": 0,
        "ties": 0,
        "all_bad": 0,
        "skipped": 0,
        "standings": [],
    }


def test_the_command_counts_what_it_is_asked_to_count(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    old, new = judge(), judge()
    for place in (0, 1):
        old.judge(place, COLD, HOT, at=time.time() - 90_000)
    new.judge("tie", COLD, WARM, at=time.time())
    new.judge("skip", COLD, WARM, at=time.time())
    new.session.rated = str(file.resolve())
    numbers = [save(own.session) for own in (old, new)]

    def found(*arguments: str) -> dict[str, int]:
        document = json.loads(run("--json", *arguments))
        assert [standing["by"] for standing in document["standings"]] == ["temperature"]
        return {
            entry["name"]: entry["comparisons"] for entry in document["standings"][0]["entries"]
        }

    assert found() == {"T 0.2": 3, "T 1.2": 2, "T 0.7": 1}
    assert found("--since", "1d") == {"T 0.2": 1, "T 0.7": 1}
    assert found("--session", str(numbers[0])) == {"T 0.2": 2, "T 1.2": 2}
    assert found("--rated", str(file)) == {"T 0.2": 1, "T 0.7": 1}
    assert "No answers of different models were compared." in run("--by", "model")
    assert "2 picks · 1 tie · 1 skipped" in run()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--session", "9"], "There is no session 9"),
        (["--rated", "x.txt"], "were not rated"),
        (["--since", "soon"], "neither a time ago"),
    ],
)
def test_what_cannot_be_counted_is_said_in_one_line(
    home: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    sys.argv[1:] = ["stats", *arguments]
    with pytest.raises(SystemExit):
        cli.main()
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_every_kind_can_be_asked_for() -> None:
    assert [by.value for by in By] == list(SETTINGS)


def test_since_takes_a_time_ago_or_a_day() -> None:
    assert since("2h") == pytest.approx(time.time() - 7200, abs=2)
    assert since("2026-01-31") == time.mktime((2026, 1, 31, 0, 0, 0, 0, 0, -1))
