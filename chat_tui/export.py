"""A session in the formats of others: to read, to analyse, to train on.

    write(session, "dpo")          # the text of the file

- `md`: the path, as a page of Markdown.
- `json`: the whole tree, to be imported again (`document.py`); `html`: a page (`page.py`).
- `jsonl`: one line per answer, with the messages before it.
- `dpo`: one line per pair of a picked answer and one that was not, in TRL's conversational
  preference format: `prompt`, `chosen` and `rejected` are lists of messages.
- `kto`: one line per answer that was called good or bad: `prompt`, `completion`, `label`.

Preferences (`preferences.py`) are those of the tree, whatever path is looked at. What says nothing
at all is not given away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone

from chat_tui.answer import Answer
from chat_tui.conversation import Conversation
from chat_tui.document import to_json
from chat_tui.model import GIVEN
from chat_tui.page import to_html
from chat_tui.preferences import labelled, preferred
from chat_tui.session import Session
from chat_tui.tree import Pick, Tree, Turn
from engine.messages import NO_ID

Message = dict[str, str]


def write(session: Session, kind: str) -> str:
    """The session as `kind`, one of `FORMATS`."""
    return FORMATS[kind](session)


def _markdown(session: Session) -> str:
    parts = [f"# {' '.join(session.title.split())}"]
    if session.created:
        began = datetime.fromtimestamp(session.created, timezone.utc)
        parts.append(f"*{began:%Y-%m-%d %H:%M} UTC*")
    rated = [turn for turn in session.conversation.tree.turns.values() if turn.judgement]
    if rated:
        return "\n\n".join([*parts, *_rated(session.conversation.tree, rated)]) + "\n"
    parts += _said_so_far(session.conversation.path)
    if session.shown is not None:
        parts += ["**You**", session.shown.user]
        for place, answer in enumerate(session.shown.answers, 1):
            parts += [f"**{answer.model.name}, answer {place}**", answer.text]
    return "\n\n".join(parts) + "\n"


def _said_so_far(path: Sequence[Pick]) -> Iterator[str]:
    for pick in path:
        yield from ("**You**", pick.user)
        yield from (f"**{pick.answer.model.name}** ({pick.sampling})", pick.answer.text)


def _rated(tree: Tree, turns: Sequence[Turn]) -> Iterator[str]:
    """Prompts, their answers as they stood, and what was said of them."""
    for turn in turns:
        yield from _said_so_far(_path(tree, turn))
        yield from ("**You**", turn.user)
        shown = turn.judgement.order if turn.judgement is not None else ()
        answers = [answer for number in shown if (answer := tree.answers.get(number))]
        for place, answer in enumerate(answers, 1):
            picked = ": picked" if answer.id == turn.picked else ""
            name = f"**{answer.model.name}, answer {place}{picked}**"
            yield from (f"{name} ({Pick(turn, answer).sampling})", answer.text)
        if turn.verdict in _VERDICTS:
            yield f"*{_VERDICTS[turn.verdict]}*"


_VERDICTS = {"tie": "A tie.", "bad": "All are bad.", "skip": "Skipped."}


def _answers(session: Session) -> str:
    tree = session.conversation.tree
    return _lines(
        {
            "turn": turn.id,
            "answer": answer.id,
            "parent": turn.parent,
            "picked": answer.id == turn.picked,
            "verdict": turn.verdict,
            "messages": [*_before(tree, turn, answer), _said(answer)],
            **_facts(answer),
            "prompt_tokens": _prompt_tokens(tree, turn, answer),
        }
        for turn in tree.turns.values()
        for answer in turn.answers
        if answer.model != GIVEN
    )


def _pairs(session: Session) -> str:
    tree = session.conversation.tree
    return _lines(
        {
            "prompt": _before(tree, turn, chosen),
            "chosen": [_said(chosen)],
            "rejected": [_said(rejected)],
            **{f"chosen_{name}": value for name, value in _facts(chosen).items()},
            **{f"rejected_{name}": value for name, value in _facts(rejected).items()},
            "prompt_tokens": _prompt_tokens(tree, turn, chosen),
            # Of another model, or under another system text, they are others.
            "rejected_prompt_tokens": None
            if rejected.prompt == chosen.prompt
            else _prompt_tokens(tree, turn, rejected),
        }
        for turn in tree.turns.values()
        for chosen, rejected in preferred(turn)
        if chosen.text and rejected.text
    )


def _labels(session: Session) -> str:
    tree = session.conversation.tree
    return _lines(
        {
            "prompt": _before(tree, turn, answer),
            "completion": [_said(answer)],
            "label": label,
            **_facts(answer),
            "prompt_tokens": _prompt_tokens(tree, turn, answer),
        }
        for turn in tree.turns.values()
        for answer, label in labelled(turn)
        if answer.text
    )


ROW_FORMATS = ("jsonl", "dpo", "kto")
"""Of one line each: those of several sessions can follow one another."""

FORMATS: dict[str, Callable[[Session], str]] = {
    "md": _markdown,
    "json": to_json,
    "jsonl": _answers,
    "dpo": _pairs,
    "kto": _labels,
    "html": to_html,
}


def _before(tree: Tree, turn: Turn, answer: Answer) -> list[Message]:
    """The messages that the model was shown before it wrote `answer`."""
    messages = [{"role": "system", "content": answer.prompt.system}] if answer.prompt.system else []
    for pick in _path(tree, turn)[answer.prompt.dropped :]:
        messages += [{"role": "user", "content": pick.user}, _said(pick.answer)]
    return [*messages, {"role": "user", "content": turn.user}]


def _prompt_tokens(tree: Tree, turn: Turn, answer: Answer) -> list[int] | None:
    """None where they are known to a server alone."""
    before = Conversation(tree, tree.parent(turn))
    ids = list(before.prompt_tokens(answer.prompt))
    return None if NO_ID in ids or not ids else ids


def _path(tree: Tree, turn: Turn) -> list[Pick]:
    return tree.path(tree.parent(turn))


def _said(answer: Answer) -> Message:
    return {"role": "assistant", "content": answer.text}


def _facts(answer: Answer) -> dict[str, object]:
    """What is ours beside the text."""
    return {
        # A server may not say which tokens they are.
        "tokens": None if NO_ID in answer.tokens else answer.tokens,
        "mask": None if NO_ID in answer.tokens else answer.mask,
        "given": answer.given,
        "seed": answer.seed,
        "temperature": answer.temperature,
        "top_k": answer.top_k,
        "model": answer.model.name,
        "server": answer.model.path if "://" in answer.model.path else None,
        "system": answer.prompt.system,
        "finish_reason": answer.reason,
    }


def _lines(rows: Iterable[dict[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
