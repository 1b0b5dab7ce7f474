"""What a model, a file or a paste says is text, never terminal control.

`sanitise(text)` makes every character harmless and, where it would be invisible, visible: ESC
becomes `␛`, a bidi override becomes `⟨202E⟩`. It maps character by character, so a sequence that
arrives in two halves is as harmless as one that arrives whole. Console markup (`[red]`) needs no
care: nothing in this package parses it.
"""

from __future__ import annotations

import re
from functools import cache

TAB_SIZE = 4

_NUMBERED = (
    (0x80, 0x9F),  # C1: U+009B alone is a CSI
    (0xAD, 0xAD),  # soft hyphen
    (0x061C, 0x061C),  # Arabic letter mark
    (0x180E, 0x180E),  # Mongolian vowel separator
    (0x200B, 0x200B),  # zero-width space
    (0x200E, 0x200F),  # left-to-right and right-to-left marks
    (0x2028, 0x202E),  # line and paragraph separators, bidi embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, bidi isolates
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFF9, 0xFFFB),  # interlinear annotation
    (0xE0000, 0xE007F),  # tag characters: text that hides
)
_CONTROLS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "␡",
}
_SHOWN: dict[int, str] = {
    **_CONTROLS,
    **{code: f"⟨{code:04X}⟩" for a, b in _NUMBERED for code in range(a, b + 1)},
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),  # not encodable
}
_HARMLESS = re.compile(r"[\n\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027]*")
_PRIVATE_PLANES = re.compile("[\U000f0000-\U0010ffff]")
_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
_TALL_STACK = re.compile(f"({_MARKS}{{4}}){_MARKS}+")
# A joiner counts as nothing and hides its neighbour from the measure of cells (`rich.cells`):
# right between emoji, wrong everywhere else.
_EMOJI = "\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
_STRAY_JOINER = re.compile(f"(?<![{_EMOJI}])\u200d|\u200d(?![{_EMOJI}])")


def sanitise(text: str) -> str:
    """`text` with CRLF as a newline, tabs expanded and nothing in it that a terminal obeys."""
    if _HARMLESS.fullmatch(text):
        return text
    text = text.replace("\r\n", "\n").translate(_SHOWN)
    text = _STRAY_JOINER.sub("\u200c", text)
    text = _PRIVATE_PLANES.sub("\ufffd", _TALL_STACK.sub(r"\1", text))
    return text.expandtabs(TAB_SIZE)


def neutral(text: str) -> str:
    """One line of `text`, as harmless, character for character and cell for cell: for a text that
    is being edited, where nothing may move. What has no width stays invisible."""
    return text if _HARMLESS.fullmatch(text) else text.translate(_neutral())


@cache
def _neutral() -> dict[int, str]:
    from rich.cells import get_character_cell_size

    codes = [code for code in _SHOWN if chr(code) not in "\n\t"]
    return {c: "\ufffd" if get_character_cell_size(chr(c)) else "\u200c" for c in codes}


def parseable(text: str) -> str:
    """`text`, character for character, as a Markdown parser may read it.

    CRLF ends a line and a lone CR does not; the private planes 15 and 16, whose characters stand
    for insets in this package, are empty. Offsets into the text stay valid.
    """
    if _HARMLESS.fullmatch(text):
        return text
    return _PRIVATE_PLANES.sub("\ufffd", text.replace("\r\n", " \n").translate(_CONTROLS))
