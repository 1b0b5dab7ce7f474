"""Turns and answers as rows of the database, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial

from chat_tui.answer import Answer, Prompt
from chat_tui.model import Model
from chat_tui.packing import StoredScores, pack_ints, unpack_ints
from chat_tui.tree import Judgement, Turn
from engine.messages import ToolCall

Row = tuple[object, ...]

WRITE_ANSWER = f"INSERT OR REPLACE INTO answers VALUES ({', '.join('?' * 19)})"


def turn_row(turn: Turn) -> Row:
    """All but the session, to be compared with what was written before; `write_turn` takes it."""
    return turn.id, turn.parent, turn.user, turn.picked, turn.asked_at, turn.judgement


def write_turn(connection: sqlite3.Connection, session: int, row: Row) -> None:
    *values, judgement = row
    said = json.dumps(asdict(judgement)) if isinstance(judgement, Judgement) else None
    connection.execute(
        "INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", (session, *values, said)
    )


def answer_row(answer: Answer) -> Row:
    """All behind the numbers of session, answer, turn, prompt and model."""
    return (
        answer.seed,
        answer.temperature,
        answer.top_k,
        answer.given,
        answer.source,
        pack_ints(answer.tokens),
        pack_ints(answer.mask),
        pack_ints(answer.ends),
        answer.text,
        json.dumps([_call_row(call) for call in answer.calls]),
        json.dumps(answer.forced),
        pack_ints(answer.closing),
        answer.reason,
        len(answer.scores),
    )


def read_turns(connection: sqlite3.Connection, session: int) -> Iterator[Turn]:
    query = (
        "SELECT id, parent, user, picked, asked_at, judgement FROM turns "
        "WHERE session = ? ORDER BY id"
    )
    for number, parent, user, picked, asked_at, judgement in connection.execute(query, (session,)):
        yield Turn(number, parent, user, [], picked, asked_at, read_judgement(judgement))


def read_judgement(row: str | None) -> Judgement | None:
    if row is None:
        return None
    fields = json.loads(row)
    return Judgement(**{**fields, "order": tuple(fields["order"])})


def read_answers(connection: sqlite3.Connection, session: int) -> dict[int, list[Answer]]:
    """Of each turn, in the order in which they were begun. One that was growing when its program
    was killed counts as stopped."""
    models = {
        row[0]: Model(*row[1:])
        for row in connection.execute(
            "SELECT id, name, path, variant, size, fingerprint, dtype, device FROM models"
        )
    }
    prompts = {
        number: Prompt(
            tuple(unpack_ints(preface)),
            tuple(unpack_ints(ids)),
            bool(anew),
            dropped,
            system,
            bool(tools),
        )
        for number, preface, ids, anew, dropped, system, tools in connection.execute(
            "SELECT id, preface, ids, anew, dropped, system, tools FROM prompts WHERE session = ?",
            (session,),
        )
    }
    answers: dict[int, list[Answer]] = {}
    query = "SELECT * FROM answers WHERE session = ? ORDER BY id"
    for row in connection.execute(query, (session,)):
        (
            _, number, turn, prompt, model, seed, temperature, top_k, given, source,
            tokens, mask, ends, text, calls, forced, closing, reason, scored,
        ) = row  # fmt: skip
        answer = Answer(
            number,
            turn,
            prompts[prompt],
            models[model],
            seed,
            temperature,
            top_k,
            given,
            source,
            unpack_ints(tokens),
            unpack_ints(mask),
            unpack_ints(ends),
            text=text,
            calls=[] if calls == "[]" else _calls(json.loads(calls)),
            forced=[] if forced == "[]" else [(a, b) for a, b in json.loads(forced)],
            closing=tuple(unpack_ints(closing)),
            reason=reason or "cancelled",
        )
        if scored:
            read = partial(_read_scores, connection, session, number)
            answer.scores = StoredScores(read, scored)
        answers.setdefault(turn, []).append(answer)
    return answers


def read_judged(connection: sqlite3.Connection, session: int) -> list[Turn]:
    """The turns of whose answers something was said, with answers that have no tokens."""
    turns = {
        turn.id: turn
        for turn in read_turns(connection, session)
        if turn.verdict is not None or turn.judgement is not None
    }
    query = """
        SELECT answers.id, turn, seed, temperature, top_k, given, source, text, reason,
            prompts.system, models.name, models.path, models.fingerprint
        FROM answers
            JOIN prompts ON prompts.id = answers.prompt JOIN models ON models.id = answers.model
        WHERE answers.session = ? ORDER BY answers.id
    """
    for (
        number, turn, seed, temperature, top_k, given, source, text, reason, system, *model
    ) in connection.execute(query, (session,)):  # fmt: skip
        if turn in turns:
            name, path, fingerprint = model
            answer = Answer(
                number,
                turn,
                Prompt(system=system),
                Model(name, path, fingerprint=fingerprint),
                seed,
                temperature,
                top_k,
                given,
                source,
                text=text,
                reason=reason or "cancelled",
            )
            turns[turn].answers.append(answer)
    return list(turns.values())


def _call_row(call: ToolCall) -> list[object]:
    return [call.start, call.end, call.expression, call.result, call.done]


def _calls(rows: Iterable[list[object]]) -> list[ToolCall]:
    return [ToolCall(*row) for row in rows]  # type: ignore[arg-type]


def _read_scores(connection: sqlite3.Connection, session: int, answer: int) -> list[bytes]:
    query = "SELECT data FROM scores WHERE session = ? AND answer = ? ORDER BY start"
    return [row[0] for row in connection.execute(query, (session, answer))]
