"""The box at the bottom: newlines, pastes, history, completion."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from chat_tui.commands import BY_NAME
from chat_tui.history import LIMIT, PromptHistory
from chat_tui.terminal import InputParser
from tests.chat_tui.running import Running, running


async def test_enter_sends_and_empties_the_box() -> None:
    async with running() as run:
        await run.send("Hi there")
        assert run.backend.ask.text == "Hi there"
        assert run.text == ""


async def test_an_empty_box_sends_nothing() -> None:
    async with running() as run:
        await run.send("  \n ")
        assert run.backend.asks == []
        assert run.text == "  \n "


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_newline_keys_put_the_newline_where_the_cursor_is(key: str) -> None:
    async with running() as run:
        await run.type("onetwo")
        await run.press("left", "left", "left", key)
        assert run.text == "one\ntwo"
        await run.press("enter")
        assert run.backend.ask.text == "one\ntwo"


async def test_keys_that_come_at_once_keep_their_order() -> None:
    async with running() as run:
        await run.burst(*"one", "ctrl+j", *"twx", "backspace", *"o", "enter", *"next")
        assert run.backend.ask.text == "one\ntwo"
        assert run.text == "next"


async def test_a_command_typed_at_once_is_not_taken_for_another() -> None:
    async with running() as run:
        await run.burst(*"/samples 5", "enter")
        assert run.app.chat.settings.samples == 5
        assert run.text == ""


async def test_the_box_grows_with_its_text_up_to_eight_lines() -> None:
    async with running() as run:
        heights = []
        for _ in range(12):
            heights.append(run.app.prompt.size.height)
            await run.press("ctrl+j")
        assert heights[:3] == [1, 2, 3]
        assert max(heights) == run.app.prompt.size.height == 8


async def paste(run: Running, text: str) -> None:
    run.app.prompt.post_message(events.Paste(text))
    await run.pilot.pause()
    await run.settle()


async def test_a_paste_arrives_whole_with_its_newlines() -> None:
    async with running() as run:
        await paste(run, "one\rtwo\r\nthree\nfour\ttab")
        assert run.text == "one\ntwo\nthree\nfour\ttab"
        assert run.backend.asks == []


LINES = "\n".join(f"{line:06} the quick brown fox, 你好 🙂 [red]" for line in range(2_000))


async def test_a_long_paste_is_folded_and_sent_whole() -> None:
    async with running() as run:
        await run.type("Look at this: ")
        await paste(run, LINES)
        await run.type(" What is it?")
        assert run.text == "Look at this: [pasted 2,000 lines] What is it?"
        assert run.app.prompt.size.height == 1
        await run.press("enter")
        assert run.backend.ask.text == f"Look at this: {LINES} What is it?"


async def test_a_paste_of_five_megabytes_is_a_label_and_whole() -> None:
    text = "x" * 79 + "\r"
    async with running() as run:
        await paste(run, text * 62_500)
        await run.type("?")
        assert run.text == "[pasted 62,500 lines]?"
        assert run.app.prompt.whole == text.replace("\r", "\n") * 62_500 + "?"


async def test_what_is_folded_is_deleted_and_passed_over_as_one_thing() -> None:
    async with running() as run:
        await run.type("a")
        await paste(run, LINES)
        await run.type("b")
        await run.press("left", "left", "x")
        assert run.text == "ax[pasted 2,000 lines]b"
        await run.press("right", "y")
        assert run.text == "ax[pasted 2,000 lines]yb"
        await run.press("backspace", "backspace")
        assert run.text == "axb"
        await run.press("ctrl+z")
        assert run.app.prompt.whole == f"ax{LINES}yb"
        await run.press("left", "ctrl+w")
        assert "pasted" not in run.text


async def test_a_folded_paste_is_shown_in_full_by_a_key() -> None:
    text = "\n".join(map(str, range(30)))
    async with running() as run:
        await paste(run, text)
        await run.press("ctrl+r")
        assert run.text == text
        await run.press("ctrl+r")
        assert run.told == "Nothing is folded here."
        await run.press("ctrl+z")
        assert run.text == "[pasted 30 lines]"
        await paste(run, "x" * 60_000)
        await run.press("ctrl+r")
        assert run.told.startswith("60,000 characters are too many for this box")


async def test_two_pastes_of_one_size_are_two() -> None:
    one, two = "\n".join("a" * 40), "\n".join("b" * 40)
    async with running() as run:
        for text in (one, two, one):
            await paste(run, text)
        assert run.text == "[pasted 40 lines][pasted 40 lines #2][pasted 40 lines]"
        assert run.app.prompt.whole == one + two + one


async def test_what_comes_back_is_folded_again() -> None:
    async with running() as run:
        await run.type("/samples many ")
        await paste(run, LINES)
        await run.press("enter")
        assert run.told == "/samples takes a whole number from 1 to 32."
        assert run.text == "/samples many [pasted 2,000 lines]"
        await run.press("ctrl+u")
        await run.send(LINES)
        await run.press("up")
        assert run.text == "[pasted 2,000 lines]"


async def test_a_paste_beside_the_prompt_goes_into_it() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.press("tab")
        run.app.post_message(events.Paste("two\nlines"))
        await run.settle()
        assert run.text == "two\nlines"
        assert run.app.prompt.has_focus


async def test_control_characters_of_a_paste_are_left_out() -> None:
    async with running() as run:
        await paste(run, "a\x1b[31mb\x07\x00c\x9bd\x7f")
        assert run.text == "a[31mbcd"


async def test_up_and_down_walk_through_what_was_sent_and_keep_the_draft() -> None:
    async with running() as run:
        for text in ("first", "second\nline"):
            await run.send(text)
            run.backend.answer("a", "b")
            await run.settle()
        await run.type("draft")
        await run.press("up")
        assert run.text == "second\nline"
        await run.press("up")  # inside the entry: only the cursor moves
        assert run.text == "second\nline"
        await run.press("up")
        assert run.text == "first"
        await run.press("up")
        assert run.text == "first"
        await run.press("down", "down", "down", "down")
        assert run.text == "draft"


async def answered(run: Running, *texts: str) -> None:
    for text in texts:
        await run.send(text)
        run.backend.answer("a", "b")
        await run.settle()


async def test_what_is_changed_in_an_older_prompt_survives_the_arrows() -> None:
    async with running() as run:
        await answered(run, "first", "second")
        await run.press("up")
        await run.type(" changed")
        await run.press("up", "up", "down")
        assert run.text == "second changed"
        await run.press("enter")
        await run.press("up", "up", "up")
        assert run.text == "first"


async def test_a_draft_comes_back_when_an_older_prompt_was_sent_instead() -> None:
    async with running() as run:
        await answered(run, "first")
        await run.type("half a")
        await run.press("up", "enter")
        assert run.backend.ask.text == "first"
        assert run.text == "half a"


async def test_a_draft_comes_back_behind_a_command_of_the_palette() -> None:
    async with running() as run:
        await run.type("half a")
        run.app.obeying.start(BY_NAME["samples"])
        await run.settle()
        assert run.text == "/samples "
        await run.type("many")
        await run.press("enter")
        assert run.text == "/samples many"
        await run.press("backspace", "backspace", "backspace", "backspace", "3", "enter")
        assert run.app.chat.settings.samples == 3
        assert run.text == "half a"
        run.app.obeying.start(BY_NAME["samples"])
        await run.settle()
        await run.press("down")
        assert run.text == "half a"


async def test_what_was_changed_in_a_message_can_be_found_after_escape() -> None:
    async with running() as run:
        await answered(run, "a question")
        await run.type("half a")
        await run.press("tab", "e")
        await run.type(", rather another")
        await run.press("escape")
        assert run.text == "half a"
        assert run.told == "Left; ↑ brings back what you changed."
        await run.press("up")
        assert run.text == "a question, rather another"


async def test_up_moves_inside_a_wrapped_line_first() -> None:
    async with running(size=(40, 20)) as run:
        await run.send("old")
        run.backend.answer("a", "b")
        await run.settle()
        await run.type("word " * 20)
        await run.press("up")
        assert run.text == "word " * 20
        await run.press("up", "up", "up")
        assert run.text == "old"


async def test_history_is_there_again_in_the_next_run(tmp_path: Path) -> None:
    async with running(state=tmp_path) as run:
        await run.send('two\nlines "quoted" ∂')
    assert (tmp_path / "prompts.jsonl").stat().st_mode & 0o777 == 0o600
    async with running(state=tmp_path) as run:
        await run.press("up")
        assert run.text == 'two\nlines "quoted" ∂'


def test_a_damaged_history_costs_only_its_damaged_lines(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('"one"\n{"x": \n[1]\n"two"\n')
    assert PromptHistory(path).entries == ["one", "two"]
    path.write_bytes(b"\xff\xfe\n")
    assert PromptHistory(path).entries == []
    unwritable = PromptHistory(tmp_path / "missing" / "file")
    unwritable.add("kept in memory")
    assert unwritable.previous("") == "kept in memory"


def test_the_history_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'"{n}"\n' for n in range(2 * LIMIT + 1)))
    assert len(PromptHistory(path).entries) == LIMIT
    assert len(path.read_text().splitlines()) == LIMIT


async def test_commands_are_offered_and_tab_takes_the_first() -> None:
    async with running() as run:
        await run.press("/", "s")
        assert run.app.prompt.completions.display
        await run.press("tab")
        assert run.text == "/samples "
        await run.press("4", "enter")
        assert run.app.chat.settings.samples == 4
        assert run.text == ""
        assert run.told == "samples: 4"


async def test_arrows_choose_and_enter_takes_a_completion() -> None:
    async with running() as run:
        await run.press("/", "s", "down", "enter")
        assert run.text == "/seed "
        await run.press("r")
        await run.press("down", "enter")
        assert run.told == "seed: random"


async def test_enter_on_a_completion_without_argument_runs_it() -> None:
    async with running() as run:
        await run.press("/", "h", "enter")
        assert type(run.app.screen).__name__ == "HelpScreen"


async def test_escape_closes_the_list_and_keeps_the_text() -> None:
    async with running() as run:
        await run.press("/", "s", "escape")
        assert not run.app.prompt.completions.display
        assert run.text == "/s"


async def test_a_bad_value_keeps_the_text_until_the_next_key() -> None:
    async with running() as run:
        await run.send("/samples many")
        assert run.told == "/samples takes a whole number from 1 to 32."
        assert run.text == "/samples many"
        await run.press("backspace")
        assert run.told == ""


async def test_two_slashes_send_one() -> None:
    async with running() as run:
        await run.send("//new is a command")
        assert run.backend.ask.text == "/new is a command"


def keys(data: str) -> list[str]:
    parser = InputParser()
    return [
        event.key if isinstance(event, events.Key) else event.text
        for event in parser.feed(data)
        if isinstance(event, events.Key | events.Paste)
    ]


def test_alt_keys_of_plain_terminals_are_understood() -> None:
    assert keys("\x1b1\x1b9") == ["alt+1", "alt+9"]
    assert keys("\x1b\r") == ["alt+enter"]
    assert keys("\x1b[27;2;13~") == ["shift+enter"]
    assert keys("\x1b[13;2u") == ["shift+enter"]
    assert keys("\r\n\x03") == ["enter", "ctrl+j", "ctrl+c"]


def test_a_paste_with_escape_sequences_is_one_paste() -> None:
    text = "a\x1b[31mred\x1b[0m\rnext \x1b1 line"
    assert keys(f"x\x1b[200~{text}\x1b[201~y") == ["x", text, "y"]


def test_a_paste_may_come_in_pieces() -> None:
    parser = InputParser()
    found: list[object] = []
    for char in "\x1b[200~one\rtwo\x1b[201~z":
        found += [
            event.text if isinstance(event, events.Paste) else event.key
            for event in parser.feed(char)
            if isinstance(event, events.Key | events.Paste)
        ]
    assert found == ["one\rtwo", "z"]


def test_a_mark_of_a_paste_may_come_in_two_reads() -> None:
    parser = InputParser()
    found: list[object] = []
    for data in ("x\x1b[20", "0~one\rtw", "o\x1b[20", "1~y"):
        found += read(parser, data)
    assert found == ["x", "one\rtwo", "y"]


def test_a_paste_that_the_terminal_does_not_mark_is_one_paste(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("chat_tui.terminal.time.monotonic", lambda: now)
    parser = InputParser()
    found = [*read(parser, "the first line\rthe second"), *read(parser, " line\r")]
    assert [*found, *parser.tick()] == []
    now = 0.1
    assert [event.text for event in parser.tick()] == ["the first line\rthe second line\r"]  # type: ignore[attr-defined]
    assert read(parser, "typed\r") == [*"typed", "enter"]


def test_what_is_typed_is_not_taken_for_a_paste() -> None:
    parser = InputParser()
    assert read(parser, "a whole line, typed by a script\r")[-1] == "enter"
    assert "enter" in read(parser, "hi\rthere")
    read(parser, "\x1b[200~paste\x1b[201~")  # this terminal marks pastes
    assert "enter" in read(parser, "the first line\rthe second line")


def read(parser: InputParser, data: str) -> list[object]:
    return [
        event.text if isinstance(event, events.Paste) else event.key
        for event in parser.feed(data)
        if isinstance(event, events.Key | events.Paste)
    ]


async def test_keys_behind_tab_go_where_tab_leads() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("one", "two")
        await run.settle()
        await run.burst(*"draft", "tab", "2")
        assert run.kept == ["two"]
        assert run.text == "draft"
        await run.burst("tab", "tab", *"ed")
        assert run.text == "drafted"


async def test_tab_at_once_behind_a_command_completes_it() -> None:
    async with running() as run:
        await run.burst(*"/sam", "tab", *"3", "enter")
        assert run.app.chat.settings.samples == 3
