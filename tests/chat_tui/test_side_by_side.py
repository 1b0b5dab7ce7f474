"""The real program with several models at once: two tiny ones of this machine, and a server's."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from chat_tui.chat import Chat
from chat_tui.effects import Noted
from chat_tui.settings import Settings, Source
from chat_tui.store import Store
from engine.tokenizer import Tokenizer
from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.sse_server import SseServer, talk
from tests.chat_tui.terminal import Terminal

DATA = Path(__file__).parents[1] / "data" / "nanochat"
OLD, NEW = (str(DATA / era / "chatsft_checkpoints" / "d4") for era in ("V0", "V6"))


@pytest.fixture
def server() -> Iterator[SseServer]:
    with SseServer(talk("Blue like the sea", pause=0.02)) as server:
        yield server


def test_three_models_answer_one_message_and_all_go_on(
    server: SseServer, session_home: Path, tmp_path: Path
) -> None:
    """Two workers and a server, one answer each, in a pseudo-terminal; the server's is picked, and
    all three are told of it."""
    terminal = Terminal(
        *("--model", OLD, "--model", NEW, "--model", f"tiny@{server.url}"),
        *("--max-tokens", "6", "--seed", "5", "--no-tools"),
        columns=160,
    )
    terminal.until("Enter sends")
    terminal.press("Name a colour.", "enter")
    shown = terminal.until(
        lambda screen: screen.count("cut: token limit") == 2 and "like the sea" in screen
    )
    for name in ("V0/chatsft_checkpoints/d4", "V6/chatsft_checkpoints/d4", "tiny"):
        assert name in shown
    assert "3 answers · 3 models" in shown
    terminal.press("alt+3")
    terminal.until("3 of 3 · tiny")
    terminal.press("And another.", "enter")
    terminal.until(lambda screen: screen.count("cut: token limit") == 2 and "another." in screen)
    terminal.press(f"/export dpo {tmp_path / 'pairs.jsonl'}", "enter")
    terminal.until("Written to")
    terminal.press("ctrl+q")
    assert terminal.end() == 0
    assert (session_home / "state" / "engine-2.log").exists(), "one for each engine"

    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [pair["rejected_model"] for pair in pairs] == [OLD, NEW]
    assert {pair["chosen_model"] for pair in pairs} == {"tiny"}
    assert {pair["chosen_server"] for pair in pairs} == {f"{server.url}/v1"}
    assert {pair["rejected_seed"] for pair in pairs} == {5}
    # The server was told its own answer; the others were, in ids of their own.
    assert [message["content"] for message in server.posts[1]["messages"]] == [
        "Name a colour.",
        "Blue like the sea",
        "And another.",
    ]
    with Store.open() as store:
        number = store.last()
        assert number is not None
        first, second = store.load(number).conversation.tree.turns.values()
    old, new, _ = second.answers
    assert len(first.answers) == len(second.answers) == 3
    vocabulary = Tokenizer.from_nanochat_pickle(DATA / "V6" / "tokenizer" / "tokenizer.pkl")
    for answer in (old, new):
        assert answer.prompt.anew
        assert "Blue like the sea" in vocabulary.decode(list(answer.prompt.ids))


def until(chat: Chat, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
        chat.drain()
    assert holds()


def test_a_killed_engine_costs_its_own_answers(endless_path: Path, server: SseServer) -> None:
    """A model of this machine that would never end is killed beside a server that goes on."""
    from chat_tui.backends.made import backend_for

    settings = Settings(
        models=(Source(str(endless_path)), Source("", server.url)), samples=2, seed=3
    )
    others = set(psutil.Process().children())
    chat = Chat(backend_for(settings.loads()[settings.models[0]]), settings)
    try:
        until(chat, lambda: chat.phase == "ready")
        chat.send("Go on and on.")
        until(chat, lambda: chat.turn is not None and len(chat.turn.rows) == 4)
        until(chat, lambda: chat.turn is not None and all(row.tokens for row in chat.turn.rows))
        (engine,) = set(psutil.Process().children()) - others
        os.kill(engine.pid, signal.SIGKILL)
        until(chat, lambda: not chat.running)
        assert chat.turn is not None
        ends = [row.reason for row in chat.turn.rows]
        assert ends == ["cancelled", "cancelled", "stop", "stop"]
        assert all(row.tokens for row in chat.turn.rows)
        (note,) = [effect for effect in chat.effects() if isinstance(effect, Noted)]
        assert note.text == "d4: The engine was killed (often for lack of memory)."
        chat.pick(2)
        assert chat.conversation.path[0].answer.text == "Blue like the sea"
    finally:
        chat.close()


def test_a_script_gets_one_document_of_all_models_and_system_texts(
    command_line: CommandLine, server: SseServer
) -> None:
    done = command_line(
        *("-p", "Name a colour.", "--json", "--model", NEW, "--model", f"tiny@{server.url}"),
        *("--system", "Be brief.", "--system", "Be kind.", "-t", "0.3,0.9", "--max-tokens", "4"),
    )
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert list(document) == ["model", "prompt_tokens", "samples", "stats", "parts"]
    assert document["model"] == f"{NEW}, tiny"
    samples = document["samples"]
    assert [(s["index"], s["model"], s["system"], s["temperature"]) for s in samples] == [
        (index, model, system, temperature)
        for index, (model, system, temperature) in enumerate(
            (model, system, temperature)
            for model in (NEW, "tiny")
            for system in ("Be brief.", "Be kind.")
            for temperature in (0.3, 0.9)
        )
    ]
    assert len({sample["seed"] for sample in samples}) == 2, "the same for each model"
    assert [len(s["tokens"] or []) for s in samples[:4]] == [4] * 4
    assert {sample["text"] for sample in samples[4:]} == {"Blue like the sea"}
    assert [part["samples"] for part in document["parts"]] == [2, 2, 2, 2]
    assert document["prompt_tokens"] == sum(p["prompt_tokens"] for p in document["parts"])


def test_a_model_that_is_not_there_costs_a_script_the_others_nothing(
    command_line: CommandLine, server: SseServer
) -> None:
    done = command_line(
        *("-p", "Name a colour.", "--model", "no-such-model", "--model", f"tiny@{server.url}")
    )
    assert done.code == 1
    assert done.err.startswith("chat-tui: no-such-model: There is no model")
    assert len(done.err.splitlines()) == 1
    header, text = done.out.splitlines()
    assert header.startswith("--- 1/2  tiny  temperature 0.7  seed ")
    assert text == "Blue like the sea"


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        (("--model", "a", "--model", "b"), (Source("a"), Source("b"))),
        (("--server", "http://x"), (Source("", "http://x"),)),
        (("--server", "http://x", "--model", "a"), (Source("a", "http://x"),)),
        (
            ("--server", "http://x", "--server", "http://y", "--model", "a"),
            (Source("a", "http://x"), Source("a", "http://y")),
        ),
        (
            ("--server", "http://x", "--model", "a@local"),
            (Source("a"), Source("", "http://x")),
        ),
        (("--model", "a", "--model", "b@http://x"), (Source("a"), Source("b", "http://x"))),
        (("--model", "a", "--model", "a"), (Source("a"),)),
    ],
)
def test_models_and_servers_on_the_command_line(
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    models: tuple[Source, ...],
) -> None:
    asked: list[Settings] = []

    def answer(prompt: str, settings: Settings, *, as_json: bool) -> int:
        asked.append(settings)
        return 0

    monkeypatch.setattr("chat_tui.oneshot.answer_once", answer)
    command_line("-p", "Hi", *arguments)
    assert asked[0].models == models


def test_too_many_panes_are_refused_in_one_line(command_line: CommandLine) -> None:
    done = command_line("-p", "Hi", "--model", "a", "--model", "b", "-n", "17")
    assert done.code == 2
    assert "17 samples × 2 models are 34 answers to each message; 32 is the most" in done.err
