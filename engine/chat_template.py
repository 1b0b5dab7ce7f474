"""What a model's own chat template does, learned once by rendering a few conversations with it.

    findings = probe(template, {"bos_token": "<s>", "eos_token": "</s>"})
    findings.first, findings.opening, ...          # the texts that it puts around each message

A chat template is a Jinja program that comes with the model (`tokenizer.chat_template`) and turns a
whole conversation into text. Running it for every message would cost time, would let user text be
mistaken for the template's own, and would let the template rewrite the past. So it is run on
conversations of marked messages, and what stands between the marks is taken down;
`engine.chat_format` builds prompts from that.

How it is run without being trusted is `engine.template_sandbox`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.template_sandbox import Message, Render, TemplateError, compiled


@dataclass(frozen=True)
class Slot:
    """A place for a message: the text before it and what is done to the message itself."""

    before: str
    clean: Callable[[str], str] = str


@dataclass(frozen=True)
class ToolFindings:
    """What a template does with a tool, where it declares one and has it called as
    `<tool_call>{...}</tool_call>`.

    Attributes:
        first, first_after_system: as in `Findings`, with the tool declared.
        before_result: behind `</tool_call>`, up to the tool's result.
        after_result: behind the result, up to where the answer goes on.
    """

    first: Slot
    first_after_system: tuple[Slot, Slot] | None
    before_result: str
    after_result: str


@dataclass(frozen=True)
class Findings:
    """What a template puts where.

    Attributes:
        first: before the first user message, where there is no system message. A default one that
            the template inserts is part of it.
        first_after_system: the system message's place and then the first user message's; None where
            the template has none, or moves it as the conversation grows.
        first_after_empty_system: like `first`, where the system message is empty; None where that
            is refused.
        next: between an answer and the user message after it.
        opening: between the last user message and the answer.
        end: behind the last answer of a conversation.
        regular: whether a longer conversation is what these pieces say.
        tools: None where it declares none, or has them called in another way.
    """

    first: Slot
    first_after_system: tuple[Slot, Slot] | None
    first_after_empty_system: Slot | None
    next: Slot
    opening: str
    end: str
    regular: bool
    tools: ToolFindings | None = None


def probe(
    template: str, names: Mapping[str, str], tool: Mapping[str, Any] | None = None
) -> Findings:
    """Learn what `template` does.

    Args:
        template: the Jinja source.
        names: further variables: `bos_token`, `eos_token` and so on, with their texts.
        tool: a function with one text argument, as JSON schema; see `Findings.tools`.

    Raises:
        TemplateError: it does not compile, fails on the plainest conversation, runs without end, or
            drops messages.
    """
    render = compiled(template, names)
    user, system = _turn("user", "1"), _turn("system", "0")
    conversation = [user, _turn("assistant", "2"), _turn("user", "3")]
    before_first, opening = _between(render([user], True), [user])
    _, to_answer, to_next, last = _between(render(conversation, True), conversation)
    (*_, end) = _between(render(conversation[:2], False), conversation[:2])
    first = Slot(before_first, _cleaner(render, [user], 0))
    next_ = Slot(to_next, _cleaner(render, conversation, 2))
    return Findings(
        first=first,
        first_after_system=_with_system(render, system, conversation),
        first_after_empty_system=_with_empty_system(render, user, first.clean),
        next=next_,
        opening=opening,
        end=end,
        regular=last == opening == to_answer and _goes_on_so(render, conversation, to_next),
        tools=None if tool is None else _with_tool(template, names, tool, system, conversation),
    )


CALL_START, CALL_END = "<tool_call>", "</tool_call>"


def _turn(role: str, number: str) -> Message:
    return {"role": role, "content": f"Zq{number}{role}{number}qZ"}


def _between(text: str, turns: list[Message]) -> list[str]:
    """The texts before, between and after the contents of `turns`."""
    texts = []
    for turn in turns:
        before, mark, text = text.partition(turn["content"])
        if not mark:
            raise TemplateError(f"it drops {turn['role']} messages or changes their order")
        texts.append(before)
    if any(turn["content"] in part for turn in turns for part in (*texts, text)):
        raise TemplateError("it repeats messages")
    return [*texts, text]


def _with_system(
    render: Render, system: Message, conversation: list[Message]
) -> tuple[Slot, Slot] | None:
    """Where the system message goes; None unless it stays before the first user message."""
    turns = [system, *conversation]
    try:
        before, to_user, *_ = _between(render(turns, True), turns)
        if [before, to_user] != _between(render(turns[:2], True), turns[:2])[:2]:
            return None
        return Slot(before, _cleaner(render, turns, 0)), Slot(to_user, _cleaner(render, turns, 1))
    except TemplateError:
        return None


def _with_empty_system(render: Render, user: Message, clean: Callable[[str], str]) -> Slot | None:
    try:
        text = render([{"role": "system", "content": ""}, user], True)
        return Slot(_between(text, [user])[0], clean)
    except TemplateError:
        return None


def _goes_on_so(render: Render, conversation: list[Message], to_next: str) -> bool:
    """Whether the turn after the next is like it."""
    turns = [*conversation, _turn("assistant", "4"), _turn("user", "5")]
    try:
        return _between(render(turns, True), turns)[-2] == to_next
    except TemplateError:
        return False


def _with_tool(
    template: str,
    names: Mapping[str, str],
    tool: Mapping[str, Any],
    system: Message,
    conversation: list[Message],
) -> ToolFindings | None:
    """What becomes of a tool; None where the template does not know them, or in another way."""
    if CALL_START not in template:
        return None
    function = tool["function"]
    (argument,) = function["parameters"]["properties"]
    user, expression, result = conversation[0], "Zq4expression4qZ", _turn("tool", "5")
    call = {"name": function["name"], "arguments": {argument: expression}}
    calling = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": "call00000", "function": call}],
    }
    result = {**result, "name": function["name"], "tool_call_id": "call00000"}
    try:
        render = compiled(template, names, [tool])
        text = render([user, calling, result], True)
        before, after_expression = text.split(expression)
        behind_call, after_result = after_expression.split(result["content"])
        if CALL_START not in before.rpartition(user["content"])[2] or CALL_END not in behind_call:
            return None
        declared, _ = _between(render([user], True), [user])
        if function["name"] not in declared:
            return None
        return ToolFindings(
            first=Slot(declared, _cleaner(render, [user], 0)),
            first_after_system=_with_system(render, system, conversation),
            before_result=behind_call.partition(CALL_END)[2],
            after_result=after_result,
        )
    except (TemplateError, ValueError):
        return None


_WHITESPACE = "\n \t"


def _cleaner(render: Render, turns: list[Message], which: int) -> Callable[[str], str]:
    """What the template does to whitespace around the content of `turns[which]`."""
    content = turns[which]["content"]
    padded = [*turns]
    padded[which] = {**turns[which], "content": _WHITESPACE + content + _WHITESPACE}
    plain, seen = render(turns, True), render(padded, True)
    for clean in (str, str.strip, str.lstrip, str.rstrip):
        if plain.replace(content, clean(padded[which]["content"])) == seen:
            return clean
    return str
