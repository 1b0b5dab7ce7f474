"""A file of prompts is read, or it is said which lines of it are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_tui.prompts import PromptsError, read_prompts


def written(folder: Path, text: str | bytes, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


def said(*messages: str) -> list[dict[str, str]]:
    """Messages of user and assistant in turn."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(messages)]


def test_a_text_has_one_prompt_per_line(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffName a colour.\r\n\n  {wild} ∂ \n[1]", "prompts.txt")
    assert [prompt.text for prompt in read_prompts(path)] == ["Name a colour.", "{wild} ∂", "[1]"]


def test_json_lines_hold_a_text_or_messages_and_a_system_text(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        line(prompt="Two\nlines", id=7)
        + line(prompt="Blue?", system="Be brief.")
        + line(prompt=said("Hi", "Hello!", "Red?"))
        + line(prompt=[{"role": "system", "content": ""}, *said("Hi")]),
        "prompts.txt",  # known by its first line
    )
    prompts = [(prompt.text, prompt.history, prompt.system) for prompt in read_prompts(path)]
    assert prompts == [
        ("Two\nlines", (), None),
        ("Blue?", (), "Be brief."),
        ("Red?", (("Hi", "Hello!"),), None),
        ("Hi", (), ""),
    ]


def test_a_prompt_is_known_by_what_it_says_wherever_it_stands(tmp_path: Path) -> None:
    def keys(*lines: str) -> list[str]:
        path = written(tmp_path, "".join(lines))
        return [prompt.key for prompt in read_prompts(path)]

    one, two = line(prompt="one"), line(prompt="two", system="s")
    first = keys(one, two, one)
    assert len(set(first)) == 3
    assert keys(two, one, one) == [first[1], first[0], first[2]]
    assert keys(line(prompt="two"))[0] not in first
    assert keys(line(prompt=said("one"), note="new")) == first[:1]


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "is no JSON object"),
        (line(text="x"), 'has no "prompt"'),
        (line(prompt=3), "has a prompt that is no text"),
        (line(prompt="x", system=[1]), "has a system text that is no text"),
        (line(prompt=" "), "has an empty prompt"),
        (line(prompt=[]), "do not go from user to assistant"),
        (line(prompt=said("a", "b")), "do not go from user to assistant"),
        (line(prompt=said("a") * 2), "do not go from user to assistant"),
        (line(prompt=["a"]), 'has a message without a "role"'),
        (line(prompt=[{"role": "user", "content": [1]}]), "has a message that is no text"),
        (line(prompt=[{"role": "system", "content": "a"}, *said("b")], system="c"), "two system"),
        ('{"prompt": "\\ud800"}', "half a character"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_what_is_wrong(
    tmp_path: Path, bad: str, what: str
) -> None:
    path = written(tmp_path, line(prompt="good") + "\n" + bad)
    with pytest.raises(PromptsError, match=f"line 3 .*{what}") as error:
        read_prompts(path)
    assert "\n" not in str(error.value)


def test_all_bad_lines_are_named_and_very_many_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, line(prompt="good") + "{}\n" * 100)
    with pytest.raises(PromptsError) as error:
        read_prompts(path)
    assert 'line 6 has no "prompt", also bad: 7, 8' in str(error.value)
    assert str(error.value).endswith("56 and 45 more.")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no prompt in it"), (b"\n \n", "no prompt in it"), (b"a\n\xff\n", "line 2 is not")],
)
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(PromptsError, match=said):
        read_prompts(written(tmp_path, content, "prompts.txt"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(PromptsError, match="cannot be read"):
            read_prompts(path)
