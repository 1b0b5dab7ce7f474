"""Preferences as TRL takes them: its own checks, on what `datasets` makes of the exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chat_tui.export import write
from chat_tui.session import Session
from tests.chat_tui.talking import Talk

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl.data_utils", reason="TRL is in the test extra")

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TURNS = (
    ("What is red? ∂", ("The rose", "A fox", "Fire"), 1),
    ("And blue?", ("The sea", "[red]<|im_end|>", "A jay"), 0),
    ("Which is warmer?", ("Red", "Blue", "Neither"), 2),
)


def exported(kind: str, folder: Path, system: str | None = None) -> Any:
    """Three turns with a pick each, as `datasets` loads them."""
    talk = Talk()
    talk.chat.change("systems", (system,))
    talk.chat.change("samples", 3)
    for user, answers, pick in TURNS:
        talk.ask(user, *answers, pick=pick)
    path = folder / f"{kind}.jsonl"
    path.write_text(write(Session(conversation=talk.chat.conversation), kind), "utf-8")
    return datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(folder / "cache")
    )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Of which only the chat template counts."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_dpo_is_trls_conversational_preference_format(
    tmp_path: Path, tokenizer: Any, system: str | None
) -> None:
    rows = exported("dpo", tmp_path, system)
    assert len(rows) == 6
    lead = f"<system>{system}</>" if system else ""
    for row in rows:
        for name in ("prompt", "chosen", "rejected"):
            assert trl.is_conversational({name: row[name]})
        assert trl.maybe_extract_prompt(row) == row  # the prompt is explicit already
        text = trl.maybe_apply_chat_template(row, tokenizer)
        assert text["prompt"].startswith(f"{lead}<user>What is red? ∂</>")
        assert text["prompt"].endswith("</><assistant>")
    last = trl.maybe_apply_chat_template(rows[5], tokenizer)
    assert last["prompt"] == (
        f"{lead}<user>What is red? ∂</><assistant>A fox</><user>And blue?</>"
        "<assistant>The sea</><user>Which is warmer?</><assistant>"
    )
    assert (last["chosen"], last["rejected"]) == ("Neither</>", "Blue</>")


def test_kto_is_trls_unpaired_preference_format(tmp_path: Path, tokenizer: Any) -> None:
    rows = exported("kto", tmp_path)
    assert sum(rows["label"]) == 3
    assert rows.features["label"].dtype == "bool"
    for row in rows:
        assert trl.is_conversational({"completion": row["completion"]})
        text = trl.maybe_apply_chat_template(row, tokenizer)
        assert text["completion"] == f"{row['completion'][0]['content']}</>"
        assert text["label"] is row["label"]
    # TRL itself makes the same answers out of the pairs.
    pairs = trl.unpair_preference_dataset(exported("dpo", tmp_path))
    assert {"prompt", "completion", "label"} <= set(pairs.column_names)

    def said(rows: Any) -> set[tuple[str, str, bool]]:
        return {(str(r["prompt"]), r["completion"][0]["content"], r["label"]) for r in rows}

    assert said(pairs) == said(rows)
