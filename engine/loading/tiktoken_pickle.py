"""Reads nanochat's `tokenizer.pkl`, a pickled `tiktoken.Encoding`, without unpickling it.

A pickle is a program, and Python's unpickler runs it: even one that may construct nothing can be
made to allocate without bound or to hash for ever. What `pickle.dump` writes for an Encoding needs
only twenty-one of the instructions: text, bytes, small numbers, dicts of these, and one object.
This is an interpreter for those. It imports, constructs and calls nothing, and its work and memory
are bounded by the size of the file.

    fields = read_encoding(path)
    fields.pat_str, fields.mergeable_ranks, fields.special_tokens

Protocols 4 and 5 are read: what Python 3.8 and later write unless told otherwise. A vocabulary of
65,536 takes 0.1 s.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from engine.errors import ModelFileError

MAX_FILE = 1 << 26
MAX_VOCABULARY = 1 << 20
MAX_PATTERN = 1 << 14

_Key = TypeVar("_Key", bytes, str)

_GLOBAL = ("tiktoken.core", "Encoding")
_FIELDS = {"name", "pat_str", "mergeable_ranks", "special_tokens"}


@dataclass(frozen=True)
class EncodingFields:
    """What a `tiktoken.Encoding` is made of: checked in type and range, not in meaning.

    Attributes:
        pat_str: the regular expression that splits text before merging.
        mergeable_ranks: token bytes to id, which is also its rank among the merges.
        special_tokens: name to id. No id appears twice in the two.
    """

    name: str
    pat_str: str
    mergeable_ranks: dict[bytes, int]
    special_tokens: dict[str, int]


def read_encoding(path: Path) -> EncodingFields:
    """Read the pickled Encoding at `path`.

    Raises ModelFileError, one line, for a file that is missing, broken or holds anything else.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > MAX_FILE:
        raise _refusal(path, f"is larger than {MAX_FILE >> 20} MiB")
    try:
        state = _Machine(path, data).run()
    except IndexError:
        raise ModelFileError(
            f"{path} is broken: it ends too early or in the wrong place; copy it again."
        ) from None
    return _checked(path, state)


def _refusal(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{path} {why}, so it was not loaded; "
        "a nanochat tokenizer.pkl holds a tiktoken Encoding and nothing else."
    )


class _Encoding:
    """Stands for the class, and an instance for the object, while the program runs."""

    state: object = None


class _Machine:
    """The pickle machine: a stack, marks into it and a memo. IndexError: the program or the stack
    ran out."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.data = data

    def run(self) -> object:
        """Run the program to its end; return the state of the one Encoding that it leaves."""
        data = self.data
        stack: list[object] = []
        marks: list[int] = []
        memo: list[object] = []
        at = 0

        def take(n: int) -> bytes:
            nonlocal at
            if at + n > len(data):
                raise IndexError
            at += n
            return data[at - n : at]

        def number(n: int, signed: bool = False) -> int:
            return int.from_bytes(take(n), "little", signed=signed)

        while True:
            opcode = data[at : at + 1]
            at += 1
            # In the order of how often they come; a vocabulary is 200,000 of the first four.
            if opcode == pickle.MEMOIZE:
                memo.append(stack[-1])
            elif opcode == pickle.SHORT_BINBYTES:
                stack.append(take(number(1)))
            elif opcode == pickle.BININT2:
                stack.append(number(2))
            elif opcode == pickle.BININT:
                stack.append(number(4, signed=True))
            elif opcode == pickle.BININT1:
                stack.append(number(1))
            elif opcode == pickle.MARK:
                marks.append(len(stack))
            elif opcode == pickle.SETITEMS:
                mark = marks.pop()
                items = stack[mark:]
                del stack[mark:]
                self._fill(stack[-1], items)
            elif opcode == pickle.SETITEM:
                items = [stack.pop(), stack.pop()][::-1]
                self._fill(stack[-1], items)
            elif opcode == pickle.SHORT_BINUNICODE:
                stack.append(self._text(take(number(1))))
            elif opcode == pickle.BINUNICODE:
                stack.append(self._text(take(number(4))))
            elif opcode == pickle.BINBYTES:
                stack.append(take(number(4)))
            elif opcode == pickle.BINGET:
                stack.append(memo[number(1)])
            elif opcode == pickle.LONG_BINGET:
                stack.append(memo[number(4)])
            elif opcode == pickle.EMPTY_DICT:
                stack.append({})
            elif opcode == pickle.EMPTY_TUPLE:
                stack.append(())
            elif opcode == pickle.STACK_GLOBAL:
                name, module = stack.pop(), stack.pop()
                stack.append(self._find(module, name))
            elif opcode == pickle.NEWOBJ:
                arguments, kind = stack.pop(), stack.pop()
                if kind is not _Encoding or arguments != ():
                    self._unexpected(opcode)
                stack.append(_Encoding())
            elif opcode == pickle.BUILD:
                state, target = stack.pop(), stack[-1]
                if not isinstance(target, _Encoding):
                    self._unexpected(opcode)
                target.state = state
            elif opcode == pickle.PROTO:
                if (protocol := number(1)) not in (4, 5):
                    raise _refusal(
                        self.path, f"is written in pickle protocol {protocol}, not 4 or 5"
                    )
            elif opcode == pickle.FRAME:
                number(8)
            elif opcode == pickle.STOP:
                result = stack.pop()
                if stack or marks or not isinstance(result, _Encoding):
                    self._unexpected(opcode)
                return result.state
            elif opcode == pickle.GLOBAL:
                module, name = (self._text(line) for line in data[at:].split(b"\n", 2)[:2])
                self._find(module, name)
                self._unexpected(opcode)
            elif opcode:
                self._unexpected(opcode)
            else:
                raise IndexError

    def _find(self, module: object, name: object) -> type[_Encoding]:
        if (module, name) != _GLOBAL:
            raise _refusal(self.path, f"asks for {_shown(f'{module}.{name}')}")
        return _Encoding

    def _fill(self, target: object, items: list[object]) -> None:
        keys, values = items[::2], items[1::2]
        # Only text and bytes: no key whose hash is a computation of its own.
        if (
            not isinstance(target, dict)
            or len(keys) != len(values)
            or not all(type(key) is bytes or type(key) is str for key in keys)
        ):
            self._unexpected(pickle.SETITEMS)
        target.update(zip(keys, values, strict=True))

    def _text(self, data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def _unexpected(self, opcode: bytes) -> NoReturn:
        raise _refusal(self.path, f"holds something else (pickle instruction {opcode!r})")


def _checked(path: Path, state: object) -> EncodingFields:
    """The fields of a state, after a look at every type and number in it."""
    if isinstance(state, str):
        raise _refusal(path, f"names the encoding {_shown(state)} instead of holding one")
    if not isinstance(state, dict) or state.keys() != _FIELDS:
        raise _refusal(path, f"does not hold exactly {', '.join(sorted(_FIELDS))}")
    name, pattern = state["name"], state["pat_str"]
    if not isinstance(name, str) or not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        raise _refusal(path, "has a name or a splitting pattern that is no text")
    ranks = _ids(path, state["mergeable_ranks"], bytes)
    special_tokens = _ids(path, state["special_tokens"], str)
    if not ranks or b"" in ranks:
        raise _refusal(path, "has no tokens, or an empty one")
    ids = {*ranks.values(), *special_tokens.values()}
    if len(ids) != len(ranks) + len(special_tokens):
        raise _refusal(path, "gives one id to two tokens")
    return EncodingFields(name, pattern, ranks, special_tokens)


def _ids(path: Path, table: object, key: type[_Key]) -> dict[_Key, int]:
    if not isinstance(table, dict) or not all(
        type(token) is key and type(id) is int and 0 <= id < MAX_VOCABULARY
        for token, id in table.items()
    ):
        raise _refusal(path, "has tokens or ids of the wrong kind")
    return table


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
