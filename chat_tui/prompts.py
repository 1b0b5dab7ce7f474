"""A file of prompts, to be rated one after the other.

    prompts = read_prompts(Path("prompts.txt"))

Either a text with one prompt per line, or JSON lines:

    {"prompt": "Name a colour."}
    {"prompt": "Name a colour.", "system": "Answer in German."}
    {"prompt": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "Name a colour."}]}

`prompt` is a text, or the messages up to the one that is to be answered; other fields are left
alone. A prompt is known by what it says, so that a file may be added to, or sorted, while it is
being rated.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import EngineError

_NAMED = 5
"""Bad lines of which it is said what is wrong."""
_NUMBERED = 50
"""Further ones that are named by their numbers."""


class PromptsError(EngineError):
    """A file holds no prompts, or something else as well. `str(error)` is one line."""


@dataclass(frozen=True)
class FilePrompt:
    """One prompt.

    Attributes:
        text: what is asked.
        history: the exchanges before it, each a user's message and its answer.
        system: the system text that it comes with; None where it has none of its own.
        key: stays the same as long as it says the same; a second one that does has another.
    """

    text: str
    history: tuple[tuple[str, str], ...] = ()
    system: str | None = None
    key: str = ""


def read_prompts(path: Path) -> list[FilePrompt]:
    """All prompts of a file, in its order; empty lines are none.

    Raises:
        PromptsError: it cannot be read, has none, or has lines that are none: all of them are
            named.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PromptsError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PromptsError(f"{path} is no text in UTF-8: line {line} is not.") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise PromptsError(f"{path} has no prompt in it.")
    if not _is_json(path, lines[0][1]):
        return _keyed([FilePrompt(line.strip()) for _, line in lines])
    prompts: list[FilePrompt] = []
    bad: list[tuple[int, str]] = []
    for number, written in lines:
        try:
            prompts.append(_prompt(written))
        except ValueError as error:
            bad.append((number, str(error)))
    if bad:
        raise PromptsError(f"{path}: {_wording(bad)}.")
    return _keyed(prompts)


def _is_json(path: Path, line: str) -> bool:
    """By its name, or because its first line is a JSON object."""
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        return True
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _prompt(line: str) -> FilePrompt:
    """Raises ValueError, with what is wrong."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("is no JSON object")
    if "prompt" not in fields:
        raise ValueError('has no "prompt"')
    prompt, system = fields["prompt"], fields.get("system")
    if system is not None:
        system = _text(system, "a system text")
    if isinstance(prompt, list):
        messages = [_message(message) for message in prompt]
    else:
        messages = [("user", _text(prompt, "a prompt"))]
    if messages and messages[0][0] == "system":
        if system is not None:
            raise ValueError("has two system texts")
        system = messages.pop(0)[1]
    roles = [role for role, _ in messages]
    if roles != [("user", "assistant")[place % 2] for place in range(len(roles) // 2 * 2 + 1)]:
        raise ValueError("has messages that do not go from user to assistant and end with a user's")
    texts = [text for _, text in messages]
    if not texts[-1].strip():
        raise ValueError("has an empty prompt")
    return FilePrompt(texts[-1], tuple(zip(texts[:-1:2], texts[1::2], strict=True)), system)


def _message(message: object) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError('has a message without a "role"')
    return message["role"], _text(message.get("content"), "a message")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"has {what} that is no text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"has {what} with half a character in it") from None
    return value


def _wording(bad: Sequence[tuple[int, str]]) -> str:
    """Lines and what is wrong with them, the first ones in words, then numbers alone."""
    parts = [f"line {number} {what}" for number, what in bad[:_NAMED]]
    if rest := [str(number) for number, _ in bad[_NAMED:]]:
        more = f" and {len(rest) - _NUMBERED:,} more" if len(rest) > _NUMBERED else ""
        parts.append(f"also bad: {', '.join(rest[:_NUMBERED])}{more}")
    return ", ".join(parts)


def _keyed(prompts: Sequence[FilePrompt]) -> list[FilePrompt]:
    seen: Counter[str] = Counter()
    keyed = []
    for prompt in prompts:
        content = json.dumps([prompt.system, prompt.history, prompt.text])
        key = hashlib.sha256(content.encode()).hexdigest()[:32]
        seen[key] += 1
        keyed.append(replace(prompt, key=key if seen[key] == 1 else f"{key}-{seen[key]}"))
    return keyed
