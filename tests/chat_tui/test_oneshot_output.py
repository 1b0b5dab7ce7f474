"""What a script reads: the answer without what was thought before it, and what became of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from chat_tui.oneshot_output import Sample, Writer
from engine.messages import FinishReason, ToolCall
from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.sse_server import Asked, SseServer, Wire, talk

THOUGHT = "<think>\nThey greet me.\n</think>\n\n"


def written(
    text: str, step: int, reason: FinishReason = "stop", calls: tuple[ToolCall, ...] = ()
) -> None:
    """Write a text as it grows by `step` characters."""
    sample, writer = Sample(), Writer()
    for at in range(0, len(text), step):
        sample.text += text[at : at + step]
        length = len(sample.text)
        sample.calls = [
            call if call.end <= length else replace(call, end=length, result=None, done=False)
            for call in calls
            if call.start < length
        ]
        writer.write(sample)
    sample.reason = reason
    writer.write(sample)
    writer.end()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (THOUGHT + "Hello!", "Hello!\n"),
        ("\n\n" + THOUGHT + "Hello!\n", "Hello!\n"),
        ("<think>\n\n</think>\n\nHello!", "Hello!\n"),
        (THOUGHT, "\n"),
        ("<think>and no end", "\n"),
        ("<thin air> and <b>", "<thin air> and <b>\n"),
        ("  \n<", "  \n<\n"),
        ("Say <think>x</think> now", "Say <think>x</think> now\n"),
        (THOUGHT + "<think>again</think>", "<think>again</think>\n"),
    ],
)
def test_a_text_is_the_answer_alone_however_it_arrives(text, answer, step, capsys):
    written(text, step)
    assert capsys.readouterr() == (answer, "")


def test_a_call_of_the_thought_is_no_part_of_the_answer(capsys):
    text = "<think>\n1+1=2\n</think>\n\nIt is 2*3=6."
    calls = tuple(
        ToolCall(start, start + 5, text[start : start + 3], text[start + 4], True)
        for start in (text.index("1+1"), text.index("2*3"))
    )
    for step in (1, 5, 100):
        written(text, step, calls=calls)
        assert capsys.readouterr().out == "It is [2*3 → 6].\n"


@pytest.mark.parametrize("step", [1, 100])
def test_on_a_terminal_a_line_counts_its_words(step, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    written(THOUGHT + "Hello!", step)
    out, err = capsys.readouterr()
    assert out == "Hello!\n"
    assert err.endswith("\r\x1b[Kthought · 3 words\n")
    assert ("thinking · 1 word" in err) == (step == 1)
    written("<think>They greet", step)
    assert capsys.readouterr().err.endswith("\r\x1b[Kthought · 2 words, cut off\n")
    written("Hello!", step)
    assert capsys.readouterr().err == ""


# From a server to a script.


def thinks(*parts: tuple[str, str], reason: str = "stop"):
    """A script that sends reasoning and text, by their names in OpenAI's protocol."""

    def script(asked: Asked, wire: Wire) -> None:
        wire.start()
        for index in range(int(asked.body.get("n") or 1)):
            for name, text in parts:
                wire.event({"choices": [{"index": index, "delta": {name: text}}]})
            wire.end(index, reason)
        wire.done()

    return script


REASONED = thinks(("reasoning_content", "They greet me."), ("content", "Hello!"))
IN_TAGS = talk(THOUGHT + "Hello!")


@pytest.mark.parametrize("script", [REASONED, IN_TAGS])
def test_a_document_has_the_thought_and_a_text_has_not(script, command_line: CommandLine):
    with SseServer(script) as server:
        text = command_line("-p", "Hi", "--server", server.url)
        several = command_line("-p", "Hi", "-n", "2", "--server", server.url)
        whole = command_line("-p", "Hi", "--json", "--server", server.url)
    assert (text.code, text.out, text.err) == (0, "Hello!\n", "")
    lines = several.out.splitlines()
    assert lines[1::2] == ["Hello!"] * 2
    assert all(line.endswith("  thought · 3 words  stop") for line in lines[::2])
    (sample,) = json.loads(whole.out)["samples"]
    assert sample["text"] == THOUGHT + "Hello!"


@pytest.mark.parametrize("said", ["Hel", THOUGHT + "Hel", "<think>They", ""])
def test_what_a_content_filter_ended_is_called_so(said: str, command_line: CommandLine):
    arguments = ("-p", "Hi", "-n")
    with SseServer(thinks(("content", said), reason="content_filter")) as server:
        text, several, whole = (
            command_line(*arguments, *more, "--server", server.url)
            for more in (("1",), ("2",), ("1", "--json"))
        )
    line = "The server's content filter ended the answer."
    shown = "Hel\n" if said.endswith("Hel") else "\n"
    assert (text.code, text.out, text.err) == (0, shown, f"chat-tui: {line}\n")
    assert several.err == f"chat-tui: answer 1: {line}\nchat-tui: answer 2: {line}\n"
    assert [row.split()[-1] for row in several.out.splitlines()[::2]] == ["content_filter"] * 2
    (sample,) = json.loads(whole.out)["samples"]
    assert (sample["finish_reason"], sample["text"]) == ("content_filter", said)
    assert whole.err == ""


def test_where_it_never_came_to_an_answer_a_line_says_why(command_line: CommandLine):
    arguments = ("-p", "Hi", "--max-tokens", "9")
    with SseServer(thinks(("reasoning_content", "They greet"), reason="length")) as server:
        text = command_line(*arguments, "--server", server.url)
        several = command_line(*arguments, "-n", "2", "--server", server.url)
        whole = command_line(*arguments, "--json", "--server", server.url)
    said = "The token limit came while the model was still thinking: --max-tokens sets it."
    assert (text.code, text.out, text.err) == (0, "\n", f"chat-tui: {said}\n")
    assert several.err == f"chat-tui: answer 1: {said}\nchat-tui: answer 2: {said}\n"
    assert whole.err == ""
