"""What a line of the prompt means, and what is offered while it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_tui.commands import (
    BY_NAME,
    COMMANDS,
    Act,
    Complaint,
    Message,
    Question,
    SetValue,
    complete,
    interpret,
    usage_hint,
)
from chat_tui.settings import Own, Settings


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("/samples 8", 8),
        ("/temp 0", (0.0,)),
        ("/temp 0.2,0.7, 1.0", (0.2, 0.7, 1.0)),
        ("/temp .5", (0.5,)),
        ("/topk 40", (40,)),
        ("/topk all", (None,)),
        ("/topk 0", (None,)),
        ("/topk 1,20 all", (1, 20, None)),
        ("/seed 42", 42),
        ("/seed random", None),
        ("/system You are terse.", ("You are terse.",)),
        ("/system line one\nline two", ("line one\nline two",)),
        ("/system default", (None,)),
        ("/tools off", False),
        ("/TOOLS On", True),
        ("/model ./a.gguf", ("./a.gguf",)),
        ('/model "./my model.gguf" b@http://gpu:8000', ("./my model.gguf", "b@http://gpu:8000")),
        ("/pane 2 temp 1.1", Own(1, "temperature", 1.1)),
        ("/pane 1 topk all", Own(0, "top_k", None)),
        ("/pane 3 model b", Own(2, "model", "b")),
        ("/pane 1 system Be brief.", Own(0, "system", "Be brief.")),
        ("/pane 2 default", Own(1, "")),
    ],
)
def test_a_value_is_understood(line: str, value: object) -> None:
    outcome = interpret(line)
    assert isinstance(outcome, SetValue)
    assert outcome.value == value
    assert hasattr(Settings(), outcome.command.setting)


@pytest.mark.parametrize(
    "line",
    [
        "/samples 0",
        "/samples 33",
        "/samples two",
        "/samples 1e3",
        "/samples ²",
        "/samples 99999999999999999999",
        "/temp -1",
        "/temp hot",
        "/temp 0.7,,x",
        "/temp nan",
        "/temp 1000",
        "/topk 1,-1",
        "/topk -3",
        "/seed -1",
        '/model ""',
        "/pane two temp 1",
        "/pane 2",
        "/pane 2 temp",
        "/pane 2 temp 1,2",
        "/pane 2 heat 1",
        "/seed 9223372036854775808",
        "/tools maybe",
        "/new now",
        "/save",
    ],
)
def test_a_bad_value_is_answered_in_one_line_that_says_what_is_taken(line: str) -> None:
    outcome = interpret(line)
    assert isinstance(outcome, Complaint)
    assert "\n" not in outcome.line
    assert line.split(" ")[0] in outcome.line


def test_an_unknown_command_names_the_nearest() -> None:
    outcome = interpret("/sampels 4")
    assert isinstance(outcome, Complaint)
    assert "/samples?" in outcome.line
    far = interpret("/usr/local/lib is missing")
    assert isinstance(far, Complaint)
    assert "//" in far.line


def test_two_slashes_begin_a_message_with_one() -> None:
    assert interpret("//samples 4") == Message("/samples 4")
    assert interpret("a /new idea") == Message("a /new idea")


def test_a_command_without_its_argument_asks_for_the_value() -> None:
    assert interpret("/temp") == Question(BY_NAME["temp"])
    assert interpret("/new ") == Act(BY_NAME["new"], "")


def test_every_setting_in_the_table_exists_and_can_be_shown() -> None:
    for command in COMMANDS:
        if command.setting:
            assert hasattr(Settings(), command.setting)
            assert command.show is not None
            assert command.show(Settings())


def test_names_complete_as_they_are_typed() -> None:
    assert [choice.line for choice in complete("/s", Settings())] == [
        "/samples ",
        "/seed ",
        "/system ",
        "/server ",
        "/save ",
    ]
    assert len(complete("/", Settings())) == len(COMMANDS)
    assert complete("hello", Settings()) == []
    assert complete("//s", Settings()) == []
    assert complete("/s\nmore", Settings()) == []


def test_values_complete_behind_a_name() -> None:
    assert [choice.line for choice in complete("/tools o", Settings())] == [
        "/tools on",
        "/tools off",
    ]
    models = complete("/model sm", Settings(), lambda: ["smollm2", "nanochat"])
    assert [choice.line for choice in models] == ["/model smollm2"]
    assert complete("/tools on", Settings()) == []


def test_each_of_several_models_completes_and_what_a_pane_may_have() -> None:
    def lines(text: str) -> list[str]:
        return [choice.line for choice in complete(text, Settings(), lambda: ["smollm2", "nano"])]

    assert lines("/model smollm2 na") == ["/model smollm2 nano"]
    assert lines("/pane 2 t") == ["/pane 2 temp ", "/pane 2 topk "]
    assert lines("/pane 2 model n") == ["/pane 2 model nano"]
    assert lines("/pane 2 temp 1") == lines("/pane ") == lines("/pane 2") == []
    assert complete("/pane 2 d", Settings())[0].final


def test_no_values_complete_behind_a_name_that_there_is_not() -> None:
    assert complete("/nonsense x", Settings()) == []


def test_the_current_value_is_shown_while_the_new_one_is_typed() -> None:
    assert "now 2" in usage_hint("/samples ", Settings())
    assert "now a long system text with…" in usage_hint(
        "/system ", Settings(systems=("a long system text without end\nand more",))
    )
    assert usage_hint("/samples", Settings()) == ""


def test_some_commands_can_be_given_without_their_number() -> None:
    assert interpret("/more") == Act(BY_NAME["more"], "")
    assert interpret("/more 3") == Act(BY_NAME["more"], "3")
    assert interpret("/more 0") == Complaint("/more takes a whole number from 1 to 32.")
    assert interpret("/edit two") == Complaint("/edit takes a whole number from 1.")


@pytest.mark.parametrize("command", ["/save", "/export dpo"])
def test_paths_are_completed_folders_first(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my notes").mkdir()
    (tmp_path / "my notes" / "old.json").touch()
    for name in ("many.json", ".hidden", "other"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))

    def offered(typed: str) -> list[tuple[str, str, bool]]:
        return [
            (choice.line, choice.summary, choice.final)
            for choice in complete(f"{command} {typed}", Settings())
        ]

    assert offered("~/m") == [
        (f"{command} ~/my notes/", "", False),
        (f"{command} ~/many.json", "exists already", True),
    ]
    assert [line for line, _, _ in offered(f"{tmp_path}/my notes/")] == [
        f"{command} {tmp_path}/my notes/old.json"
    ]
    assert [line for line, _, _ in offered("~/.")] == [f"{command} ~/.hidden"]
    assert offered("~/none/") == []
    assert offered("~nobody\0/") == []
