"""Models on the hub: with the real hub client against a hub on this machine, never the network."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import transformers

from engine import load_model
from engine.errors import DownloadError, ModelFileError
from engine.loading import catalog, hub
from engine.loading.hub import best_gguf, files_of, parse
from tests.engine.test_families import SIZES
from tests.engine.tiny_models import build, write_gguf, write_tokenizer

NANOCHAT = Path(__file__).parent.parent / "data" / "nanochat" / "V0"


class Hub(ThreadingHTTPServer):
    """Serves the folder of each repository; `asked` are the paths that were asked for."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), Visit)
        self.repos = repos
        self.asked: list[str] = []
        self.commit = "a" * 40


class Visit(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.asked.append(path)
        if path.startswith("api/models/"):
            repo = "/".join(path.split("/")[2:4])
            folder = self.server.repos.get(repo)
            if folder is None:
                return self._refuse()
            files = [file for file in folder.rglob("*") if file.is_file()]
            siblings = [
                {"rfilename": file.relative_to(folder).as_posix(), "size": file.stat().st_size}
                for file in files
            ]
            content = json.dumps({"id": repo, "sha": self.server.commit, "siblings": siblings})
            return self._send(content.encode(), "application/json", body)
        repo, _, rest = path.partition("/resolve/")
        file = self.server.repos.get(repo, Path("none")) / rest.partition("/")[2]
        if not file.is_file():
            return self._refuse()
        return self._send(file.read_bytes(), "application/octet-stream", body)

    def _refuse(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, kind: str, body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.server.commit)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tmp_path / "tensors"
    folder.mkdir()
    build(transformers.LlamaConfig(**SIZES)).save_pretrained(folder)
    write_tokenizer(folder)
    (folder / "pytorch_model.bin").write_bytes(b"code")
    quantised = tmp_path / "quantised"
    quantised.mkdir()
    model = build(transformers.LlamaConfig(**SIZES))
    write_gguf(model, quantised / "tiny.Q4_K_M.gguf", "llama")
    write_gguf(model, quantised / "tiny.Q2_K.gguf", "llama")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "README.md").write_text("hello")
    nanochat = tmp_path / "nanochat"
    shutil.copytree(NANOCHAT / "chatsft_checkpoints" / "d4", nanochat)
    shutil.copy(NANOCHAT / "tokenizer" / "tokenizer.pkl", nanochat)
    repos = {
        "some/tensors": folder,
        "some/quantised": quantised,
        "some/empty": empty,
        "some/nanochat": nanochat,
    }
    with Hub(repos) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path / "home"))
        yield server
        server.shutdown()


def silent(what: str, done: int, total: int) -> None:
    pass


def test_a_repository_is_fetched_once_and_then_found_without_a_network(server) -> None:
    lines: list[str] = []
    path = catalog.resolve("some/tensors", lambda what, done, total: lines.append(what))
    loaded = load_model("hf:some/tensors", device="cpu")
    assert loaded.info.family == "llama"
    assert loaded.info.path == str(path)
    assert any(line.startswith("Downloading some/tensors") for line in lines)
    assert not any(path.endswith("pytorch_model.bin") for path in server.asked)
    asked = len(server.asked)
    server.shutdown()
    assert hub.find("some/tensors") == path
    assert catalog.resolve("some/tensors", silent) == path
    assert len(server.asked) == asked
    assert list(hub.found()) == [("some/tensors", path)]


def test_the_best_file_or_the_named_one_is_fetched(server) -> None:
    best = catalog.resolve("hf:some/quantised", silent)
    assert best.name == "tiny.Q4_K_M.gguf"
    named = catalog.resolve("hf:some/quantised/tiny.Q2_K.gguf", silent)
    assert named.name == "tiny.Q2_K.gguf"
    assert load_model("hf:some/quantised/tiny.Q2_K.gguf", device="cpu").info.family == "llama"


def test_a_nanochat_is_found_with_its_meta_and_tokenizer(server) -> None:
    """In the client's cache they are links to files of other names."""
    path = catalog.resolve("some/nanochat", silent)
    assert path.name == "model_000123.pt"
    assert path.is_symlink()
    assert load_model("some/nanochat", device="cpu").info.variant == "V0"


def test_pulling_asks_for_what_is_new(server) -> None:
    old = hub.pull("some/quantised", silent)
    server.commit = "b" * 40
    assert catalog.resolve("some/quantised", silent) == old
    assert hub.pull("some/quantised", silent) != old
    assert hub.find("some/quantised") != old


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("some/empty", "holds no model of a kind that is supported"),
        ("some/missing", "there is no such repository"),
        ("hf:some/quantised/none.gguf", "has no file none.gguf; it has tiny.Q2_K.gguf"),
        ("hf:nonsense", "write hf:org/name"),
        ("hf:a/../b/x.gguf", "write hf:org/name"),
    ],
)
def test_what_cannot_be_had_ends_in_one_line(server, name: str, message: str) -> None:
    with pytest.raises((DownloadError, ModelFileError)) as caught:
        catalog.resolve(name, silent)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_download_that_was_cut_off_is_no_model(server) -> None:
    path = catalog.resolve("some/tensors", silent)
    (path / "model.safetensors").unlink()
    assert hub.find("some/tensors") is None
    assert catalog.resolve("some/tensors", silent) == path
    assert (path / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("name", "repo", "file"),
    [
        ("org/name", "org/name", None),
        ("hf:org/name", "org/name", None),
        ("hf:org/name@v1", "org/name", None),
        ("hf:org/name/sub/x.gguf", "org/name", "sub/x.gguf"),
        ("org/name/x.Q4_0.gguf", "org/name", "x.Q4_0.gguf"),
    ],
)
def test_names_of_repositories(name: str, repo: str, file: str | None) -> None:
    parsed = parse(name)
    assert parsed is not None
    assert (parsed.repo, parsed.file) == (repo, file)


@pytest.mark.parametrize(
    "name",
    [
        "smollm2",
        "/org/name",
        "~/name",
        "./a/b",
        "a/b/c",
        "models/x.gguf",
        "runs/model_1.pt",
        "",
        "a/",
    ],
)
def test_names_that_are_no_repositories(name: str) -> None:
    assert parse(name) is None


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["config.json", "model.safetensors", "x.gguf"], ["config.json", "model.safetensors"]),
        (
            ["config.json", "consolidated.safetensors", "model-00001-of-00001.safetensors"],
            ["config.json", "model-00001-of-00001.safetensors"],
        ),
        (["a.Q8_0.gguf", "a.Q4_0.gguf", "mmproj-a.Q4_0.gguf"], ["a.Q4_0.gguf"]),
        (
            ["d32/model_000100.pt", "d32/model_000650.pt", "d32/meta_000650.json", "tokenizer.pkl"],
            ["d32/model_000650.pt", "d32/meta_000650.json", "tokenizer.pkl"],
        ),
    ],
)
def test_only_the_files_of_a_model_are_fetched(files: list[str], chosen: list[str]) -> None:
    wanted: Any = parse("org/name")
    assert files_of(dict.fromkeys(files, 1), wanted) == chosen


def test_four_bits_are_the_first_choice() -> None:
    assert best_gguf(["m-F16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf"]) == "m-Q4_K_M.gguf"


def test_the_hub_is_quick_to_import() -> None:
    code = (
        "import sys, engine.loading.hub\n"
        "print({'torch', 'numpy', 'huggingface_hub'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
