"""`chat-tui models`: what is listed, shown and fetched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from typer.testing import CliRunner

from chat_tui.cli import app
from engine.errors import EngineError
from tests.engine.test_families import SIZES
from tests.engine.tiny_models import build, write_gguf

NANOCHAT = Path(__file__).parent.parent / "data" / "nanochat"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["models", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def nanochats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base directory with one SFT model, of V3."""
    base = tmp_path / "nanochat"
    shutil.copytree(NANOCHAT / "V3" / "chatsft_checkpoints", base / "chatsft_checkpoints")
    shutil.copytree(NANOCHAT / "V3" / "tokenizer", base / "tokenizer")
    monkeypatch.setenv("NANOCHAT_BASE_DIR", str(base))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return base


def test_named_models_are_listed_with_where_they_are(nanochats: Path) -> None:
    documents = json.loads(run("list", "--json"))["models"]
    named = {document["name"]: document for document in documents}
    assert set(named) == {"smollm2", "nanochat:sft/d4"}
    assert named["nanochat:sft/d4"]["path"].endswith("d4/model_000123.pt")
    assert named["smollm2"]["bytes"] == 98_362_432
    assert "nanochat:sft/d4" in run("list")
    assert run() == run("list")


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['chat-tui', 'models', 'list']\n"
        "from chat_tui.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'torch', 'numpy', 'textual', 'huggingface_hub'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_show_says_everything_that_was_assumed(nanochats: Path) -> None:
    text = run("show", "nanochat", "--device", "cpu")
    for label in ("family", "parameters", "heads", "context", "vocabulary", "weights", "KV cache"):
        assert f"\n{label} " in text
    assert "nanochat V3 (it has residual scales, value gates over 32 channels, a" in text
    assert "Taken for V3 (softcap 15)" in text
    assert "<|assistant_end|>" in text
    document = json.loads(run("show", "nanochat", "--json", "--assume", "softcap=20"))
    assert document["variant"] == "V4"
    assert document["tool_dialect"] == document["chat_format"] == "nanochat"
    assert document["stop_tokens"] == ["<|bos|>", "<|assistant_end|>"]
    assert document["assumptions"] == ["softcap 20, as asked."]


def test_pull_says_where_the_model_lies(smollm2_path: Path) -> None:
    document = json.loads(run("pull", "smollm2", "--json"))
    assert Path(document["path"]).name == smollm2_path.name
    assert run("pull", str(smollm2_path)).strip() == str(smollm2_path)


def test_convert_writes_what_can_be_shown(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES)
    write_gguf(build(config), tmp_path / "model.gguf", "llama")
    folder = str(tmp_path / "out")
    assert run("convert", str(tmp_path / "model.gguf"), folder).strip() == folder
    shown = json.loads(run("show", folder, "--json", "--device", "cpu"))
    assert (shown["family"], shown["dtype"]) == ("llama", "BF16")
    with pytest.raises(EngineError, match="nothing is overwritten"):
        run("convert", str(tmp_path / "model.gguf"), folder)
    refused = CliRunner().invoke(app, ["models", "convert", "smollm2", "x", "--to", "gguf"])
    assert refused.exit_code == 2
    assert "written as safetensors" in refused.stderr


def test_what_does_not_exist_is_said_in_one_line() -> None:
    with pytest.raises(EngineError, match="There is no model 'nosuch'"):
        run("show", "nosuch")
