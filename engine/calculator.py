"""What a model's tool call evaluates to: `use_calculator`, in nanochat's dialect.

    use_calculator("1,234 * 5")                     # 6170
    use_calculator("'strawberry'.count('r')")       # 3
    use_calculator("anything else")                 # None

nanochat (`nanochat/engine.py`) hands the text to Python's `eval` under an alarm signal, which works
on the main thread only. This gives the same values on any thread and any Python, from an
operator-precedence parser (Dijkstra's shunting yard) that evaluates as it reads: a stack of values
and a stack of operators that still wait for their right side. It does not recurse, so nesting
costs nothing, and nothing that a text could name is in reach. It takes

- arithmetic: numbers with thousands commas, `+ - * / //`, parentheses;
- `"text".count("x")`, and what `eval` let stand around it: further methods, of which those that
  touch nothing but their text are kept, and `and or not in is if else`.

The work is bounded by the length of the text. Arithmetic uses each value once, so that all numbers
together never have more digits than the text; string methods, which could multiply, draw on a
budget. The worst text found takes 10 ms (`9*9*9*...`, 4,096 factors).
"""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_CHARS = 8192
"""Longer texts have no value. nanochat's own limits (4,300 digits, some 3,000 terms) are below."""

MAX_DIGITS = 4300
"""Longer integers have no value: Python neither reads nor writes them (`sys.int_info`)."""

MAX_NESTING = 200
"""Parentheses inside each other, as in Python's tokenizer."""

METHOD_BUDGET = 50_000
"""Characters that all method calls of one text may read and write together."""

_ARITHMETIC = re.compile(r"[0-9*+\-/.() ]*")
_WITH_STRINGS = re.compile(r"""[A-Za-z0-9'"()._, ]*""")

# nanochat's guard for its `eval`. Nothing here needs guarding, but models were trained with the
# answers that it gave: `'dirt'.count('d')` has none.
_REFUSED = re.compile(
    "__|import|exec|eval|compile|open|file|input|globals|locals|vars|dir"
    "|getattr|setattr|delattr|hasattr",
    re.IGNORECASE,
)

_QUOTED = r"""'''.*?'''|\"\"\".*?\"\"\"|'(?!'')[^']*'|"(?!"")[^"]*\""""
_PREFIXED = rf"(?i:[rbuf]|br|rb|fr|rf)?(?:{_QUOTED})"
_COMMA_OR_QUOTED = re.compile(rf",|({_QUOTED})")
_STRING_PARTS = re.compile(rf"([A-Za-z]*)({_QUOTED})")
_TOKEN = re.compile(
    rf"""\ *(?:
      (?P<number> \d+\.?\d* | \.\d+ )
    | (?P<strings> {_PREFIXED} (?: \ *{_PREFIXED} )* )
    | (?P<empty> \(\ *\) )
    | (?P<method> \.\ *[A-Za-z_]\w* )
    | (?P<symbol> // | [-+*/()] | is\ +not\b | not\ +in\b | (?:and|or|not|in|is|if|else)\b )
    | (?P<name> [A-Za-z_]\w* | \.\.\. )
    )""",
    re.VERBOSE | re.ASCII,
)


class _NotAnExpression(Exception):
    """The text breaks the grammar."""


class _Failed:
    """The value of a part that raises. What uses it fails too; the side of an `or`, `and` or `if`
    that Python would not have evaluated is not used."""

    def __bool__(self) -> bool:
        raise TypeError


_FAILED = _Failed()


@dataclass(frozen=True)
class _Method:
    """A method that was named and not yet called."""

    owner: object
    name: str


@dataclass(frozen=True)
class _Operator:
    """`binds`: the higher, the tighter. `lazy`: may leave an operand unused, even a failed one."""

    binds: int
    operands: int
    function: Callable[..., object]
    lazy: bool = False


def _marker() -> _Operator:
    """Waits among the operators for the token that closes it; never applied."""
    return _Operator(0, 0, lambda: None)


_GROUP, _CALL, _IF = _marker(), _marker(), _marker()
_ELSE = _Operator(1, 3, lambda then, test, other: then if test else other, lazy=True)
_COMPARISON = 5
_BOTH = _Operator(_COMPARISON, 2, lambda a, b: a and b, lazy=True)
_INFIX = {
    "or": _Operator(2, 2, lambda a, b: a or b, lazy=True),
    "and": _Operator(3, 2, lambda a, b: a and b, lazy=True),
    "in": _Operator(_COMPARISON, 2, lambda a, b: a in b),
    "not in": _Operator(_COMPARISON, 2, lambda a, b: a not in b),
    # Whether equal texts or numbers are one object is an accident of the interpreter.
    "is": _Operator(_COMPARISON, 2, lambda a, b: type(a) is type(b) and a == b),
    "is not": _Operator(_COMPARISON, 2, lambda a, b: type(a) is not type(b) or a != b),
    "+": _Operator(6, 2, operator.add),
    "-": _Operator(6, 2, operator.sub),
    "*": _Operator(7, 2, operator.mul),
    "/": _Operator(7, 2, operator.truediv),
    "//": _Operator(7, 2, operator.floordiv),
}
_PREFIX = {
    "not": _Operator(4, 1, operator.not_),
    "+": _Operator(8, 1, operator.pos),
    "-": _Operator(8, 1, operator.neg),
}

_TEXT_METHODS = {
    "capitalize", "center", "count", "endswith", "find", "index", "isalnum", "isalpha",
    "isascii", "isdigit", "islower", "isspace", "istitle", "isupper", "join", "ljust", "lower",
    "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rjust",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase",
    "title", "upper", "zfill",
}  # fmt: skip
_INT_METHODS = {"bit_count", "bit_length", "conjugate", "to_bytes"}
_METHODS: dict[type, set[str]] = {
    str: _TEXT_METHODS | {"casefold", "encode", "isdecimal", "isidentifier", "isnumeric"},
    bytes: _TEXT_METHODS | {"decode", "hex"},
    int: _INT_METHODS,
    bool: _INT_METHODS,
    float: {"conjugate", "is_integer"},
    tuple: {"count", "index"},
    list: {"copy", "count", "index"},
}
_ADAPTED: dict[str, Callable[..., object]] = {
    # Python 3.10 wants both arguments.
    "to_bytes": lambda number, length=1: number.to_bytes(length, "big"),
    # UTF-8 alone: other codecs are modules, imported by name.
    "encode": lambda text: text.encode(),
    "decode": lambda data: data.decode(),
}


def use_calculator(expression: str) -> object:
    """The value of `expression`, or None where it has none.

    An int or a float; in the corners of the dialect whatever Python makes of the text: str, bytes,
    bool, tuple, list, Ellipsis. Raises nothing, on any input, and neither does `str(value)`.
    """
    if len(expression) > MAX_CHARS:
        return None
    # nanochat removes every comma; those inside quotes are text, and stay.
    text = _COMMA_OR_QUOTED.sub(r"\1", expression).strip(" ")
    if not _ARITHMETIC.fullmatch(text) and (
        ".count(" not in text or not _WITH_STRINGS.fullmatch(text) or _REFUSED.search(text)
    ):
        return None
    try:
        value = _Evaluation().run(text)
        if isinstance(value, int) and len(str(abs(value))) > MAX_DIGITS:
            return None
    except (_NotAnExpression, ValueError):  # ValueError: more digits than this Python is set to
        return None
    return None if isinstance(value, (_Failed, _Method)) else value


class _Evaluation:
    """The two stacks of one text, and what is left of its budget."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self.operators = [_GROUP]
        self.nesting = 0
        self.budget = METHOD_BUDGET

    def run(self, text: str) -> object:
        position, operand_next = 0, True
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise _NotAnExpression
            read = self._operand if operand_next else self._operation
            operand_next = read(match.lastgroup, match[match.lastgroup])
            position = match.end()
        if operand_next or self.nesting:
            raise _NotAnExpression
        self._close(_GROUP)
        return self.values.pop()

    # Each of the two readers returns whether an operand must come next.

    def _operand(self, kind: str, token: str) -> bool:
        """Read a token where an operand must begin."""
        if token == "(":
            return self._open(_GROUP)
        if token in _PREFIX:
            # Python's grammar has `not a in b`, but no `a in not b`.
            if token == "not" and self.operators[-1].binds >= _COMPARISON:
                raise _NotAnExpression
            self.operators.append(_PREFIX[token])
            return True
        if kind not in _OPERANDS:
            raise _NotAnExpression
        self.values.append(_OPERANDS[kind](token))
        return False

    def _operation(self, kind: str, token: str) -> bool:
        """Read a token where an operand has ended."""
        if kind == "method":
            self.values.append(_method(self.values.pop(), token.lstrip(". ")))
            return False
        if kind == "empty":
            return self._call(self.values.pop())
        if token == "(":
            return self._open(_CALL)
        if token == ")":
            return self._shut()
        if token in _INFIX:
            return self._infix(_INFIX[token])
        if token == "if":
            self._apply(_ELSE.binds + 1)
            if self.operators[-1] is _IF:  # Python wants parentheses around the second
                raise _NotAnExpression
            self.operators.append(_IF)
            return True
        if token == "else":
            self._close(_IF)
            self.operators.append(_ELSE)
            return True
        raise _NotAnExpression

    def _open(self, marker: _Operator) -> bool:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise _NotAnExpression
        self.operators.append(marker)
        return True

    def _shut(self) -> bool:
        self.nesting -= 1
        if self.nesting < 0:
            raise _NotAnExpression
        if self._close(_GROUP, _CALL) is _CALL:
            argument, callee = self.values.pop(), self.values.pop()
            return self._call(callee, argument)
        return False

    def _close(self, *markers: _Operator) -> _Operator:
        """Apply what waits above the topmost marker, and take that: it must be one of `markers`."""
        self._apply(_ELSE.binds)
        marker = self.operators.pop()
        if marker not in markers:
            raise _NotAnExpression
        return marker

    def _infix(self, infix: _Operator) -> bool:
        self._apply(infix.binds + 1)
        left = self.values[-1]
        chained = self.operators[-1].binds == infix.binds == _COMPARISON
        self._apply(infix.binds)
        if chained:  # `a in b in c` is `a in b and b in c`
            self.operators.append(_BOTH)
            self.values.append(left)
        self.operators.append(infix)
        return True

    def _apply(self, binds: int) -> None:
        """Apply the waiting operators that bind at least as tightly as `binds`."""
        while self.operators[-1].binds >= binds:
            waiting = self.operators.pop()
            operands = self.values[-waiting.operands :]
            del self.values[-waiting.operands :]
            failed = not waiting.lazy and _FAILED in operands
            self.values.append(_FAILED if failed else _attempt(waiting.function, *operands))

    def _call(self, callee: object, *arguments: object) -> bool:
        result: object = _FAILED
        if isinstance(callee, _Method) and _FAILED not in arguments:
            self.budget -= _cost(callee, arguments)
            if self.budget >= 0:
                function = _ADAPTED.get(callee.name) or getattr(type(callee.owner), callee.name)
                result = _attempt(function, callee.owner, *arguments)
        self.values.append(result)
        return False


def _number(token: str) -> object:
    if "." in token:
        return float(token)
    if len(token) > MAX_DIGITS or (token[0] == "0" and token.strip("0")):  # 007 is no number
        raise _NotAnExpression
    return int(token)


def _strings(token: str) -> object:
    """One or more literals side by side, which are one. No escapes and no braces occur in them, so
    that the prefixes r, u and f mean nothing."""
    literals = _STRING_PARTS.findall(token)
    kinds = {"b" in prefix.lower() for prefix, _ in literals}
    if len(kinds) > 1:
        raise _NotAnExpression
    text = "".join(q[3:-3] if q[:3] in ("'''", '"""') else q[1:-1] for _, q in literals)
    return text.encode("ascii") if kinds.pop() else text


def _name(token: str) -> object:
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if keyword.iskeyword(token):
        raise _NotAnExpression
    return _FAILED


_CONSTANTS = {"None": None, "True": True, "False": False, "...": ...}
_OPERANDS: dict[str, Callable[[str], object]] = {
    "number": _number,
    "strings": _strings,
    "empty": lambda token: (),
    "name": _name,
}


def _method(owner: object, name: str) -> object:
    return _Method(owner, name) if name in _METHODS.get(type(owner), ()) else _FAILED


def _cost(method: _Method, arguments: tuple[object, ...]) -> int:
    """A bound for the characters that the call reads and writes."""
    own = 1 if isinstance(method.owner, (int, float)) else _size(method.owner)
    others = sum(map(_size, arguments))
    return (1 + own) * (1 + others) if method.name == "join" else own + others


def _size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return 1 + len(value)
    if isinstance(value, (tuple, list)):
        return 1 + sum(map(_size, value))
    return abs(value) if isinstance(value, int) else 1  # a number is a width: 'x'.center(9)


def _attempt(function: Callable[..., object], *operands: object) -> object:
    try:
        return function(*operands)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return _FAILED
