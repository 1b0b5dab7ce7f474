"""The conversation that is looked at: a path through the tree, as exact tokens.

`Conversation.history()` is what an `Ask` carries. `check()` takes the prompt that the engine then
prefills and compares it with everything known so far; `prompt()` says what of it has to be kept. So
`tokens` is the very list that the model has seen and written, and `mask` says of each token whether
the model sampled it (1) or it was given (0).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from chat_tui.answer import Answer, Prompt
from chat_tui.model import Model
from chat_tui.new_file import write_new
from chat_tui.tree import Pick, Tree
from engine.messages import NO_ID, Exchange, Overflowed, Started


class HistoryChangedError(Exception):
    """A prompt does not begin with the conversation so far. `str(error)` is one line."""


def first_difference(known: Sequence[int], prompt: Sequence[int]) -> int | None:
    """Where `prompt` stops beginning with `known`; None if it does not stop."""
    for place, (old, new) in enumerate(zip(known, prompt, strict=False)):
        if old != new:
            return place
    return len(prompt) if len(prompt) < len(known) else None


class Conversation:
    """A path through a tree and the token list that it makes.

    Attributes:
        tree: everything that was asked and answered, on this path and beside it.
        path: the picks from the root to where the next message goes.
        dropped: how many of the oldest of them the next prompt leaves out.
        tokens, mask: what the path makes, closed and ready for the next message.
        preface_tokens: how many of them stand before the conversation's own turns.
    """

    def __init__(self, tree: Tree | None = None, head: Answer | None = None) -> None:
        self.tree = tree or Tree()
        self.go(head)

    # Where it stands.

    @property
    def head(self) -> Answer | None:
        """The answer that the next message follows."""
        return self.path[-1].answer if self.path else None

    @property
    def turns(self) -> list[Pick]:
        """The picks that the model is shown."""
        return self.path[self.dropped :]

    def go(self, head: Answer | None) -> None:
        """Stand behind `head`, wherever it is in the tree; None is before everything."""
        self.path = self.tree.path(head)
        self.dropped = head.prompt.dropped if head else 0
        self._list()

    def pick(self, answer: Answer) -> Pick:
        """Go on with `answer`, which is the choice among the answers of its turn."""
        self.tree.turn_of(answer).picked = answer.id
        self.go(answer)
        return self.path[-1]

    def drop_oldest(self, count: int) -> None:
        """Show the model no longer the oldest turns; the next prompt is then shorter, not
        longer."""
        self.dropped = min(self.dropped + max(count, 0), len(self.path))

    # What the model is told, and whether it is that.

    def history(self, model: Model) -> tuple[Exchange, ...]:
        return tuple(pick.exchange(model) for pick in self.turns)

    def check(self, prompt: Sequence[int], preface_tokens: int, model: Model) -> None:
        """The engine is prefilling `prompt`: does it go on where this conversation stands?

        The preface (the first `preface_tokens`: system text, the calculator's examples) is not the
        conversation's and may be another with every message.

        Raises:
            HistoryChangedError: it does not begin with what is known, though no turn was dropped
                and the model is the same.
        """
        # What a server was told as text is known to it alone.
        if not prompt or NO_ID in self.tokens or not self._grows(model):
            return
        known = self.tokens[self.preface_tokens :]
        place = first_difference(known, prompt[preface_tokens:])
        if place is not None:
            raise HistoryChangedError(
                f"The prompt differs from the conversation at token {place + preface_tokens}: "
                "the model sees other tokens than were kept."
            )

    def prompt(self, event: Started, model: Model, system: str | None, tools: bool) -> Prompt:
        """What of the prompt that is being prefilled the path does not know yet."""
        ids = event.prompt_tokens[: len(event.prompt_tokens) - len(event.answer)]
        preface, body = ids[: event.preface_tokens], ids[event.preface_tokens :]
        known = self.tokens[self.preface_tokens :]
        grows = bool(known) and self._grows(model) and first_difference(known, body) is None
        added = body[len(known) :] if grows else body
        return Prompt(preface, added, not grows, self.dropped, system, tools)

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """The whole list that was prefilled behind this path, where the answer begins."""
        known = () if prompt.anew else self.tokens[self.preface_tokens :]
        return (*prompt.preface, *known, *prompt.ids)

    def prompt_length(self, prompt: Prompt) -> int:
        """How many tokens that list has."""
        known = 0 if prompt.anew else len(self.tokens) - self.preface_tokens
        return len(prompt.preface) + known + len(prompt.ids)

    def _grows(self, model: Model) -> bool:
        """Whether the next prompt has to begin with the list so far."""
        head = self.head
        if head is None:
            return True
        return model.speaks_with(head.model) and self.dropped == head.prompt.dropped

    def _list(self) -> None:
        """Make the path's token list."""
        preface: tuple[int, ...] = ()
        tokens: list[int] = []
        mask: list[int] = []
        for place, (_, answer) in enumerate(self.path):
            prompt = answer.prompt
            if prompt.anew:
                tokens, mask, found = [], [0] * len(prompt.ids), 0
                for earlier in self.path[prompt.dropped : place]:
                    if earlier.answer.model.speaks_with(answer.model):
                        found = _mark(prompt.ids, mask, found, earlier.answer)
            else:
                mask += [0] * len(prompt.ids)
            preface = prompt.preface
            tokens += [*prompt.ids, *answer.tokens, *answer.closing]
            mask += [*answer.mask, *[0] * len(answer.closing)]
        self.tokens, self.mask = [*preface, *tokens], [*[0] * len(preface), *mask]
        self.preface_tokens = len(preface)

    # Keeping it by hand.

    def as_json(self, *, model: str, system: str | None, tools: bool) -> str:
        """The path, ids and masks included, with the answers that were not picked: one JSON
        document."""
        document = {
            "model": model,
            "system": system,
            "tools": tools,
            "dropped_turns": self.dropped,
            "preface_tokens": self.preface_tokens,
            "tokens": self.tokens,
            "mask": self.mask,
            "turns": [_turn_json(pick) for pick in self.turns],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"

    def save(self, path: Path, *, model: str, system: str | None, tools: bool) -> str:
        """Write `as_json` to a new file, readable by its owner alone; says in a line what was done.

        Raises:
            NotWrittenError: it exists already, or the file system refuses.
        """
        write_new(path, self.as_json(model=model, system=system, tools=tools))
        return f"{len(self.turns)} turn{'s' * (len(self.turns) != 1)} written to {path}."


def turns_to_drop(event: Overflowed, max_tokens: int | None) -> int | None:
    """How many of the oldest turns must go so that the prompt fits and an answer has some room."""
    room = min(max_tokens or 256, event.limit // 4)
    length = event.prompt_tokens
    turns = event.sizes[:-1]
    for count, size in enumerate(turns, 1):
        length -= size
        if length + room <= event.limit:
            return count
    # Without room for a long answer is still better than not at all.
    return len(turns) if turns and length < event.limit else None


def _mark(prompt: Sequence[int], mask: list[int], place: int, answer: Answer) -> int:
    """Copy an answer's mask to where its ids stand in `prompt`; returns the place behind."""
    width = len(answer.tokens)
    for start in range(place, len(prompt) - width + 1) if width else ():
        if list(prompt[start : start + width]) == answer.tokens:
            mask[start : start + width] = answer.mask
            return start + width
    return place


def as_sample(answer: Answer) -> dict[str, object]:
    """An answer with all that is needed to make it again, as JSON values."""
    return {
        "model": answer.model.name,
        "system": answer.prompt.system,
        "text": answer.text,
        "tokens": answer.tokens,
        "mask": answer.mask,
        "given": answer.given,
        "closing": answer.closing,
        "finish_reason": answer.reason,
        "seed": answer.seed,
        "temperature": answer.temperature,
        "top_k": answer.top_k,
        "tool_calls": [
            {"expression": call.expression, "result": call.result} for call in answer.calls
        ],
    }


def _turn_json(pick: Pick) -> dict[str, object]:
    answer = pick.answer
    return {
        "user": pick.user,
        "model": answer.model.name,
        "picked": pick.picked,
        "preface_tokens": len(answer.prompt.preface),
        "samples": [
            {"index": index, **as_sample(sample)} for index, sample in enumerate(pick.turn.answers)
        ],
    }
