"""What a model, a file or a paste says is text, never terminal control.

`sanitise(text)` makes every character harmless and, where it would be invisible, visible: ESC
becomes `␛`, a bidi override becomes `⟨202E⟩`. It maps character by character, so a sequence that
arrives in two halves is as harmless as one that arrives whole. Console markup (`[red]`) needs no
care here: nothing in this package parses markup.
"""

from __future__ import annotations

import re

TAB_SIZE = 4

_SHOWN_AS_NUMBER = (
    (0x80, 0x9F),  # C1: 0x9B is a one-character CSI
    (0xAD, 0xAD),  # soft hyphen
    (0x061C, 0x061C),  # Arabic letter mark
    (0x180E, 0x180E),
    (0x200B, 0x200B),  # zero-width space
    (0x200E, 0x200F),  # left-to-right and right-to-left marks
    (0x2028, 0x202E),  # line and paragraph separators, bidi embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, bidi isolates
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE007F),  # tag characters: text that hides
)
_TABLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **{code: f"⟨{code:04X}⟩" for a, b in _SHOWN_AS_NUMBER for code in range(a, b + 1)},
    # Lone surrogates cannot be encoded at all; private planes are this package's placeholders.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    **dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd"),
}
_PLAIN = re.compile(r"[\n\x20-\x7e\xa0-\xac\xae-\u0300\u0370-\u0590]*")
_PRIVATE_PLANES = re.compile("[\U000f0000-\U0010ffff]")
_STACK = re.compile(
    r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{4})"
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]+"
)


def sanitise(text: str) -> str:
    """`text` with CRLF as a newline, tabs expanded and nothing in it that a terminal obeys."""
    if _PLAIN.fullmatch(text):
        return text
    text = text.replace("\r\n", "\n").translate(_TABLE)
    text = _PRIVATE_PLANES.sub("\ufffd", text)
    return _STACK.sub(r"\1", text).expandtabs(TAB_SIZE)
