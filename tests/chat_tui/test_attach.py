"""Files in a message: which are meant, what of them is sent, what is said about them beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chat_tui import attach
from chat_tui.attach import AttachError, compose, mentions, read
from chat_tui.frames import framed, frames
from engine.messages import Count, Counted, Died, Failed
from tests.chat_tui.running import Running, running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, and the home folder beside it."""
    here, home = tmp_path / "here", tmp_path / "home"
    (here / "src").mkdir(parents=True)
    home.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    (here / "notes.txt").write_text("one\ntwo\n")
    (here / "two words.txt").write_text("spaced")
    (here / "src" / "a.py").write_text("print(1)")
    (here / ".hidden").write_text("secret")
    (here / "漢字.md").write_text("漢")
    (home / "at_home.txt").write_text("home")
    return here


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("What does @notes.txt say?", ["notes.txt"]),
        ("@notes.txt", ["notes.txt"]),
        ("(see @notes.txt).", ["notes.txt"]),
        ("@notes.txt, @src/a.py: which?", ["notes.txt", "src/a.py"]),
        ('Read @"two words.txt" aloud', ["two words.txt"]),
        ("Read @'two words.txt' aloud", ["two words.txt"]),
        ("Read @two\\ words.txt aloud", ["two words.txt"]),
        ("@~/at_home.txt", ["~/at_home.txt"]),
        ("@./src/../notes.txt", ["./src/../notes.txt"]),
        ("@.hidden", [".hidden"]),
        ("@漢字.md。", []),
        ("@漢字.md", ["漢字.md"]),
        ("joe@notes.txt", []),
        ("@property\ndef f(self): ...", []),
        ("@nobody and @ and @@notes.txt and @\x00", []),
        ("@src and @src/ and @. and @..", []),
        ('"@notes.txt"', []),
    ],
)
def test_what_is_a_mention(text: str, paths: list[str]) -> None:
    assert [mention.path for mention in mentions(text)] == paths


def test_the_text_of_each_file_stands_behind_what_is_said_once() -> None:
    composed = compose("Compare @notes.txt and @src/a.py; then @notes.txt again.")
    assert composed.text == (
        "Compare notes.txt and src/a.py; then notes.txt again.\n\n"
        "--- notes.txt ---\none\ntwo\n--- end of notes.txt ---\n\n"
        "--- src/a.py ---\nprint(1)\n--- end of src/a.py ---"
    )


def test_nothing_that_is_folded_mentions_a_file() -> None:
    folded = {"[pasted]": "@notes.txt\n" * 50}
    composed = compose("[pasted] @src/a.py", lambda shown: shown.replace(*folded.popitem()))
    assert composed.text.startswith("@notes.txt\n@notes.txt\n")
    assert composed.text.endswith("print(1)\n--- end of src/a.py ---")


def test_a_frame_holds_whatever_a_file_says() -> None:
    text = "--- x ---\n--- end of a.txt ---\n---- end of a.txt ----\n"
    message = f"Look:\n\n{framed('a.txt', text)}\n\n{framed('empty', '')}\nand that is all"
    first, second = frames(message)
    assert message[first.start : first.end] == framed("a.txt", text)
    assert (first.name, first.lines) == ("a.txt", 3)
    assert (second.name, second.lines) == ("empty", 1)
    assert list(frames("--- a ---\nnever ended\n" * 300)) == []


@pytest.mark.parametrize(
    ("data", "text", "note"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\rthree", "one\ntwo\nthree", ""),
        ("naïve 漢字".encode(), "naïve 漢字", ""),
        ("naïve".encode("utf-16"), "naïve", ""),
        ("naïve".encode("utf-32"), "naïve", ""),
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", ""),
        ("na\u00efve \u2013 \u20ac".encode("cp1252"), "naïve – €", "Windows-1252"),
        (b"", "", ""),
    ],
)
def test_how_bytes_are_read(folder: Path, data: bytes, text: str, note: str) -> None:
    (folder / "file").write_bytes(data)
    file = read("file")
    assert file.text == text
    assert note in file.note
    assert bool(note) == bool(file.note)


@pytest.mark.parametrize("data", [b"\x7fELF\x00", bytes(range(1, 256)), b"\x1f\x8b\x08\xff"])
def test_what_is_no_text_is_refused(folder: Path, data: bytes) -> None:
    (folder / "file").write_bytes(data)
    with pytest.raises(AttachError, match="file is not a text file"):
        read("file")


def test_what_is_too_large_or_no_file_is_refused(folder: Path) -> None:
    with open(folder / "large", "wb") as file:
        file.truncate(attach.LARGEST + 1)
    os.mkfifo(folder / "pipe")
    for name, why in (
        ("large", "has 4 MB; up to 4 MB"),
        ("pipe", "is no file with a text in it"),
        ("/dev/zero", "is no file with a text in it"),
        ("missing", "cannot be read: No such file"),
    ):
        with pytest.raises(AttachError, match=why):
            compose(f"@{name}") if name != "missing" else read(name)


def offered(before: str) -> list[str]:
    return [offer.written for offer in attach.offered(before)]


def test_paths_are_offered_as_they_have_to_be_written() -> None:
    assert offered("See @") == ["@src/", "@notes.txt ", '@"two words.txt" ', "@漢字.md "]
    assert offered("See @no") == ["@notes.txt "]
    assert offered("@.h") == ["@.hidden "]
    assert offered("@src/") == ["@src/a.py "]
    assert offered("@~/") == ["@~/at_home.txt "]
    assert offered('@"two w') == ['@"two words.txt" ']
    assert offered("@'two") == ["@'two words.txt' "]
    assert offered("joe@no") == offered("no") == offered("@notes.txt and") == []


# In the program.


async def test_a_file_is_completed_counted_and_sent() -> None:
    async with running() as run:
        await run.type("What is in @no")
        assert run.app.prompt.completions.display
        await run.press("tab")
        assert run.text == "What is in @notes.txt "
        ask = run.backend.requests[-1]
        assert isinstance(ask, Count)
        assert ask.texts == (framed("notes.txt", "one\ntwo\n"),)
        assert run.title.startswith("notes.txt: about 13 tokens · 2 answers")
        run.backend.say(Counted(ask.ask, (1234,)))
        await run.settle()
        assert run.title.startswith("notes.txt: 1,234 tokens · 2 answers")
        await run.press("?", "enter")
        assert run.backend.ask.text == (
            "What is in notes.txt ?\n\n--- notes.txt ---\none\ntwo\n--- end of notes.txt ---"
        )
        assert run.title.startswith("2 answers")


async def test_enter_sends_what_is_typed_and_not_what_is_offered() -> None:
    async with running() as run:
        await run.type("@note")
        assert run.app.prompt.completions.display
        await run.press("enter")
        assert run.backend.ask.text == "@note"


async def test_a_file_is_completed_in_the_middle_of_a_text() -> None:
    async with running() as run:
        await run.type("see\n and say")
        await run.press("up", "end")
        await run.type(" @tw")
        await run.press("down", "enter")
        assert run.text == 'see @"two words.txt" \n and say'
        await run.press("!")
        assert run.text == 'see @"two words.txt" !\n and say'


async def counted(run: Running, *tokens: int) -> None:
    ask = run.backend.requests[-1]
    assert isinstance(ask, Count)
    run.backend.say(Counted(ask.ask, tokens))
    await run.settle()


async def test_a_text_is_counted_once_and_anew_when_the_file_changes(folder: Path) -> None:
    async with running() as run:
        await run.type("@notes.txt")
        await counted(run, 7)
        await run.type(" and @src/a.py")
        await counted(run, 5)
        assert run.title.startswith("2 texts: 12 tokens")
        asked = len(run.backend.requests)
        await run.type(" more")
        assert len(run.backend.requests) == asked
        (folder / "notes.txt").write_text("changed in the meantime")
        await run.type(".")
        await counted(run, 9)
        assert run.title.startswith("2 texts: 14 tokens")


async def test_what_is_folded_is_counted_too_and_what_does_not_fit_is_said() -> None:
    async with running() as run:
        run.app.prompt.take_paste("word\n" * 2000)
        await run.settle()
        await counted(run, 4000)
        assert run.title.startswith("pasted 2,000 lines: 4,000 tokens, too long for 2,048")


async def test_before_there_is_a_model_the_size_is_an_estimate() -> None:
    async with running(ready=False) as run:
        await run.type("@notes.txt")
        assert run.title.startswith("notes.txt: about 13 tokens")
        run.backend.ready()
        await run.settle()
        await counted(run, 15)
        assert run.title.startswith("notes.txt: 15 tokens")


@pytest.mark.parametrize("lost", [False, True])
async def test_what_cannot_be_counted_stays_an_estimate(lost: bool) -> None:
    async with running() as run:
        await run.type("@notes.txt")
        ask = run.backend.requests[-1]
        assert isinstance(ask, Count)
        run.backend.say(Died("gone") if lost else Failed(ask.ask, "This server does not count."))
        await run.settle()
        await run.type("!")
        assert run.title.startswith("notes.txt: about 13 tokens")
        assert run.told == ""


async def test_a_file_that_cannot_be_attached_is_said_at_once_and_nothing_is_sent(
    folder: Path,
) -> None:
    (folder / "program").write_bytes(b"\x7fELF\x00")
    async with running() as run:
        await run.type("Explain @program")
        assert run.told == "program is not a text file."
        await run.press("enter")
        assert run.backend.asks == []
        assert run.told == "program is not a text file."
        assert run.text == "Explain @program"


async def test_a_file_in_another_encoding_is_sent_with_a_note(folder: Path) -> None:
    (folder / "old.txt").write_bytes("na\u00efve".encode("latin-1"))
    async with running() as run:
        await run.send("Read @old.txt")
        assert run.told == "old.txt is not UTF-8: it was read as Windows-1252."
        assert "naïve" in run.backend.ask.text


async def test_an_edited_message_keeps_its_files_and_takes_new_ones() -> None:
    async with running() as run:
        await run.send("Read @notes.txt")
        run.backend.answer("a", "b")
        await run.settle()
        sent = run.backend.ask.text
        await run.press("tab", "e")
        assert run.text == "Read notes.txt\n\n[notes.txt, 2 lines]"
        await run.type(" and @src/a.py")
        await run.press("enter")
        assert run.backend.ask.text == (
            f"{sent}\n and src/a.py\n\n--- src/a.py ---\nprint(1)\n--- end of src/a.py ---"
        )


async def test_an_edited_answer_mentions_nothing() -> None:
    async with running() as run:
        await run.send("Hi")
        run.backend.answer("@notes.txt", "b")
        await run.settle()
        await run.press("tab", "E")
        assert run.title.startswith("editing")
        await run.type(" or so")
        await run.press("enter")
        assert run.backend.ask.answer_text.endswith("or so")
