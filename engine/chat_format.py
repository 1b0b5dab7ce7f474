"""Turns to token ids, and the tokens that end an answer.

    prompt = chat_format.render(turns, "Why is the sky blue?", system=None)
    ...                                   # generate until a token is in chat_format.stop_tokens
    turns.append(Turn("Why is the sky blue?", answer))
    prompt = chat_format.render(turns, "And at night?", system=None)

Over a conversation the prompt only grows by appended tokens: `render(turns, text, system)`, the
answer and `closing(answer)` are what the next prompt begins with, whatever the answer is. So a KV
cache stays good, and what the model said is never encoded a second time, which could come out as
other tokens.

Every format is the same few pieces in other words (`Layout`): what stands before a message, before
an answer and behind it. For nanochat they are written here; for GGUF models they are learned from
the model's own chat template (`engine.chat_template`). Literal pieces hold special tokens; messages
are ordinary text, always. Where the two meet as text they are encoded as one, so that ids equal
those of `transformers`' `apply_chat_template`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from engine.errors import ModelFileError
from engine.tokenizer import Tokenizer

Parts: TypeAlias = "tuple[int | str, ...]"
"""Ids, and text that is encoded together with what is next to it."""

SYSTEM_JOIN = "\n\n"
"""Between a system message and the first user message, in formats without a place for the
former."""


@dataclass(frozen=True)
class Turn:
    """A finished turn: what the user wrote, and the answer's ids as they were generated, with or
    without the stop token at their end."""

    user: str
    answer: Sequence[int]


class Place(NamedTuple):
    """Where a message goes: what stands before it, and what is done to its text (`str.strip`, or
    `str`: nothing)."""

    before: Parts
    clean: Callable[[str], str] = str


@dataclass(frozen=True)
class ToolLayout:
    """The pieces of a format that has a form for tools.

    Attributes:
        first, first_after_system: as in `Layout`, with the calculator declared.
        before_result, after_result: what stands around a tool's result, from behind the call to
            where the answer goes on.
    """

    first: Place
    first_after_system: tuple[Place, Place] | None
    before_result: Parts
    after_result: Parts


@dataclass(frozen=True)
class Layout:
    """The pieces of a format.

    Attributes:
        first: the first user message of a conversation without a system message.
        next: the user message after an answer that was closed.
        opening: what stands between a user message and its answer.
        closing: what stands behind every answer.
        stop: how many of `closing` end the answer; the last of them is the token that the model
            itself should say. 0: the format has no such token.
        first_after_system: a system message and the first user message behind it. None: the two
            are joined.
        first_after_empty_system: the first user message behind an empty system message. None: that
            is like any other.
        marks: kinds of part in an answer, to what stands before and behind such a part.
        tools: None: the format has no form for them.
    """

    first: Place
    next: Place
    opening: Parts
    closing: Parts
    stop: int
    first_after_system: tuple[Place, Place] | None = None
    first_after_empty_system: Place | None = None
    marks: Mapping[str, tuple[Parts, Parts]] = field(default_factory=dict)
    tools: ToolLayout | None = None


class ChatFormat:
    """A way to write conversations.

    Attributes:
        name: "nanochat", "chatml", "llama 3", ...: for people to read.
        stop_tokens: an answer is over when one of these is generated.
        note: what the user should know about this format, one line; empty if nothing.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        layout: Layout,
        stop_tokens: Iterable[int],
        note: str = "",
    ) -> None:
        self.name = name
        self.stop_tokens = frozenset(stop_tokens)
        self.note = note
        self.layout = layout
        self._tokenizer = tokenizer
        self._closing = tokenizer.encode_mixed(layout.closing, continues=True)
        self._stop = tokenizer.encode_mixed(layout.closing[: layout.stop], continues=True)

    def render(
        self,
        turns: Sequence[Turn],
        text: str,
        system: str | None = None,
        *,
        tools: bool = False,
    ) -> list[int]:
        """The whole prompt: the system message, the past turns, the user's new `text` and the
        answer's opening.

        An empty `system` is an empty system message where the format has such a thing; None is no
        system message. `tools` declares the calculator, in formats that have a form for that.
        """
        encode = self._tokenizer.encode_mixed
        first, *others = (*(turn.user for turn in turns), text)
        ids = encode((*self._first(first, system, tools), *self.layout.opening))
        for turn, message in zip(turns, others, strict=True):
            ids += (*turn.answer, *self.closing(turn.answer))
            ids += self.following(message)
        return ids

    def following(self, text: str) -> list[int]:
        """What a user message behind a closed answer adds to the prompt, the opening included."""
        return self._tokenizer.encode_mixed(
            (*_filled(self.layout.next, text), *self.layout.opening), continues=True
        )

    def _first(self, text: str, system: str | None, tools: bool) -> Parts:
        layout = self.layout
        if tools and layout.tools is not None:
            if system is None:
                return _filled(layout.tools.first, text)
            if layout.tools.first_after_system is not None:
                before, after = layout.tools.first_after_system
                return (*_filled(before, system), *_filled(after, text))
            return _filled(layout.tools.first, system + SYSTEM_JOIN + text)
        if system is None:
            return _filled(layout.first, text)
        if layout.first_after_system is None:
            return _filled(layout.first, system + SYSTEM_JOIN + text)
        if not system and layout.first_after_empty_system is not None:
            return _filled(layout.first_after_empty_system, text)
        before, after = layout.first_after_system
        return (*_filled(before, system), *_filled(after, text))

    def closing(self, answer: Sequence[int]) -> list[int]:
        """The ids that must follow `answer` before the next turn: the stop token, where the answer
        does not already end in it, and what the format puts behind it."""
        said = self._stop and answer and answer[-1] == self._stop[-1]
        return self._closing[len(self._stop) :] if said else list(self._closing)

    def answer(self, parts: Iterable[tuple[str, str]]) -> list[int]:
        """The ids of an answer that is given as text, in parts of (kind, text), without its
        closing.

        Every format knows the kind "text"; nanochat also "python" and "python_output". Raises
        ValueError for others.
        """
        ids: list[int] = []
        for kind, text in parts:
            if kind == "text":
                ids += self._tokenizer.encode(text)
            elif kind in self.layout.marks:
                before, behind = self.layout.marks[kind]
                ids += self._tokenizer.encode_mixed((*before, text, *behind))
            else:
                raise ValueError(f"the {self.name} format has no parts of kind {kind!r}")
        return ids


class NanochatFormat(ChatFormat):
    """nanochat's `render_conversation`: a pair of special tokens around each message and each part
    of a tool call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelFileError where the vocabulary lacks one of nanochat's special tokens."""

        def special(name: str) -> int:
            id = tokenizer.special(name)
            if id is None:
                raise ModelFileError(
                    f"The tokenizer has no {name} token, so it is not nanochat's; "
                    "use the one that the model was trained with."
                )
            return id

        bos, user_start, user_end, assistant_start, assistant_end = map(
            special,
            (
                "<|bos|>",
                "<|user_start|>",
                "<|user_end|>",
                "<|assistant_start|>",
                "<|assistant_end|>",
            ),
        )
        python_start, python_end = special("<|python_start|>"), special("<|python_end|>")
        output_start, output_end = special("<|output_start|>"), special("<|output_end|>")
        layout = Layout(
            first=Place((bos, user_start)),
            next=Place((user_start,)),
            opening=(user_end, assistant_start),
            closing=(assistant_end,),
            stop=1,
            marks={
                "python": ((python_start,), (python_end,)),
                "python_output": ((output_start,), (output_end,)),
            },
        )
        # A model that begins a new document (bos) is done as well.
        super().__init__("nanochat", tokenizer, layout, (assistant_end, bos))


class TemplateFormat(ChatFormat):
    """A model's own chat template, learned from it once."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        names: Mapping[str, str],
        stop_tokens: Iterable[int] = (),
    ) -> None:
        """Learn the format.

        Args:
            template: the Jinja source.
            names: the texts of `bos_token`, `eos_token` and so on.
            stop_tokens: ids that end an answer, beside the one that the template puts behind it.

        Raises:
            template_sandbox.TemplateError: the template cannot be used.
        """
        from engine.chat_template import Slot, probe

        found = probe(template, names, CALCULATOR)

        def literal(text: str) -> Parts:
            return tuple(tokenizer.split_specials(text))

        def place(slot: Slot) -> Place:
            return Place(literal(slot.before), slot.clean)

        def places(slots: tuple[Slot, Slot] | None) -> tuple[Place, Place] | None:
            return None if slots is None else (place(slots[0]), place(slots[1]))

        to_next = literal(found.next.before)
        closing, stop = _closing(to_next, literal(found.end))
        notes = []
        if found.first_after_system is None:
            notes.append(
                "its template has no place for a system message, which joins the first message"
            )
        if not found.regular:
            notes.append("its template would rewrite earlier turns, which are kept as they were")
        empty, tools = found.first_after_empty_system, found.tools
        layout = Layout(
            first=place(found.first),
            next=Place(to_next[len(closing) :], found.next.clean),
            opening=literal(found.opening),
            closing=closing,
            stop=stop,
            first_after_system=places(found.first_after_system),
            first_after_empty_system=None if empty is None else place(empty),
            tools=None
            if tools is None
            else ToolLayout(
                first=place(tools.first),
                first_after_system=places(tools.first_after_system),
                before_result=literal(tools.before_result),
                after_result=literal(tools.after_result),
            ),
        )
        said = closing[stop - 1] if stop else None
        stops = {*stop_tokens, *([said] if isinstance(said, int) else [])}
        name = next((name for mark, name in _KNOWN.items() if mark in template), "template")
        super().__init__(name, tokenizer, layout, stops, "; ".join(notes))


CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Computes the exact value of an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "description": "Numbers with + - * / and parentheses, such as (3+4)*12.5",
                }
            },
            "required": ["expression"],
        },
    },
}
"""How models whose template declares tools are told of the calculator."""

_KNOWN = {
    "<|im_start|>": "chatml",
    "<|start_header_id|>": "llama 3",
    "<start_of_turn>": "gemma",
    "[INST]": "mistral",
}
"""Names of templates, by what is in them."""


class PlainFormat(ChatFormat):
    """No chat format: the text, and the model goes on from there. For base models."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        bos: int | None = None,
        stop_tokens: Iterable[int] = (),
        note: str = "",
    ) -> None:
        first = Place(() if bos is None else (bos,))
        layout = Layout(first=first, next=Place(()), opening=(), closing=(), stop=0)
        super().__init__("plain", tokenizer, layout, stop_tokens, note)


def _filled(place: Place, text: str) -> Parts:
    return (*place.before, place.clean(text))


def _closing(to_next: Parts, end: Parts) -> tuple[Parts, int]:
    """What of `to_next`, between an answer and the next user message, belongs to the answer.

    That is what is also at the `end` of a conversation, in whole parts, so that no text is cut
    where it would be encoded as one; and at least the special token that ends the answer.

    Returns:
        The parts, and how many of them up to the special token that ends the answer (0: there is
        none).
    """
    pairs = zip(to_next, end, strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    stop = next((at + 1 for at, part in enumerate(to_next) if isinstance(part, int)), 0)
    if any(isinstance(part, str) and part.strip() for part in to_next[:stop]):
        stop = 0  # words stand before it, so it does not end the answer
    if common and isinstance(to_next[common - 1], str) and common == len(to_next):
        common -= 1  # the next message's text follows
    return to_next[: max(common, stop)], stop
