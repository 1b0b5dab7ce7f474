"""What is given away: whole sessions that come back to the byte, preferences that TRL takes, and a
page on which nothing of a model is more than text."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from chat_tui.answer import Answer
from chat_tui.document import ImportFailedError, from_json, to_json
from chat_tui.export import FORMATS, write
from chat_tui.recording import save
from chat_tui.session import Session
from chat_tui.store import Store
from engine.messages import NO_ID, Alternative, TokenScore, ToolCall
from tests.chat_tui.command_line import CommandLine
from tests.chat_tui.judging import Said, judge
from tests.chat_tui.talking import Talk

HOSTILE = '<script>alert(1)</script> & "quoted" \x1b[31m\''


@pytest.fixture
def talk() -> Talk:
    """A pick of two; a continued one that was picked; a turn without a pick."""
    talk = Talk()
    talk.chat.change("systems", ("Be brief.",))
    talk.ask("What is red? ∂", "The rose", "A fox", pick=1)
    talk.chat.send("And blue?")
    talk.drain()
    talk.backend.start()
    talk.backend.step("The", "<<1+2=")
    talk.backend.step(" sea", "3>>", forced=[1], calls=[(1, 0, ToolCall(0, 9, "1+2", "3", True))])
    talk.backend.finish("cancelled")
    talk.drain()
    talk.chat.continue_(answers(talk)[2])
    talk.answer(" is")
    talk.chat.pick(2)
    talk.ask("Third", HOSTILE, "b")
    scored = answers(talk)[0]
    others = (Alternative(5, b"<b>\xff", -0.25), Alternative(6, b" x", -2.5))
    scored.scores = [TokenScore(scored.tokens[0], b"The", -0.5, None, 1.0, 2, others), None]
    return talk


def answers(talk: Talk) -> list[Answer]:
    return list(talk.chat.conversation.tree.answers.values())


def session_of(talk: Talk) -> Session:
    turn = talk.chat.turn.turn if talk.chat.turn is not None else None
    return Session(None, "Red & blue", 1.5, 2.5, talk.chat.conversation, turn)


def lines(talk: Talk, kind: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in write(session_of(talk), kind).splitlines()]


def test_json_comes_back_to_the_byte_through_the_database_too(talk: Talk, tmp_path: Path) -> None:
    text = to_json(session_of(talk))
    session = from_json(text)
    assert to_json(session) == text
    number = save(session, tmp_path / "sessions.db")
    with Store.open(tmp_path / "sessions.db") as store:
        assert to_json(store.load(number)) == text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"version": 1', '"version": 2', "update chat-tui"),
        ('"format": "chat-tui session"', '"format": "x"', "no session that chat-tui exported"),
        ('"parent": 2', '"parent": 99', "follows an answer that is not there"),
        ('"parent": null', '"parent": 3', "follows an answer that is not there"),
        ('"picked": 2', '"picked": 3', "not its own"),
        ('"given": 0', '"given": 50', "an end that there is not"),
        ('"mask": [1', '"mask": [2', "not in its text"),
        ('"seed": 81234', '"seed": "x"', "no number"),
        ('"tools": true', '"tools": "yes"', "neither true nor false"),
        ('"user": "Third"', '"user": 3', "no text"),
        ('"user": "Third"', '"user": "\\ud800"', "surrogates not allowed"),
        ('"title": "Red & blue", ', "", "title"),
        ('"prompt": 1', '"prompt": 77', "out of range"),
        ('"turns": [', '"turns": [[], ', "no object"),
        ("{", "[", "no JSON"),
    ],
)
def test_a_damaged_document_is_refused_in_one_line(
    talk: Talk, old: str, new: str, said: str
) -> None:
    text = to_json(session_of(talk))
    assert old in text
    with pytest.raises(ImportFailedError, match=said) as error:
        from_json(text.replace(old, new, 1))
    assert "\n" not in str(error.value)


def test_dpo_pairs_each_pick_with_what_it_was_preferred_to(talk: Talk) -> None:
    first, second = lines(talk, "dpo")
    assert first["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is red? ∂"},
    ]
    assert first["chosen"] == [{"role": "assistant", "content": "A fox"}]
    assert first["rejected"] == [{"role": "assistant", "content": "The rose"}]
    picked = answers(talk)[1]
    assert first["chosen_tokens"] == picked.tokens
    assert (first["chosen_seed"], first["rejected_seed"]) == (81_235, 81_234)
    # The answer that was continued was not turned down; the other one was.
    assert second["chosen"] == [{"role": "assistant", "content": "The sea is"}]
    assert second["rejected"] == [{"role": "assistant", "content": "<<1+2=3>>"}]
    assert (second["chosen_given"], second["rejected_mask"]) == (2, [1, 0])
    messages = second["prompt"]
    assert isinstance(messages, list)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]


def test_the_prompts_ids_are_those_that_were_prefilled(talk: Talk) -> None:
    _, second = lines(talk, "dpo")
    talk.chat.undo()
    assert talk.chat.turn is not None
    prompt = talk.chat.turn.rows[0].prompt
    assert second["prompt_tokens"] == list(talk.chat.conversation.prompt_tokens(prompt))


def test_a_pick_that_was_taken_back_is_no_preference(talk: Talk) -> None:
    talk.chat.undo()
    assert len(lines(talk, "dpo")) == 1


def test_kto_labels_the_same_answers(talk: Talk) -> None:
    rows = lines(talk, "kto")
    assert [(row["label"], row["completion"]) for row in rows] == [
        (False, [{"role": "assistant", "content": "The rose"}]),
        (True, [{"role": "assistant", "content": "A fox"}]),
        (False, [{"role": "assistant", "content": "<<1+2=3>>"}]),
        (True, [{"role": "assistant", "content": "The sea is"}]),
    ]


def test_what_was_rated_is_given_away_as_it_was_judged(tmp_path: Path) -> None:
    rating = judge()
    rating.judge(1, Said("a"), Said("b"), Said(""))
    rating.judge("tie", Said("c"), Said("d"))
    rating.judge("bad", Said("e"), Said("f"))
    rating.judge("skip", Said("g"), Said("h"))

    def written(kind: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in write(rating.session, kind).splitlines()]

    (pair,) = written("dpo")
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("b", "a")
    assert [(row["completion"][0]["content"], row["label"]) for row in written("kto")] == [
        ("a", False),
        ("b", True),
        ("e", False),
        ("f", False),
    ]
    verdicts = [row["verdict"] for row in written("jsonl")]
    assert verdicts == ["pick"] * 3 + ["tie"] * 2 + ["bad"] * 2 + ["skip"] * 2
    page = write(rating.session, "md")
    assert "**tiny, answer 2: picked** (2 of 3 · T 0.7 · seed 0)\n\nb" in page
    assert page.count("*A tie.*") == page.count("*All are bad.*") == page.count("*Skipped.*") == 1
    text = to_json(rating.session)
    again = from_json(text)
    assert to_json(again) == text
    assert again.conversation.tree.turns == rating.tree.turns
    number = save(again, tmp_path / "sessions.db")
    with Store.open(tmp_path / "sessions.db") as store:
        assert store.load(number).conversation.tree.turns == rating.tree.turns
    with pytest.raises(ImportFailedError, match="no judgement"):
        from_json(text.replace('"verdict": "tie"', '"verdict": "draw"'))


def test_a_document_from_before_there_were_judgements_is_read(talk: Talk) -> None:
    text = to_json(session_of(talk)).replace(', "judgement": null', "")
    assert "judgement" not in text
    assert from_json(text).conversation.tree.turns == talk.chat.conversation.tree.turns


def messages(value: object) -> bool:
    """TRL's conversational format: a list of messages, each with a role and a content."""
    return isinstance(value, list) and all(
        set(message) == {"role", "content"} and all(isinstance(v, str) for v in message.values())
        for message in value
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [("dpo", ("prompt", "chosen", "rejected")), ("kto", ("prompt", "completion"))],
)
def test_every_row_has_the_same_columns_as_trl_wants_them(
    talk: Talk, kind: str, names: tuple[str, ...]
) -> None:
    rows = lines(talk, kind)
    assert len({tuple(row) for row in rows}) == 1
    for row in rows:
        assert all(messages(row[name]) for name in names)
        prompt = row["prompt"]
        assert isinstance(prompt, list)
        assert prompt[-1]["role"] == "user"
    if kind == "kto":
        assert all(isinstance(row["label"], bool) for row in rows)


@pytest.mark.parametrize("kind", ["dpo", "kto", "jsonl"])
def test_datasets_loads_what_is_written(talk: Talk, kind: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "rows.jsonl"
    path.write_text(write(session_of(talk), kind), "utf-8")
    loaded = datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [dict(row) for row in loaded] == lines(talk, kind)


def test_jsonl_has_every_answer_with_the_messages_before_it(talk: Talk) -> None:
    rows = lines(talk, "jsonl")
    assert len(rows) == 7
    assert [row["picked"] for row in rows] == [False, True, False, False, True, False, False]


def test_markdown_reads_as_the_conversation_did(talk: Talk) -> None:
    text = write(session_of(talk), "md")
    assert text.startswith("# Red & blue\n")
    for words in ("What is red? ∂", "A fox", "The sea is", "answer 2"):
        assert words in text
    assert "The rose" not in text


class Page(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_whole_and_holds_no_more_than_text(talk: Talk) -> None:
    talk.chat.conversation.tree.turns[1].user = HOSTILE
    session = session_of(talk)
    session.title = HOSTILE
    text = write(session, "html")
    page = Page(text)
    assert page.open == []
    assert {tag for tag, _ in page.tags} == {
        *("html", "head", "meta", "title", "style", "body", "h1", "p", "section", "div"),
        *("article", "h2", "pre", "span"),
    }
    assert not any(
        name.startswith("on") or name in ("src", "srcset", "action")
        for _, attributes in page.tags
        for name in attributes
    )
    assert "\x1b" not in text
    assert "<script>alert(1)</script>" in "".join(page.texts)
    assert "http" not in text.replace("http-equiv", "")


def test_the_page_shows_every_answer_token_by_token(talk: Talk) -> None:
    page = Page(write(session_of(talk), "html"))
    articles = [attributes for tag, attributes in page.tags if tag == "article"]
    assert len(articles) == 7
    assert sum("picked" in (article["class"] or "") for article in articles) == 2
    tokens = [attributes for tag, attributes in page.tags if tag == "span"]
    assert len(tokens) == sum(len(answer.tokens) for answer in answers(talk))
    assert sum("forced" in (token["class"] or "") for token in tokens) == 1
    hot = [token for token in tokens if "style" in token]
    assert [token["style"] for token in hot] == ["--h:0.06"]
    assert "rank 3" in str(hot[0]["title"])
    assert "<b>" in str(hot[0]["title"])


def test_the_command_line_exports_imports_and_finds(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine
) -> None:
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    assert json.loads(command_line("sessions", "list", "--json").out) == {"sessions": []}
    number = save(session_of(talk))
    exported = command_line("export", str(number), "--format", "json").out
    again = command_line("import", "-", "--json", stdin=exported)
    assert json.loads(again.out) == {"id": 2, "title": "Red & blue"}
    assert command_line("export", "2", "-f", "json").out == exported
    found = json.loads(command_line("sessions", "search", "fox", "--json").out)["sessions"]
    assert {summary["id"] for summary in found} == {1, 2}
    assert "A fox" in command_line("sessions", "show", "1").out
    assert command_line("sessions", "rename", "1", "--", "-- any\nname").code == 0
    assert "-- any name" in command_line("sessions").out
    refused = command_line("sessions", "delete", "1")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert command_line("sessions", "delete", "1", "--yes").code == 0
    gone = command_line("export", "1")
    assert (gone.code, gone.err.count("\n")) == (1, 1)
    assert "There is no session 1" in gone.err
    out = tmp_path / "pairs.jsonl"
    assert command_line("export", "2", "-f", "dpo", "-o", str(out)).code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert "exists already" in command_line("export", "2", "-f", "dpo", "-o", str(out)).err


def test_every_format_can_be_asked_for() -> None:
    from chat_tui.sessions_cli import Format

    assert [kind.value for kind in Format] == list(FORMATS)


def test_sessions_need_neither_torch_nor_the_screens_libraries() -> None:
    script = (
        "import sys; import chat_tui.sessions_cli, chat_tui.export, chat_tui.recording; "
        "print([name for name in ('torch', 'textual', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_a_server_did_not_tell_stays_untold(talk: Talk) -> None:
    answer = answers(talk)[1]
    others = (Alternative(NO_ID, b"x", -2.5),)
    answer.tokens[:] = [NO_ID] * len(answer.tokens)
    answer.scores = [TokenScore(NO_ID, b"A", -0.5, None, math.nan, 0, others), None]
    document = write(session_of(talk), "json")
    assert "NaN" not in document
    again = from_json(document)
    assert to_json(again) == document
    kept = again.conversation.tree.answers[answer.id]
    assert kept.tokens == answer.tokens
    assert kept.scores[0] is not None
    assert math.isnan(kept.scores[0].entropy)
    assert "entropy not known" in write(session_of(talk), "html")
    rows = lines(talk, "jsonl")
    assert any(row["tokens"] is None and row["mask"] is None for row in rows)


def test_what_a_server_did_not_tell_is_kept_as_it_is(talk: Talk, tmp_path: Path) -> None:
    answer = answers(talk)[1]
    answer.tokens[:] = [NO_ID] * len(answer.tokens)
    answer.scores = [TokenScore(NO_ID, b"A", -0.5, None, math.nan, 0, ()), None]
    number = save(session_of(talk), tmp_path / "sessions.db")
    store = Store.open(tmp_path / "sessions.db")
    kept = store.load(number).conversation.tree.answers[answer.id]
    scores = list(kept.scores)
    store.close()
    assert kept.tokens == answer.tokens
    assert scores[0] is not None
    assert math.isnan(scores[0].entropy)
