"""Tool calls and forced text inside a model's text, and the token where answers part.

What the model did not choose is drawn as an inset: a call as a chip `123*456 → 56088`, other forced
text in a style of its own. So is the first token that other answers do not share. `place(...)` puts
one private-use character where each inset stands, so that it travels through Markdown like a
letter; `Insets.expand` turns those characters into styled runs after parsing. Forced text is
thereby never read as Markdown: the model did not write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.style import Style

from chat_tui.rendering.palette import Palette
from chat_tui.rendering.sanitise import parseable, sanitise
from chat_tui.rendering.wrap import NO_BREAK, Run
from engine.messages import ToolCall

Span = tuple[int, int]

_FIRST = 0xF0000
_PLACEHOLDER = re.compile("[\U000f0000-\U0010ffff]")


@dataclass(frozen=True)
class Forced:
    """Characters that the engine put into the answer."""

    text: str

    def runs(self, style: Style, palette: Palette) -> Iterator[Run]:
        yield sanitise(self.text), style + palette.forced


@dataclass(frozen=True)
class Chip:
    """A tool call, with as much of its result as has been forced so far."""

    expression: str
    drained: str
    call: ToolCall
    parts: bool = False

    @classmethod
    def of(cls, call: ToolCall, forced: str, parts: bool = False) -> Chip:
        """The chip of a call whose forced characters, markers among them, are so far `forced`.
        `parts`: answers part inside of it."""
        result = call.result or ""
        if not call.done and result not in forced:
            lengths = range(len(result), -1, -1)
            result = next(result[:n] for n in lengths if forced.endswith(result[:n]))
        return cls(call.expression.strip(), result, call, parts)

    def runs(self, style: Style, palette: Palette) -> Iterator[Run]:
        expression = sanitise(self.expression).replace("\n", " ").translate(NO_BREAK)
        yield f"\xa0{expression}", palette.parting if self.parts else palette.chip
        if self.drained:
            yield "\xa0→\xa0", palette.chip_quiet
            result = sanitise(self.drained).replace("\n", " ").translate(NO_BREAK)
            yield f"{result}\xa0", palette.chip_result
        else:
            yield "\xa0✗\xa0" if self.call.done else "\xa0…\xa0", palette.chip_quiet


@dataclass(frozen=True)
class Parting:
    """The first token that other answers do not share."""

    text: str

    def runs(self, style: Style, palette: Palette) -> Iterator[Run]:
        yield sanitise(self.text).translate(NO_BREAK), palette.parting


Inset = Forced | Chip | Parting


@dataclass
class Insets:
    """A stretch of raw text with one character in place of each inset."""

    text: str = ""
    _insets: list[Inset] = field(default_factory=list)
    _cuts: list[tuple[int, int]] = field(default_factory=list)  # (position, raw characters)

    def add(self, inset: Inset, raw_length: int) -> None:
        self._cuts.append((len(self.text), raw_length))
        self.text += chr(_FIRST + len(self._insets))
        self._insets.append(inset)

    def raw_length(self, position: int) -> int:
        """How many raw characters stand before a position of `text`."""
        return position + sum(length - 1 for at, length in self._cuts if at < position)

    def expand(self, text: str, style: Style, palette: Palette) -> Iterator[Run]:
        """`text` as harmless runs in `style`, with the insets in place of their characters."""
        at = 0
        for match in _PLACEHOLDER.finditer(text):
            if match.start() > at:
                yield sanitise(text[at : match.start()]), style
            at = match.end()
            yield from self._insets[ord(match.group()) - _FIRST].runs(style, palette)
        if at < len(text):
            yield sanitise(text[at:]), style


def place(
    text: str,
    calls: Iterable[ToolCall],
    forced: Sequence[Span],
    start: int = 0,
    parting: Span | None = None,
) -> Insets:
    """Take the insets out of `text[start:]`; a call covers the forced text inside it. `parting` are
    the characters of the token where this text parts from others."""
    insets = Insets()
    at = start
    for call in sorted(calls, key=lambda call: call.start):
        if call.start < at or call.start > len(text):
            continue
        end = min(max(call.end, call.start), len(text))
        _place_text(insets, text, forced, parting, at, call.start)
        inside = "".join(text[a:b] for a, b in _within(forced, call.start, end))
        parts = parting is not None and any(_within([parting], call.start, end))
        insets.add(Chip.of(call, inside, parts), end - call.start)
        at = end
    _place_text(insets, text, forced, parting, at, len(text))
    return insets


def _place_text(
    insets: Insets,
    text: str,
    forced: Sequence[Span],
    parting: Span | None,
    start: int,
    end: int,
) -> None:
    """What stands between two calls."""
    for first, last in _within([parting] if parting is not None else (), start, end):
        _place_forced(insets, text, forced, start, first)
        token = text[first:last]
        # Space around it stays outside: it is structure, not a letter.
        lead = len(token) - len(token.lstrip())
        if lead == len(token):
            insets.add(Parting("↵" if "\n" in token else "·"), 0)
            insets.text += parseable(token)
        else:
            core = token.strip()
            insets.text += parseable(token[:lead])
            insets.add(Parting(core), len(core))
            insets.text += parseable(token[lead + len(core) :])
        start = last
    _place_forced(insets, text, forced, start, end)


def _place_forced(insets: Insets, text: str, forced: Sequence[Span], start: int, end: int) -> None:
    at = start
    for first, last in _within(forced, start, end):
        insets.text += parseable(text[at:first])
        # A newline stays outside: it is structure, not a letter.
        for index, line in enumerate(text[first:last].split("\n")):
            insets.text += "\n" if index else ""
            if line:
                insets.add(Forced(line), len(line))
        at = last
    insets.text += parseable(text[at:end])


def _within(spans: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    for first, last in spans:
        if last > start and first < end:
            yield max(first, start), min(last, end)
