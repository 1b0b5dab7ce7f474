"""What is copied of an answer: its text, one of its code blocks, its token ids.

    wanted("2 code 1")          # the first code block of answer 2; of the answer in focus: "code 1"
    taken(answer, 2, wanted)    # Taken("code block 1 of 2 of answer 2", "print(1)")

Text is copied as the model wrote it: nothing of how it is drawn, not a line break more. `tokens`
are the ids as a JSON list, what a tokenizer's `decode` takes; `json` is the answer with its ids,
its mask and what makes it again.
"""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

from chat_tui.answer import Answer
from chat_tui.conversation import as_sample
from engine.messages import NO_ID

Kind = Literal["text", "code", "tokens", "json"]

_WANTED = re.compile(r"(?:([1-9]\d{0,5})\b ?)?(?:(code)(?: ([1-9]\d{0,5}))?|(tokens)|(json))?")


class NothingToCopyError(Exception):
    """`str(error)` is one line that says why."""


class Wanted(NamedTuple):
    """`answer` and `block` count from 1; None is the answer in focus, and the first block."""

    answer: int | None = None
    kind: Kind = "text"
    block: int | None = None


class Taken(NamedTuple):
    what: str
    text: str


def wanted(words: str) -> Wanted | None:
    """What `/copy` is asked for: `[ANSWER] [code [N] | tokens | json]`. None: something else."""
    match = _WANTED.fullmatch(" ".join(words.lower().split()))
    if match is None:
        return None
    answer, code, block, tokens, as_json = match.groups()
    kind: Kind = "code" if code else "tokens" if tokens else "json" if as_json else "text"
    return Wanted(int(answer) if answer else None, kind, int(block) if block else None)


def taken(answer: Answer, number: int | None, want: Wanted) -> Taken:
    """The part of an answer that is wanted. `number` is its place among several.

    Raises:
        NothingToCopyError: it has no such part.
    """
    name = "the answer" if number is None else f"answer {number}"
    name += " so far" if answer.reason is None else ""
    if want.kind == "code":
        return _code_block(answer.text, name, want.block or 1)
    if want.kind == "text":
        if not answer.text:
            raise NothingToCopyError(f"There is nothing in {name}.")
        return Taken(name, answer.text)
    if NO_ID in answer.tokens:
        raise NothingToCopyError("The server did not tell which tokens they are.")
    count = f"{len(answer.tokens):,} token ids"
    if want.kind == "tokens":
        return Taken(f"the {count} of {name}", json.dumps(answer.tokens))
    sample = as_sample(answer)
    return Taken(f"{name} with its {count}", json.dumps(sample, ensure_ascii=False))


def _code_block(text: str, name: str, place: int) -> Taken:
    from chat_tui.rendering.markdown import code_blocks  # 70 ms: not for the first frame

    blocks = code_blocks(text)
    if not blocks:
        raise NothingToCopyError(f"There is no code block in {name}.")
    if place > len(blocks):
        raise NothingToCopyError(f"Code blocks in {name}: {len(blocks)}, and no {place}.")
    which = "the code block" if len(blocks) == 1 else f"code block {place} of {len(blocks)}"
    return Taken(f"{which} of {name}", blocks[place - 1])
