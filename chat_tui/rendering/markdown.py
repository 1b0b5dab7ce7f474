"""One block of Markdown as a box of styled runs.

    box = markdown(source, insets, palette, growing=True)
    lines = box.lines(width)

Parsed by markdown-it with what models mean rather than all that CommonMark allows: a newline is a
newline, HTML and entities are text, a line of dashes is a rule and never makes a heading of the
paragraph above, and the `*` of `3*4*5` and the `\\(` of a formula are what they are. Nothing of the
source is lost but the markers that became styles; what cannot be drawn so is drawn as plain text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import cache, partial

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.tree import SyntaxTreeNode
from rich.style import Style

from chat_tui.rendering.blocks import blocks
from chat_tui.rendering.boxes import BLANK, Box, Drawn, Framed, Ruled, Stack, Words
from chat_tui.rendering.code import code_block
from chat_tui.rendering.insets import Insets
from chat_tui.rendering.palette import Palette
from chat_tui.rendering.table import table
from chat_tui.rendering.wrap import Run

log = logging.getLogger(__name__)

_BULLETS = "•◦▪"
_INDENT = re.compile(r"(?<=\n) +(?=\S)")
_LITERAL = re.compile(
    r"\\[()\[\]]"  # TeX's delimiters
    r"|(?<=[\w)])\*(?=[\w(])"  # a product
    r"|(?<=[\d)])\*\*(?=[\d(])"  # a power
)


def markdown(source: str, insets: Insets, palette: Palette, *, growing: bool = False) -> Box:
    """A block as it is drawn. `growing`: there will be more of it."""
    try:
        tree = SyntaxTreeNode(_parser().parse(source))
        return _Drawing(source, insets, palette, growing).blocks(tree.children)
    except Exception:
        log.exception("drawn as plain text: %r", source)
        return Words(list(insets.expand(source, palette.text, palette)))


def code_blocks(text: str) -> list[str]:
    """The code blocks in a text, in order, each without its last newline: pasted into a shell, that
    would run it."""
    found: list[str] = []
    for block in blocks(text, final=True):
        tokens = _parser().parse(text[block.start : block.end])
        codes = (token.content for token in tokens if token.type in ("fence", "code_block"))
        found += [code.removesuffix("\n") for code in codes]
    return found


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["lheading", "reference", "entity", "html_block", "html_inline"])
    parser.inline.ruler.before("escape", "literal", _literal)
    parser.core.ruler.before("inline", "indents", _keep_indents)
    # Shown, not followed: an address is printed as it was written.
    setattr(parser, "normalizeLink", str)  # noqa: B010
    setattr(parser, "normalizeLinkText", str)  # noqa: B010
    return parser


def _keep_indents(state: StateCore) -> None:
    """Markdown drops the spaces that a paragraph's lines begin with. Small models write code
    without a fence, and these spaces are then what it means."""
    for token in state.tokens:
        if token.type == "inline":
            token.content = _INDENT.sub(lambda spaces: "\xa0" * len(spaces[0]), token.content)


def _literal(state: StateInline, silent: bool) -> bool:
    match = _LITERAL.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.pending += match.group()
    state.pos = match.end()
    return True


class _Drawing:
    """Walks one block's tree. Block methods give boxes, inline ones runs."""

    def __init__(self, source: str, insets: Insets, palette: Palette, growing: bool) -> None:
        self.lines = source.split("\n")
        self.insets = insets
        self.palette = palette
        self.growing = growing
        self.depth = 0

    # Blocks

    def blocks(self, nodes: Sequence[SyntaxTreeNode], base: Style | None = None) -> Box:
        """Blocks one under the other, with a blank line where the source has one."""
        boxes: list[Box] = []
        for node in nodes:
            if boxes and self._is_spaced(node):
                boxes.append(BLANK)
            boxes.append(self._block(node, base or self.palette.text))
        return boxes[0] if len(boxes) == 1 else Stack(boxes)

    def _is_spaced(self, node: SyntaxTreeNode) -> bool:
        first = node.map[0] if node.map else 0
        return first > 0 and not self.lines[first - 1].strip("> \t")

    def _block(self, node: SyntaxTreeNode, base: Style) -> Box:
        palette = self.palette
        match node.type:
            case "paragraph":
                return self._text(node, base)
            case "heading":
                level = min(int(node.tag[1:]), len(palette.headings))
                return self._text(node, base + palette.headings[level - 1])
            case "bullet_list" | "ordered_list":
                return self._list(node, base)
            case "blockquote":
                bar: Run = ("▎ ", palette.bar)
                return Framed(bar, bar, self.blocks(node.children, base + palette.quote), lead="")
            case "fence" | "code_block":
                language = node.info.strip() if node.type == "fence" else ""
                return code_block(
                    node.content, language, self.insets, palette, growing=self.growing
                )
            case "hr":
                return Ruled(palette.rule)
            case "table":
                return self._table(node, base)
            case _:
                return self._plain(node.content, base)

    def _text(self, node: SyntaxTreeNode, base: Style) -> Words:
        return Words([run for child in node.children for run in self._inline(child, base)])

    def _plain(self, text: str, base: Style) -> Words:
        return Words(list(self.insets.expand(text, base, self.palette)))

    def _list(self, node: SyntaxTreeNode, base: Style) -> Box:
        boxes: list[Box] = []
        bullet = _BULLETS[self.depth % len(_BULLETS)]
        self.depth += 1
        for item in node.children:
            marker = f"{item.info}{item.markup} " if item.info else f"{bullet} "
            first: Run = (marker, self.palette.bullet)
            rest: Run = (" " * len(marker), self.palette.bullet)
            if boxes and self._is_spaced(item):
                boxes.append(BLANK)
            boxes.append(Framed(first, rest, self.blocks(item.children, base)))
        self.depth -= 1
        return boxes[0] if len(boxes) == 1 else Stack(boxes)

    def _table(self, node: SyntaxTreeNode, base: Style) -> Box:
        head, *rows = (row for part in node.children for row in part.children)
        source = self.lines[slice(*node.map)] if node.map else []
        if any(len(escapedSplit(line.strip().strip("|"))) > len(head.children) for line in source):
            # Markdown drops the cells that have no column.
            return self._plain("\n".join(source), base)
        aligned = [str(cell.attrs.get("style", "left")) for cell in head.children]
        cells = [self._cell(cell, base + self.palette.table_head) for cell in head.children]
        below = [[self._cell(cell, base) for cell in row.children] for row in rows]
        aligned = [align.removeprefix("text-align:") for align in aligned]
        return Drawn(partial(table, cells, below, aligned, self.palette))

    def _cell(self, node: SyntaxTreeNode, base: Style) -> list[Run]:
        return [run for child in node.children for run in self._inline(child, base)]

    # Inline

    def _inline(self, node: SyntaxTreeNode, style: Style) -> Iterator[Run]:
        palette = self.palette
        match node.type:
            case "text":
                yield from self.insets.expand(node.content, style, palette)
            case "softbreak" | "hardbreak":
                yield "\n", style
            case "code_inline":
                yield from self.insets.expand(node.content, style + palette.code, palette)
            case "link" | "image":
                yield from self._link(node, style)
            case kind:
                changes = {"strong": palette.strong, "em": palette.emphasis, "s": palette.strike}
                style += changes.get(kind, Style.null())
                if not node.children:
                    yield from self.insets.expand(node.content, style, palette)
                for child in node.children:
                    yield from self._inline(child, style)

    def _link(self, node: SyntaxTreeNode, style: Style) -> Iterator[Run]:
        shown = [run for c in node.children for run in self._inline(c, style + self.palette.link)]
        yield from shown
        address = str(node.attrs.get("href") or node.attrs.get("src") or "")
        if title := node.attrs.get("title"):
            address += f' "{title}"'
        if address and address.removeprefix("mailto:") != "".join(text for text, _ in shown):
            yield from self.insets.expand(f" ({address})", style + self.palette.muted, self.palette)
