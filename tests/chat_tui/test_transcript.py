"""The transcript shows finished turns, opens long ones at once, and stays where one looks."""

from __future__ import annotations

import time

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import SELECT_ALL, Selection

from chat_tui.frames import framed
from chat_tui.widgets.transcript import Answer, Entry, Notice, Transcript, User
from engine.messages import ToolCall

SIZE = (60, 20)


class Host(App[None]):
    """A transcript and nothing else."""

    CSS = "Transcript { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()

    def compose(self) -> ComposeResult:
        yield self.transcript


def texts(transcript: Transcript) -> list[str]:
    return [line.text.rstrip() for line in transcript.lines]


def top(transcript: Transcript) -> str:
    return transcript.render_line(0).text.rstrip()


def bottom(transcript: Transcript) -> str:
    return transcript.render_line(transcript.size.height - 1).text.rstrip()


def conversation(turns: int) -> list[Entry]:
    return [
        entry
        for n in range(turns)
        for entry in (
            User(f"question {n}"),
            Answer(
                f"answer {n} **begins**\n\n- an item of the list\n- another, `{n}` long words\n"
            ),
        )
    ]


async def all_drawn(transcript: Transcript, pilot: Pilot[None]) -> None:
    for _ in range(500):
        if len(transcript._heights) == len(transcript.entries):
            return
        await pilot.pause(0.02)
    raise AssertionError("the transcript never finished drawing")


async def test_users_answers_and_notices_one_under_the_other() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.add_user("What is 12*3?\nAnd [red]why[/]?\x1b[2J")
        call = ToolCall(6, 17, "12*3", "36", True)
        transcript.add_answer("It is <<12*3=36>>**36**.", [call], [(13, 17)], "2 of 4")
        transcript.add_notice("The engine died: out of memory.", "error")
        transcript.add_notice("It is starting again.")
        await pilot.pause()
        assert texts(transcript) == [
            "▌ What is 12*3?",
            "▌ And [red]why[/]?␛[2J",
            "",
            "2 of 4",
            "It is  12*3 → 36 36.",
            "",
            "✗ The engine died: out of memory.",
            "· It is starting again.",
        ]


async def test_what_was_added_before_it_was_shown_is_there() -> None:
    app = Host()
    app.transcript.entries.append(User("early"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert texts(app.transcript) == ["▌ early"]


async def test_a_notice_wraps_under_itself() -> None:
    app = Host()
    async with app.run_test(size=(24, 10)) as pilot:
        app.transcript.add_notice("a notice that needs two lines", "warning")
        await pilot.pause()
        assert texts(app.transcript) == ["! a notice that needs", "  two lines"]


async def test_it_follows_its_end_until_scrolled_up() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.focus()
        transcript.replace(conversation(20))
        await all_drawn(transcript, pilot)
        transcript.add_user("at the end")
        await pilot.pause()
        assert bottom(transcript) == "▌ at the end"
        await pilot.press("pageup")
        seen = top(transcript)
        transcript.add_user("unseen")
        await pilot.pause()
        assert top(transcript) == seen
        await pilot.press("end")
        assert bottom(transcript) == "▌ unseen"


async def test_arrows_scroll_it_by_lines() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.replace(conversation(20))
        await all_drawn(transcript, pilot)
        transcript.focus()
        end = transcript.scroll_offset.y
        await pilot.press("up", "k", "up", "j")
        await pilot.wait_for_animation()
        assert transcript.scroll_offset.y == end - 2


async def test_a_long_conversation_opens_at_its_end_at_once() -> None:
    app = Host()
    async with app.run_test(size=(100, 40)) as pilot:
        transcript = app.transcript
        transcript.replace(conversation(3))  # lexers and parsers are loaded
        await pilot.pause()
        began = time.process_time()
        transcript.replace(conversation(500))
        assert time.process_time() - began < 0.3
        assert "499 long words" in bottom(transcript)
        await all_drawn(transcript, pilot)
        assert "499 long words" in bottom(transcript)
        assert len([text for text in texts(transcript) if text.startswith("▌")]) == 500


async def test_nothing_in_view_moves_while_the_rest_is_drawn() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.replace(conversation(300))
        transcript.scroll_to_line(3)
        seen = [top(transcript), bottom(transcript)]
        selection = Selection(Offset(2, 3), Offset(9, 4))
        app.screen.selections = {transcript: selection}
        selected = transcript.get_selection(selection)
        await all_drawn(transcript, pilot)
        assert [top(transcript), bottom(transcript)] == seen
        selection = app.screen.selections[transcript]
        assert transcript.get_selection(selection) == selected
        assert transcript.scroll_offset.y > 300


async def test_another_width_keeps_the_turn_in_view() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.replace(conversation(200))
        await all_drawn(transcript, pilot)
        transcript.scroll_to_line(texts(transcript).index("▌ question 100"))
        await pilot.resize_terminal(30, 20)
        await all_drawn(transcript, pilot)
        await pilot.pause()
        at = transcript.scroll_offset.y
        assert "▌ question 100" in texts(transcript)[at : at + 2]
        assert all(line.width <= transcript.columns for line in transcript.lines)


async def test_another_conversation_replaces_this_one() -> None:
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.transcript
        transcript.replace(conversation(50))
        await all_drawn(transcript, pilot)
        transcript.scroll_to_line(0)
        transcript.replace([User("another"), Answer("yes"), Notice("kept")])
        await pilot.pause()
        assert texts(transcript) == ["▌ another", "", "yes", "", "· kept"]
        transcript.clear()
        await pilot.pause()
        assert texts(transcript) == []


@pytest.mark.parametrize("entries", [2, 40])
async def test_its_height_can_follow_its_content(entries: int) -> None:
    app = Host()
    app.CSS = "Transcript { height: auto; max-height: 50%; }"
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.replace([Notice(f"line {n}") for n in range(entries)])
        await pilot.pause()
        await pilot.pause()
        assert app.transcript.size.height == min(entries, 10)
        assert bottom(app.transcript) == f"· line {entries - 1}"


async def test_copied_text_carries_no_bars_and_no_made_up_breaks() -> None:
    app = Host()
    async with app.run_test(size=(30, 20)) as pilot:
        said = "one message that is much longer than thirty columns"
        app.transcript.add_user(said)
        await pilot.pause()
        selected = app.transcript.get_selection(SELECT_ALL)
        assert selected == (said, "\n")


async def test_a_file_in_a_message_is_one_line_until_it_is_unfolded() -> None:
    host = Host()
    message = f"What is in a.py?\n\n{framed('a.py', 'print(1)' + chr(10) + 'print(2)')}\n\nTell me."
    async with host.run_test(size=SIZE) as pilot:
        host.transcript.focus()
        host.transcript.add_user(message)
        await pilot.pause()
        folded = ["▌ What is in a.py?", "▌ ▸ a.py · 2 lines", "▌ Tell me."]
        assert texts(host.transcript) == folded
        await pilot.press("f")
        assert texts(host.transcript) == [f"▌ {line}".rstrip() for line in message.split("\n")]
        await pilot.press("f")
        assert texts(host.transcript) == folded


async def test_of_a_long_message_the_beginning_is_shown() -> None:
    host = Host()
    async with host.run_test(size=SIZE) as pilot:
        host.transcript.add_user("\n".join(f"line {n}" for n in range(2_000)))
        host.transcript.add_user("word " * 1_000_000)
        await pilot.pause()
        lines = texts(host.transcript)
        assert lines[23:26] == ["▌ line 23", "▌ ▸ 1,976 more lines", ""]
        assert lines[-1] == "▌ ▸ 4,996,000 more characters"
        assert len(lines) < 120


async def test_a_message_of_some_lines_is_shown_whole() -> None:
    host = Host()
    async with host.run_test(size=SIZE) as pilot:
        host.transcript.add_user("\n".join(map(str, range(40))))
        await pilot.pause()
        assert texts(host.transcript) == [f"▌ {n}" for n in range(40)]
