"""From a conversation to the token list that is prefilled: the format's opening, the tool's
examples, the turns.

Everything but the answers is encoded from text, which is deterministic; answers are the ids that
were generated. So the list of a turn is the list of the turn before with tokens appended, as long
as the preface stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.chat_format import Turn
from engine.messages import Exchange

if TYPE_CHECKING:
    from engine.load import LoadedModel


@dataclass(frozen=True)
class Prompt:
    """What is prefilled.

    Attributes:
        tokens: all of it.
        preface: how many of them stand before the conversation's own turns.
        sizes: tokens of each past exchange, oldest first, and of the new message.
        answer: the end of `tokens`, where a beginning of the answer is given.
    """

    tokens: list[int]
    preface: int
    sizes: tuple[int, ...]
    answer: list[int]


def build_prompt(
    loaded: LoadedModel,
    history: Sequence[Exchange],
    text: str,
    system: str | None = None,
    tools: bool = True,
    answer: Sequence[int] = (),
    answer_text: str = "",
) -> Prompt:
    """The prompt that asks `text` after `history`, ending where the answer begins, or behind what
    is given of it: ids, and text after them."""
    chat_format, encode = loaded.chat_format, loaded.tokenizer.encode
    examples = loaded.tools.examples(text) if tools else ()
    taught = [Turn(example.user, encode(example.answer)) for example in examples]
    past = [
        Turn(turn.user, encode(turn.text) if turn.tokens is None else turn.tokens)
        for turn in history
    ]
    given = [*answer, *encode(answer_text)]
    declared = tools and loaded.tools.declared
    prompt = chat_format.render([*taught, *past], text, system, tools=declared)
    tokens = [*prompt, *given]

    users = [*(turn.user for turn in past), text]
    sizes = [len(chat_format.following(user)) for user in users]
    for place, turn in enumerate(past):
        sizes[place] += len(turn.answer) + len(chat_format.closing(turn.answer))
    sizes[-1] += len(given)
    # What the turns do not account for stands before them. A format that writes the first message
    # in its own way (a system text inside it) may be some tokens off here, not in `tokens`.
    return Prompt(tokens, max(0, len(tokens) - sum(sizes)), tuple(sizes), given)
