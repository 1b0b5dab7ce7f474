"""What is made harmless, and what is left alone."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from chat_tui.rendering import sanitise


class TestSanitise:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("\x9b2J", "⟨009B⟩2J"),
            ("a\x00b\x7fc", "a␀b␡c"),
            ("abc\u202edcba\u202c", "abc⟨202E⟩dcba⟨202C⟩"),
            ("\u2066x\u2069", "⟨2066⟩x⟨2069⟩"),
            ("in\u200bvisible\ufeff", "in⟨200B⟩visible⟨FEFF⟩"),
            ("half \ud83d", "half \ufffd"),
            ("hidden \U000e0041", "hidden ⟨E0041⟩"),
            ("one\r\ntwo\rthree", "one\ntwo␍three"),
            ("a\tb", "a   b"),
        ],
    )
    def test_makes_control_visible(self, text: str, shown: str) -> None:
        assert sanitise(text) == shown

    @pytest.mark.parametrize(
        "text",
        ["[red]x[/] [/]", "naïve – “quotes”", "漢字かな", "👨‍👩‍👧 ❤️ 👍🏽 🇩🇪", "हिन्दी", "e\u0301"],
    )
    def test_leaves_text_alone(self, text: str) -> None:
        assert sanitise(text) == text

    def test_a_joiner_cannot_hide_a_letter_from_the_measure(self) -> None:
        assert cell_len(sanitise("a\u200db\u200dc")) == 3

    def test_a_tower_of_marks_is_cut(self) -> None:
        assert len(sanitise("a" + "\u0301" * 100)) == 5

    def test_twice_is_once(self) -> None:
        once = sanitise("\x1b[2J \u202e \t x\r\n")
        assert sanitise(once) == once
