"""A session as one JSON document, and back: nothing is lost, and nothing is believed.

    text = to_json(session)
    session = from_json(text)            # to_json(session) == text

The whole tree is in it, with token ids, masks and scores. The bytes of a token's piece are written
as Latin-1, one character per byte. Scores are rows: token, piece, logprob, sampled logprob,
entropy, rank, alternatives (token, piece, logprob).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar, cast, get_args

from chat_tui.answer import Answer, Prompt
from chat_tui.conversation import Conversation
from chat_tui.model import Model
from chat_tui.session import Session
from chat_tui.tree import Judgement, Tree, Turn, Verdict
from engine.errors import EngineError
from engine.messages import NO_ID, Alternative, FinishReason, TokenScore, ToolCall

FORMAT = "chat-tui session"
VERSION = 1

T = TypeVar("T")
Object = dict[str, object]


class ImportFailedError(EngineError):
    """A document is not what `to_json` writes. `str(error)` is one line."""


def to_json(session: Session) -> str:
    """The document; ends with a newline."""
    tree = session.conversation.tree
    head = session.conversation.head
    answers = [answer for turn in tree.turns.values() for answer in turn.answers]
    models = list(dict.fromkeys(answer.model for answer in answers))
    prompts = list(dict.fromkeys(answer.prompt for answer in answers))
    model_places = {model: place for place, model in enumerate(models)}
    prompt_places = {prompt: place for place, prompt in enumerate(prompts)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "title": session.title,
        "created": session.created,
        "updated": session.updated,
        "head": head.id if head is not None else None,
        "shown": session.shown.id if session.shown is not None else None,
        "models": [asdict(model) for model in models],
        "prompts": [asdict(prompt) for prompt in prompts],
        "turns": [
            {
                "id": turn.id,
                "parent": turn.parent,
                "user": turn.user,
                "picked": turn.picked,
                "asked_at": turn.asked_at,
                "judgement": asdict(turn.judgement) if turn.judgement is not None else None,
                "answers": [
                    _answer(answer, prompt_places[answer.prompt], model_places[answer.model])
                    for answer in turn.answers
                ],
            }
            for turn in tree.turns.values()
        ],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def _answer(answer: Answer, prompt: int, model: int) -> Object:
    return {
        "id": answer.id,
        "prompt": prompt,
        "model": model,
        "seed": answer.seed,
        "temperature": answer.temperature,
        "top_k": answer.top_k,
        "given": answer.given,
        "source": answer.source,
        "text": answer.text,
        "tokens": answer.tokens,
        "mask": answer.mask,
        "ends": answer.ends,
        "tool_calls": [asdict(call) for call in answer.calls],
        "forced": answer.forced,
        "closing": answer.closing,
        "finish_reason": answer.reason,
        "scores": [_score(score) for score in answer.scores],
    }


def _score(score: TokenScore | None) -> Sequence[object] | None:
    if score is None:
        return None
    others = [(token, piece.decode("latin-1"), logprob) for token, piece, logprob in score[6]]
    entropy = None if math.isnan(score.entropy) else score.entropy  # JSON has no NaN
    piece = score.piece.decode("latin-1")
    return (score.token, piece, *score[2:4], entropy, score.rank, others)


def from_json(text: str) -> Session:
    """The session of a document; it has no number yet.

    Raises:
        ImportFailedError: it is not such a document, or it contradicts itself.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImportFailedError(f"This is no JSON: {error}.") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ImportFailedError("This is no session that chat-tui exported as json.")
    if document.get("version") != VERSION:
        raise ImportFailedError(
            f"This session has version {document.get('version')!r} of the format, "
            f"and this chat-tui knows {VERSION}: update chat-tui."
        )
    try:
        return _session(document)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ImportFailedError(f"This session is damaged: {what}.") from error


def _session(document: Object) -> Session:
    models = [_model(value) for value in _list(document["models"])]
    prompts = [_prompt(value) for value in _list(document["prompts"])]
    tree = Tree()
    for value in _list(document["turns"]):
        turn = _turn(_object(value), models, prompts)
        if turn.id in tree.turns or any(answer.id in tree.answers for answer in turn.answers):
            raise ValueError(f"turn {turn.id} is there twice")
        # Numbers grow along a path: so nothing can be its own ancestor.
        if turn.parent is not None and turn.parent not in tree.answers:
            raise ValueError(f"turn {turn.id} follows an answer that is not there before it")
        if turn.picked is not None and turn.picked not in {a.id for a in turn.answers}:
            raise ValueError(f"turn {turn.id} has picked an answer that is not its own")
        tree.put(turn)
    head, shown = _maybe(_int, document["head"]), _maybe(_int, document["shown"])
    return Session(
        title=_str(document["title"]),
        created=_float(document["created"]),
        updated=_float(document["updated"]),
        conversation=Conversation(tree, None if head is None else tree.answers[head]),
        shown=None if shown is None else tree.turns[shown],
    )


def _model(value: object) -> Model:
    fields = _object(value)
    size = _int(fields["size"], 2**63)
    names = ("name", "path", "variant", "fingerprint", "dtype", "device")
    return Model(size=size, **{name: _str(fields[name]) for name in names})


def _prompt(value: object) -> Prompt:
    fields = _object(value)
    return Prompt(
        tuple(_ints(fields["preface"])),
        tuple(_ints(fields["ids"])),
        _bool(fields["anew"]),
        _int(fields["dropped"]),
        _maybe(_str, fields["system"]),
        _bool(fields["tools"]),
    )


def _turn(fields: Object, models: Sequence[Model], prompts: Sequence[Prompt]) -> Turn:
    number = _int(fields["id"])
    return Turn(
        number,
        _maybe(_int, fields["parent"]),
        _str(fields["user"]),
        [
            _read_answer(_object(value), number, models, prompts)
            for value in _list(fields["answers"])
        ],
        _maybe(_int, fields["picked"]),
        _float(fields["asked_at"]),
        # Documents of older programs have none.
        _maybe(_judgement, fields.get("judgement")),
    )


def _judgement(value: object) -> Judgement:
    fields = _object(value)
    verdict = _str(fields["verdict"])
    if verdict not in get_args(Verdict):
        raise ValueError(f"{_short(verdict)} is no judgement")
    return Judgement(
        cast(Verdict, verdict),
        tuple(_ints(fields["order"])),
        _bool(fields["blind"]),
        _float(fields["at"]),
        _float(fields["seconds"]),
        _str(fields["prompt"]),
    )


def _read_answer(
    fields: Object, turn: int, models: Sequence[Model], prompts: Sequence[Prompt]
) -> Answer:
    tokens = [_id(token) for token in _list(fields["tokens"])]
    mask, ends = _ints(fields["mask"]), _ints(fields["ends"])
    text, number = _str(fields["text"]), _int(fields["id"])
    given, reason = _int(fields["given"]), _maybe(_str, fields["finish_reason"])
    scores = [_maybe(_read_score, value) for value in _list(fields["scores"])]
    if not len(tokens) == len(mask) == len(ends) or len(scores) > len(tokens):
        raise ValueError(f"answer {number} has not as many masks, ends or scores as tokens")
    if ends != sorted(ends) or (ends and ends[-1] > len(text)) or not set(mask) <= {0, 1}:
        raise ValueError(f"answer {number} has tokens that are not in its text")
    if given > len(tokens) or (reason is not None and reason not in get_args(FinishReason)):
        raise ValueError(f"answer {number} has an end that there is not")
    return Answer(
        number,
        turn,
        prompts[_int(fields["prompt"])],
        models[_int(fields["model"])],
        _int(fields["seed"], 2**63),
        _float(fields["temperature"]),
        _maybe(_int, fields["top_k"]),
        given,
        _maybe(_int, fields["source"]),
        tokens,
        mask,
        ends,
        scores,
        text,
        [_call(_object(value), len(text)) for value in _list(fields["tool_calls"])],
        [_span(value, len(text)) for value in _list(fields["forced"])],
        tuple(_ints(fields["closing"])),
        cast("FinishReason | None", reason),
    )


def _call(fields: Object, length: int) -> ToolCall:
    start, end = _span([fields["start"], fields["end"]], length)
    expression, result = _str(fields["expression"]), _maybe(_str, fields["result"])
    return ToolCall(start, end, expression, result, _bool(fields["done"]))


def _span(value: object, length: int) -> tuple[int, int]:
    start, end = _ints(value)
    if not start <= end <= length:
        raise ValueError(f"characters {start} to {end} are not in a text of {length}")
    return start, end


def _read_score(value: object) -> TokenScore:
    token, piece, logprob, sampled, entropy, rank, others = _list(value)
    return TokenScore(
        _id(token),
        _str(piece).encode("latin-1"),
        _float(logprob),
        _maybe(_float, sampled),
        math.nan if entropy is None else _float(entropy),
        _int(rank),
        tuple(_alternative(_list(other)) for other in _list(others)),
    )


def _alternative(value: list[object]) -> Alternative:
    token, piece, logprob = value
    return Alternative(_id(token), _str(piece).encode("latin-1"), _float(logprob))


# JSON's values, each of the type that is expected.


def _maybe(read: Callable[[object], T], value: object) -> T | None:
    return None if value is None else read(value)


def _int(value: object, limit: int = 2**31) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise ValueError(f"{_short(value)} is no number from 0 to {limit - 1}")
    return value


def _id(value: object) -> int:
    """A token's, or what stands in the place of one that a server did not tell."""
    return NO_ID if value == NO_ID else _int(value)


def _float(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{_short(value)} is no number")
    return float(value)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_short(value)} is no text")
    value.encode("utf-8")  # half a surrogate pair could not be written anywhere
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_short(value)} is neither true nor false")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{_short(value)} is no list")
    return value


def _object(value: object) -> Object:
    if not isinstance(value, dict):
        raise ValueError(f"{_short(value)} is no object")
    return value


def _ints(value: object) -> list[int]:
    return [_int(item) for item in _list(value)]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
