"""Runs a chat template, a Jinja program of someone else's, without trusting it.

    render = compiled(template, {"bos_token": "<s>"})
    render([{"role": "user", "content": "Hello"}], True)

It runs in Jinja's sandbox with the names that Hugging Face's `apply_chat_template` gives it, and
with a bound on the steps it takes and on every text it makes. Only this module imports jinja2.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any, TypeAlias

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_TEMPLATE = 1 << 17
MAX_TEXT = 1 << 17
MAX_NUMBER = 10_000
MAX_STEPS = 50_000
"""Lines of Python that one rendering may take; real templates take about a thousand."""

Message: TypeAlias = "dict[str, Any]"
Render: TypeAlias = "Callable[[Sequence[Message], bool], str]"
"""From messages, and whether an answer is asked for, to text."""


class TemplateError(Exception):
    """A template cannot be used; `str(error)` says why in a few words fit for a note."""


def compiled(
    template: str, names: Mapping[str, str], tools: list[Mapping[str, Any]] | None = None
) -> Render:
    """A function that renders `template`; `names` are further variables.

    It raises TemplateError where the template fails, or runs or writes without end.

    Raises:
        TemplateError: it does not compile.
    """
    if len(template) > MAX_TEMPLATE:
        raise TemplateError(f"it is longer than {MAX_TEMPLATE} characters")
    with _as_template_error():
        program = _Environment().from_string(template)

    def render(turns: Sequence[Message], add_generation_prompt: bool) -> str:
        with _as_template_error(), _bounded_steps():
            return program.render(
                messages=[dict(turn) for turn in turns],
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **names,
            )

    return render


@contextmanager
def _as_template_error() -> Iterator[None]:
    try:
        yield
    # A template is a program of someone else's: it may raise whatever there is.
    except Exception as error:
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        printable = "".join(c if c.isprintable() else "?" for c in reason)
        raise TemplateError(f"it fails: {printable}") from error


@contextmanager
def _bounded_steps() -> Iterator[None]:
    """Raise out of Python code of this thread that runs more than `MAX_STEPS` lines.

    A template is compiled to Python, so every loop of it takes lines, also those in filters. A
    debugger's or a coverage tool's own trace function is put back afterwards.
    """
    left = MAX_STEPS

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SecurityError("it takes too many steps")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


# The environment. A text can only be made from what is there, so whatever makes one longer than
# its parts, or a new one by a number, is bounded.


def _bounded(size: int) -> None:
    if size > MAX_TEXT:
        raise SecurityError("it makes too long a text")


def _bounded_numbers(numbers: Iterable[object]) -> None:
    if any(isinstance(number, int) and abs(number) > MAX_NUMBER for number in numbers):
        raise SecurityError("it uses too large a number")


def _printable(value: object) -> object:
    """Refuse lists and dicts, whose text may be far longer than they are."""
    if isinstance(value, (list, tuple, dict, Namespace)):
        raise SecurityError("it prints a list or dict")
    return value


def _size(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple, dict)) else 0


def _join(texts: Iterable[object], separator: str = "") -> str:
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(str(_printable(text)))
        size += len(parts[-1]) + len(separator)
        _bounded(size)
    return separator.join(parts)


@jinja2.pass_environment
def _join_filter(
    environment: jinja2.Environment,
    values: Iterable[object],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return _join(values, d)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    _bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def _format(text: str, *values: object) -> str:
    _bounded_numbers(map(int, re.findall(r"\d+", text)))
    _bounded_numbers(values)
    return text % tuple(map(_printable, values))


def _to_json(value: object, **options: Any) -> str:
    """Not Jinja's, which escapes for HTML. Encoded in steps, which are counted."""
    _bounded_numbers(options.values())
    encoder = json.JSONEncoder(**{"ensure_ascii": False, **options})
    return _join(encoder.iterencode(value))


def _with_bounded_numbers(filter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(filter)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _bounded_numbers((*args, *kwargs.values()))
        return filter(*args, **kwargs)

    return bounded


_BOUNDED_FILTERS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "join": _join_filter,
    "replace": _replace,
    "string": lambda value: str(_printable(value)),
    "tojson": _to_json,
    **{
        name: _with_bounded_numbers(FILTERS[name])
        for name in ("batch", "center", "indent", "slice", "truncate", "wordwrap")
    },
}


class _Concat(CodeGenerator):
    """Compiles `a ~ b` to a join with a bound."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as `apply_chat_template` sets it up, with bounds."""

    code_generator_class = _Concat
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    # Behind `~`, {% set %} blocks, macros, and the whole result.
    concat = staticmethod(_join)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_printable,
            optimized=False,  # it would run filters while compiling, where no steps are counted
            extensions=[jinja2.ext.loopcontrols, _GenerationTag],
        )
        self.filters.update(_BOUNDED_FILTERS)
        del self.filters["pprint"]
        self.globals = {
            "range": self.globals["range"],
            "dict": lambda **items: items,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": lambda format: datetime.now().strftime(format),
        }

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            return _format(left, *(right if isinstance(right, tuple) else (right,)))
        if operator == "+":
            _bounded(_size(left) + _size(right))
        elif operator in ("*", "**"):
            _bounded_numbers((left, right))
            if isinstance(left, int) or isinstance(right, int):
                count, sized = (left, right) if isinstance(left, int) else (right, left)
                _bounded(count * _size(sized))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            _bounded_numbers(args)
            if function.__name__ == "join":
                return _join(args[0], owner)
            if function.__name__ == "replace":
                return _replace(owner, *args)
            if function.__name__ == "translate":
                raise SecurityError("it uses translate()")
        return super().call(context, function, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        formatted = super().wrap_str_format(value)
        if formatted is None:
            return None
        numbers = [int(number) for number in re.findall(r"\d+", value.__self__)]

        def bounded(*args: Any, **kwargs: Any) -> str:
            _bounded_numbers((*numbers, *args, *kwargs.values()))
            for argument in (*args, *kwargs.values()):
                _printable(argument)
            return formatted(*args, **kwargs)

        return bounded


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


class _Namespace(Namespace):
    """Jinja's, without names that Python itself looks up."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args
        for name in dict(*given, **kwargs):
            _checked_name(name)
        Namespace.__init__(self, *given, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _checked_name(name)
        super().__setitem__(name, value)


def _checked_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"it sets {name!r:.40}")


class _GenerationTag(jinja2.ext.Extension):
    """{% generation %} marks answers for training; here it only has to be read over."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
