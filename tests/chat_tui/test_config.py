"""The config file and the environment: what they set, which wins, and what is said of mistakes."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from chat_tui import cli, oneshot
from chat_tui.config import Config, options, read, variable
from chat_tui.config_cli import template
from chat_tui.keymap import key_of, read_keys
from chat_tui.settings import Settings

ROOT = get_command(cli.app)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file would be, in a home of its own."""
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    for name in options(ROOT):
        monkeypatch.delenv(variable(name), raising=False)
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def config_of(file: Path, text: str) -> Config:
    file.write_text(text)
    return read(ROOT)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["chat-tui", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of what is asked once, instead of an answer."""
    settings: list[Settings] = []

    def answer(prompt: str, asked: Settings, *, as_json: bool) -> int:
        settings.append(asked)
        return 0

    monkeypatch.setattr(oneshot, "answer_once", answer)
    return settings


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Settings]
) -> None:
    file.write_text('seed = 1\ntop-k = 5\nmax_tokens = 11\nsystem = "Be brief."\n')
    monkeypatch.setenv("CHAT_TUI_SEED", "2")
    monkeypatch.setenv("CHAT_TUI_MAX_TOKENS", "22")
    assert run(monkeypatch, "-p", "hi", "--max-tokens", "33") == 0
    (settings,) = asked
    assert (settings.max_tokens, settings.seed, settings.top_ks) == (33, 2, (5,))
    assert settings.systems == ("Be brief.",)


def test_several_answers_of_the_file_are_for_the_screen_and_not_for_scripts(
    file: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Settings]
) -> None:
    file.write_text("samples = 6\ntemperature = [0.2, 0.9]\nsystem = ['One.', 'Two.']\n")
    run(monkeypatch, "-p", "hi")
    run(monkeypatch, "-p", "hi", "-t", "0.5,0.6")
    monkeypatch.setenv("CHAT_TUI_SAMPLES", "3")
    run(monkeypatch, "-p", "hi")
    assert [settings.samples for settings in asked] == [1, 2, 3]
    assert [settings.temperatures for settings in asked] == [(0.2,), (0.5, 0.6), (0.2,)]
    assert {settings.systems for settings in asked} == {("One.",)}


def test_every_option_of_the_chat_can_be_set_in_the_template(file: Path) -> None:
    text = re.sub(r"^#(?=[a-z])", "", template(ROOT), flags=re.MULTILINE)
    config = config_of(file, text)
    assert config.troubles == []
    assert set(config.values) == {option.name for option in options(ROOT).values()}
    assert read_keys(config.keys)[1] == []


def test_the_template_changes_nothing(file: Path) -> None:
    config = config_of(file, template(ROOT))
    assert (config.values, config.keys, config.troubles) == ({}, {}, [])


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("sampels = 4", ": there is no option sampels; did you mean samples?"),
        ("samples = '4'", ": samples takes a whole number, not '4'."),
        ("samples = true", ": samples takes a whole number, not True."),
        ("samples = 99", ": samples: 99 is not in the range 1<=x<=32."),
        ("tools = 1", ": tools takes true or false, not 1."),
        ("temperature = [0.2, 'x']", ": temperature takes one number, or one per answer"),
        ("assume = 'softcap'", ": assume takes KEY=VALUE, as in softcap=20."),
        ("\n\nseed = \n", ", line 3: invalid value."),
        ("[keys]\nsamples = 3", ": samples belongs above [keys]."),
        ("keys = 3", ": keys is a table: [keys]."),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_what_was_meant(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    trouble: str,
) -> None:
    file.write_text(text)
    assert run(monkeypatch, "-p", "hi") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"chat-tui: {file}{trouble}")


def test_bytes_that_are_no_text_are_told_by_their_line(file: Path) -> None:
    file.write_bytes(b"seed = 1\nsystem = '\xff'\n")
    assert read(ROOT).troubles == [f"{file}, line 2: this is not UTF-8."]


@pytest.mark.parametrize(
    ("name", "value", "trouble"),
    [
        ("CHAT_TUI_SEED", "x", "CHAT_TUI_SEED takes a whole number, not 'x'."),
        ("CHAT_TUI_TOOLS", "maybe", "CHAT_TUI_TOOLS takes true or false, not 'maybe'."),
        ("CHAT_TUI_TOP_K", "few", "CHAT_TUI_TOP_K takes a whole number from 1"),
    ],
)
def test_a_mistake_in_the_environment_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, trouble: str
) -> None:
    monkeypatch.setenv(name, value)
    (told,) = read(ROOT).troubles
    assert told.startswith(trouble)


def test_a_broken_file_stops_neither_path_nor_show_nor_edit(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("seed = ")
    monkeypatch.setenv("VISUAL", f"{sys.executable} -c \"open('{file}', 'w').write('seed = 5')\"")
    assert run(monkeypatch, "config", "path") == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert run(monkeypatch, "config", "show") == 1
    assert "line 1: invalid value" in capsys.readouterr().err
    assert run(monkeypatch, "config", "edit") == 0
    assert file.read_text() == "seed = 5"


def test_the_first_edit_makes_a_file_for_its_owner_alone_and_what_is_wrong_behind_it_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil = f"open('{file}', 'a').write('nonsense = 1')"
    monkeypatch.setenv("VISUAL", f'{sys.executable} -c "{spoil}"')
    assert run(monkeypatch, "config", "edit") == 1
    assert "nonsense: there is no such action" in capsys.readouterr().err
    assert "#samples = 2" in file.read_text()
    assert os.stat(file).st_mode & 0o777 == 0o600


def test_show_tells_where_each_value_is_from(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("seed = 5\ntools = false\n")
    monkeypatch.setenv("CHAT_TUI_TOOLS", "yes")
    run(monkeypatch, "--top-k", "7", "config", "show", "--json")
    told = json.loads(capsys.readouterr().out)["options"]
    assert told["seed"] == {"value": 5, "source": "file"}
    assert told["tools"] == {"value": True, "source": "environment"}
    assert told["top-k"] == {"value": "7", "source": "command line"}
    assert told["private"] == {"value": False, "source": "default"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Ctrl+G", "ctrl+g"),
        ("alt+ctrl+x", "alt+ctrl+x"),
        ("ctrl+alt+x", "alt+ctrl+x"),
        ("?", "question_mark"),
        ("ctrl++", "ctrl+plus"),
        ("+", "plus"),
        ("PgUp", "pageup"),
        ("esc", "escape"),
        ("shift+g", "G"),
        ("G", "G"),
        ("space", "space"),
        ("less_than_sign", "less_than_sign"),
    ],
)
def test_keys_are_understood_as_people_write_them(text: str, key: str) -> None:
    assert key_of(text) == key


@pytest.mark.parametrize(
    ("table", "trouble"),
    [
        ({"chat.tere": "f2"}, "chat.tere: there is no such action; did you mean chat.tree?"),
        ({"chat.tree": "f99"}, "chat.tree: there is no key 'f99'; did you mean f9?"),
        ({"chat.tree": "ctlr+t"}, "chat.tree: there is no ctlr to hold, as in ctlr+t; did you"),
        ({"chat.tree": []}, "chat.tree: takes a key, or a list of keys."),
        ({"chat.tree": ["f2", 3]}, "chat.tree: takes a key, or a list of keys, not 3."),
        ({"chat.tree": "t"}, "chat.tree: t is typed; add ctrl or alt, or take another."),
        ({"chat.tree": "+"}, "chat.tree: + is typed; add ctrl or alt, or take another."),
        ({"answers.zoom": "i"}, "answers.zoom: i is answers.tokens already."),
        ({"answers.zoom": "pageup"}, "answers.zoom: PgUp is scroll.page-up already."),
        ({"tree.fold": "ctrl+q"}, "tree.fold: Ctrl+Q is chat.quit already."),
        ({"chat.tree": "enter"}, "chat.tree: Enter is prompt.send already."),
    ],
)
def test_what_a_key_cannot_be_is_named(table: dict[str, object], trouble: str) -> None:
    assert read_keys(table)[1][0].startswith(trouble)


def test_two_actions_may_change_their_keys_for_each_others() -> None:
    keys, troubles = read_keys({"answers.zoom": "i", "answers.tokens": ["z", "f2"]})
    assert troubles == []
    assert keys.changed == {"answers.zoom": "i", "answers.tokens": "z,f2"}
