"""A conversation as chat messages, and back: what an answer's text holds that is no plain text.

A server's reasoning and its tool calls arrive beside the text. In an answer they stand in it, in
the form that the models themselves are mostly trained on (Qwen, Hermes):

    <think>
    They want a product.
    </think>

    <tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}</tool_call>
    <tool_response>84</tool_response>

so that the screen shows them, the store keeps them, and a local model understands them when the
conversation goes on there. `messages()` takes them out again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chat_tui import thought
from engine.messages import Exchange

THINK, THOUGHT = f"{thought.BEGIN}\n", f"\n{thought.END}\n\n"
CALL, CALLED = "<tool_call>", "</tool_call>"
RESPONSE, RESPONDED = "<tool_response>", "</tool_response>"

CALCULATOR: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluates an arithmetic expression exactly.",
        "parameters": {
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "description": "Numbers, + - * / ( ) and percentages: 12*(3+4), 15%*80.",
                }
            },
            "required": ["expression"],
        },
    },
}

Message = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A call of a tool that is whole, and what came of it."""

    id: str
    name: str
    arguments: str
    response: str


def head_of_call(name: str) -> str:
    """The text before the arguments of a call."""
    return f'{CALL}{{"name": {json.dumps(name)}, "arguments": '


def expression_written(arguments: str) -> str:
    """What the calculator is asked, as far as it has been written."""
    found = re.search(r'"expression"\s*:\s*"((?:[^"\\]|\\.)*)', arguments)
    return found[1] if found else ""


def expression_of(name: str, arguments: str) -> str | None:
    """What a whole call asks the calculator; None for a call of anything else."""
    try:
        expression = json.loads(arguments)["expression"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return str(expression) if name == "calculator" else None


def with_calls(text: str, calls: Sequence[Call]) -> list[Message]:
    """An assistant's message that calls tools, and what they answer."""
    return [
        {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _valid(call.arguments)},
                }
                for call in calls
            ],
        },
        *({"role": "tool", "tool_call_id": call.id, "content": call.response} for call in calls),
    ]


def messages(
    history: Sequence[Exchange], text: str, system: str | None, *, tools: bool
) -> list[Message]:
    """What a server is sent. Earlier reasoning is left out, as the models' own templates do.

    Args:
        tools: the server takes messages with tool calls; else they stay text.
    """
    sent: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    for exchange in history:
        sent.append({"role": "user", "content": exchange.user})
        sent += _answer(exchange.text, tools)
    return [*sent, {"role": "user", "content": text}]


_CALLS = re.compile(f"{CALL}(.*?){CALLED}\\s*{RESPONSE}\n?(.*?)\n?{RESPONDED}\\s*", re.DOTALL)


def _answer(text: str, tools: bool) -> list[Message]:
    before = thought.thought_in(text)
    if before is not None and before.after is not None:
        text = text[before.after :]
    sent: list[Message] = []
    at = 0
    for number, found in enumerate(_CALLS.finditer(text) if tools else ()):
        call = _parsed(found[1], found[2], number)
        if call is not None:
            sent += with_calls(text[at : found.start()].strip(), [call])
            at = found.end()
    return [*sent, {"role": "assistant", "content": text[at:]}]


def call_id(number: int) -> str:
    """Nine letters and digits: Mistral's templates refuse anything else."""
    return f"call{number:05d}"


def _parsed(written: str, response: str, number: int) -> Call | None:
    try:
        call = json.loads(written)
        arguments = call["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        return Call(call_id(number), str(call["name"]), arguments, response)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _valid(arguments: str) -> str:
    """Templates read them as JSON, and fail where a model has written something else."""
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"
