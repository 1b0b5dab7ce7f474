"""What is written survives: every end of the program, an engine that is gone, an editor."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from chat_tui.drafts import Draft, Drafts
from engine.messages import Died
from tests.chat_tui.running import Running, running

LINES = "\n".join(map(str, range(40)))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_a_run_leaves_is_taken_over_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "drafts"
    left = Draft("see [pasted 40 lines]", {"[pasted 40 lines]": LINES}, ("a", "\ud800"))
    one = Drafts(folder)
    assert one.take_over() is None
    one.keep(left)
    one.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    two = Drafts(folder)
    found = two.take_over()
    assert found is not None
    assert (found.draft, found.more) == (left, 0)
    two.keep(Draft(), now=True)
    two.close()
    assert files(folder) == []


def test_what_a_running_program_writes_is_its_own(tmp_path: Path) -> None:
    one, two = Drafts(tmp_path), Drafts(tmp_path)
    one.keep(Draft("of one"))
    assert two.take_over() is None
    two.keep(Draft("of two"))
    one.close()
    two.close()
    three, four = Drafts(tmp_path), Drafts(tmp_path)
    found = three.take_over(), four.take_over()
    assert {each.draft.shown for each in found if each is not None} == {"of one", "of two"}
    assert [each.more for each in found if each is not None] == [1, 0]


def test_a_draft_is_written_when_it_changes_and_a_large_one_less_often(tmp_path: Path) -> None:
    now = 0.0
    drafts = Drafts(tmp_path, clock=lambda: now)

    def written() -> str:
        (path,) = tmp_path.glob("*.json")
        return path.read_text()

    drafts.keep(Draft("one"))
    drafts.keep(Draft("two"))
    assert "one" in written()
    now = 0.3
    drafts.keep(Draft("two", {"[x]": "x" * 10_000_000}))
    assert "two" in written()
    now = 0.9
    drafts.keep(Draft("three"))
    assert "two" in written()
    drafts.keep(Draft("three"), now=True)
    assert "three" in written()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"shown": 1}', '{"shown": "", "folds": 2}'])
def test_a_damaged_draft_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.json").write_text(text)
    assert Drafts(tmp_path).take_over() is None
    assert files(tmp_path) == []


def test_a_lock_without_a_draft_goes(tmp_path: Path) -> None:
    one = Drafts(tmp_path)
    one.keep(Draft("text"))
    one.keep(Draft(), now=True)
    assert [name[-5:] for name in files(tmp_path)] == [".lock"]
    assert Drafts(tmp_path).take_over() is None
    assert len(files(tmp_path)) == 1  # its program runs
    assert one._lock is not None
    os.close(one._lock)  # as where it is killed
    assert Drafts(tmp_path).take_over() is None
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    now = 0.0
    drafts = Drafts(tmp_path / "file" / "drafts", clock=lambda: now)
    drafts.keep(Draft("text"))
    assert drafts.trouble.startswith("What you write is not being kept: ")
    drafts.trouble, now = "", 60.0
    drafts.keep(Draft("text, more"))
    assert drafts.trouble == ""
    (tmp_path / "file").unlink()
    (tmp_path / "file").mkdir()
    now = 120.0
    drafts.keep(Draft("text, more"))
    assert len(files(tmp_path)) == 2  # with its lock


# In the program.


async def leave(run: Running) -> None:
    """The program is killed: what is not on the disk by now is lost."""
    run.app.composing.drafts.close()


async def test_what_was_typed_and_pasted_is_there_at_the_next_start(tmp_path: Path) -> None:
    async with running(state=tmp_path) as run:
        await run.type("Look: ")
        run.app.prompt.take_paste(LINES)
        await run.settle()
        run.app.composing.keep(leaving=True)
        await leave(run)
    async with running(state=tmp_path) as run:
        assert run.text == "Look: [pasted 40 lines]"
        assert run.app.prompt.whole == f"Look: {LINES}"
        assert run.told.startswith("What you were writing on ")
        await run.press("enter")
        assert run.backend.ask.text == f"Look: {LINES}"
        run.backend.answer("a", "b")
        await run.settle()
        run.app.exit()
        run.app.composing.drafts.close()
    assert files(tmp_path) == ["memory.json", "prompts.jsonl"]


async def test_a_draft_is_on_the_disk_without_anything_being_done_for_it(tmp_path: Path) -> None:
    async with running(state=tmp_path) as run:
        await run.type("typed")  # and the next drain
        (path,) = (tmp_path / "drafts").glob("*.json")
        assert '"typed"' in path.read_text()
        await run.type("x")
        await run.press("backspace", "ctrl+u")
        run.app.composing.keep(leaving=True)
        assert list((tmp_path / "drafts").glob("*.json")) == []


async def test_messages_that_were_sent_and_not_answered_come_back(tmp_path: Path) -> None:
    async with running(state=tmp_path) as run:
        await run.send("first")
        await run.send("second")
        await run.type("third")
        run.app.composing.keep(leaving=True)
        await leave(run)
    async with running(state=tmp_path, ready=False) as run:
        assert run.text == "first\n\nsecond\n\nthird"
        await run.press("enter")  # while the model loads
        await leave(run)
    async with running(state=tmp_path) as run:
        assert run.text == "first\n\nsecond\n\nthird"


async def test_what_was_set_aside_comes_back_too(tmp_path: Path) -> None:
    async with running(state=tmp_path) as run:
        await run.send("question")
        run.backend.answer("a", "b")
        await run.settle()
        await run.type("half a")
        await run.press("tab", "e")
        await run.type(", changed")
        run.app.composing.keep(leaving=True)
        await leave(run)
    async with running(state=tmp_path) as run:
        assert run.text == "half a\n\nquestion, changed"


async def test_a_private_chat_leaves_nothing(tmp_path: Path) -> None:
    async with running() as run:
        await run.type("secret")
        run.app.exit()
    assert files(tmp_path) == []


async def test_a_lost_engine_a_resize_and_escape_leave_the_text_alone() -> None:
    async with running() as run:
        await run.send("Hi")
        await run.type("half a")
        run.backend.say(Died("The engine was killed."))
        await run.settle()
        await run.pilot.resize_terminal(50, 12)
        await run.press("escape", "ctrl+c", "escape")
        assert run.text == "Hi\n\nhalf a"


# In an editor.


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands in for an editor, given by its path as EDITOR with an argument."""
    path = tmp_path / "an editor"
    monkeypatch.setenv("VISUAL", f"{sys.executable} '{path}' --wait")
    return path


async def in_editor(run: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.app, "suspend", nullcontext)
    await run.press("ctrl+g")


WRITES = """
import os, stat, sys
assert sys.argv[1] == "--wait"
path = sys.argv[2]
assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
text = open(path, encoding="utf-8").read()
open(path, "w", encoding="utf-8").write(text + ", edited 漢字\\n")
"""


async def test_an_editor_is_given_the_whole_text_and_its_result_is_taken(
    editor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor.write_text(WRITES)
    async with running() as run:
        run.app.prompt.take_paste(LINES)
        await run.type(" and")
        await in_editor(run, monkeypatch)
        assert run.text == "[pasted 40 lines] and, edited 漢字"
        await run.press("ctrl+z")
        assert run.app.prompt.whole == f"{LINES} and"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit(3)", "ended with 3: nothing was taken from it."),
        ("import sys; open(sys.argv[2], 'wb').write(b'a\\0b')", "left is not a text file."),
        ("import os, sys; os.remove(sys.argv[2])", "The editor's file is out of reach: No such"),
    ],
)
async def test_an_editor_that_fails_leaves_the_text_as_it_was(
    editor: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    editor.write_text(program)
    async with running() as run:
        await run.type("half a")
        await in_editor(run, monkeypatch)
        assert run.text == "half a"
        assert why in run.told


async def test_a_missing_editor_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor -x")
    async with running() as run:
        await run.type("half a")
        await in_editor(run, monkeypatch)
        assert run.told.startswith("no-such-editor cannot be run (No such file or directory)")
        monkeypatch.setenv("VISUAL", "'unbalanced")
        await run.press("ctrl+g")
        assert run.told.startswith("VISUAL is no command")
        assert run.text == "half a"


async def test_where_no_editor_can_have_the_terminal_it_is_said() -> None:
    async with running() as run:
        await run.press("ctrl+g")
        assert run.told == "There is no terminal here that an editor could have."
