"""Files that are made: whole, their owner's alone, and never in the place of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_tui.new_file import NotWrittenError, write_new


def test_it_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    write_new(path, "Grüße\n")
    assert path.read_bytes() == "Grüße\n".encode()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotWrittenError, match="exists already"):
        write_new(path, "other")
    assert path.read_bytes() == "Grüße\n".encode()


@pytest.mark.parametrize(
    ("name", "text"), [("none/talk.md", ""), ("a\0b", ""), ("half.md", "x" * 100_000 + "\ud800")]
)
def test_what_cannot_be_written_leaves_nothing_behind(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(NotWrittenError, match="cannot be written") as error:
        write_new(tmp_path / name, text)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
