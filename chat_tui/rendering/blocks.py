"""Cutting a growing Markdown text into blocks that can be drawn on their own.

    *complete, open_block = blocks(text, final=False)

Whatever text follows, the complete blocks stay as they are, so they are drawn once. The cuts are
finer than Markdown's own (each item of a list is a block), so that the open one stays short. They
depend on the text alone, never on the pieces in which it arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$")
_HEADING = re.compile(r" {0,3}#{1,6}([ \t]|$)")
_ITEM = re.compile(r" ?([-*+]|\d{1,3}[.)])([ \t]|$)")
_INDENTED = re.compile(r"  |\t")
# So much of a line tells its kind, unless it may still become a rule or the opening of a fence.
_TELLING = re.compile(r"[ \t]*(?=[^ \t])(?!```|~~~)(?=.{0,7}[^-*_ \t]).{8}")


class Block(NamedTuple):
    """The stretch `text[start:end]`; `spaced` if blank lines stand before it."""

    start: int
    end: int
    spaced: bool


def blocks(text: str, *, final: bool, spaced: bool = False) -> Iterator[Block]:
    """The blocks of a text that begins with a new one. The last is open unless `final`.

    `spaced` says that blank lines stood before the text.
    """
    start = end = position = 0
    begun = False
    gap = spaced  # before the block that is being read
    blank = spaced  # before the line that is being read
    fence = ""  # the characters that close the code being read
    alone = in_list = False  # the block ends with this line; it is a list item
    for line in text.split("\n"):
        line_start, line_end = position, position + len(line)
        position = line_end + 1
        certain = final or position <= len(text) or _TELLING.match(line) is not None
        stripped = line.strip(" \t")
        if fence:
            end = line_end
            if stripped.startswith(fence) and stripped == fence[0] * len(stripped):
                fence, alone = "", not in_list and (final or position <= len(text))
            continue
        if not stripped:
            blank = True
            continue
        opening = _FENCE.match(line)
        rule = _RULE.match(line)
        single = rule or _HEADING.match(line)
        item = None if rule else _ITEM.match(line)
        cuts = (blank or single or item or opening) and not (in_list and _INDENTED.match(line))
        if begun and (alone or (cuts and certain)):
            yield Block(start, end, gap)
            begun = False
        if not begun:
            begun, start, gap = True, line_start, blank
            in_list = item is not None
        end, blank = line_end, False
        alone = single is not None and start == line_start
        fence = opening.group(1) if opening else ""
    if begun:
        yield Block(start, end, gap)
