"""Models on the Hugging Face hub: what `--model` may say to name one, and how it arrives.

    path = resolve("org/name", progress)                 # also hf:org/name
    path = resolve("hf:org/name/file.gguf", progress)    # one file of it
    path = find("org/name")                              # only if it is here; no network
    for name, path in found(): ...                       # all that is here

`huggingface_hub` fetches, in a process of its own, into its own cache, which other programs share.
What is there whole is taken as it is, without asking the hub: starts are quick and need no network;
`chat-tui models pull` asks again. Of a repository only a model's files are fetched: safetensors
with what belongs to them, else one GGUF file, else the last checkpoint of a nanochat. Importing
this module is cheap.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine.errors import DownloadError, ModelFileError
from engine.loading import nanochat_paths
from engine.loading.download import Progress, bytes_below, run_watched

_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_NAME = re.compile(
    rf"(?P<hf>hf:)?(?P<repo>{_PART}/{_PART})(?:/(?P<file>[^@\0]+\.gguf))?(?:@(?P<revision>[\w./-]+))?"
)
_LOCAL_ENDING = re.compile(r".*\.(gguf|pt|safetensors|json|bin)", re.IGNORECASE)

BESIDE_SAFETENSORS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.pkl",
    "model.safetensors.index.json",
)
QUANTISED = ("Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0", "F16", "BF16")
"""Which of several GGUF files is taken, by what is in its name: the engine is fastest with 4 bits,
and Q4_K_M is the best of those."""

_CHECKPOINT = re.compile(r"(?P<folder>(?:[^/]+/)*)model_(?P<step>\d{1,12})\.pt")

# Both programs write what they found to a file, so that whatever else is printed does no harm.
_PROGRAM = """
import json, sys
from pathlib import Path
answer, repo, revision, *files = sys.argv[1:]
try:
    if files:
        from huggingface_hub import hf_hub_download
        paths = [hf_hub_download(repo, file, revision=revision) for file in files]
        found = paths[0].removesuffix(files[0])
    else:
        from huggingface_hub import HfApi
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=20)
        files = {file.rfilename: file.size or 0 for file in info.siblings}
        found = {"revision": info.sha, "files": files}
except Exception as error:
    reasons = {
        "RepositoryNotFoundError": "there is no such repository, or it is private: `hf auth login`",
        "GatedRepoError": "its licence must be accepted on its page first, then `hf auth login`",
        "RevisionNotFoundError": "it has no such revision",
        "EntryNotFoundError": "it has no such file",
        "RemoteEntryNotFoundError": "it has no such file",
    }
    reason = reasons.get(type(error).__name__)
    if reason is None:
        cause = error.__cause__ or error
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    sys.exit("ERROR: " + reason)
Path(answer).write_text(json.dumps(found))
"""


@dataclass(frozen=True)
class HubName:
    """What a name says: `file` is a GGUF file in the repository, `explicit` that it began with
    `hf:`."""

    repo: str
    file: str | None
    revision: str
    explicit: bool


def parse(name: str) -> HubName | None:
    """The repository that `name` means; None where it cannot be one."""
    match = _NAME.fullmatch(name)
    if match is None:
        if name.startswith("hf:"):
            raise ModelFileError(
                f"{name!r:.200} is no model on the hub: write hf:org/name or hf:org/name/file.gguf."
            )
        return None
    explicit = match["hf"] is not None
    # "models/x.gguf" is a file that is not there, not a repository.
    if not explicit and match["file"] is None and _LOCAL_ENDING.fullmatch(match["repo"]):
        return None
    if match["file"] and ".." in PurePosixPath(match["file"]).parts:
        return None
    return HubName(match["repo"], match["file"], match["revision"] or "main", explicit)


def cache_folder() -> Path:
    """The hub client's cache, found as it finds it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if named := os.environ.get(variable):
            return Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    if home is None:
        base = os.environ.get("XDG_CACHE_HOME")
        home = str((Path(base) if base else Path.home() / ".cache") / "huggingface")
    return Path(home).expanduser() / "hub"


def find(name: str) -> Path | None:
    """The folder or GGUF file of a model that lies whole in the cache, else None."""
    wanted = parse(name)
    if wanted is None:
        return None
    folder = _snapshot(wanted)
    return None if folder is None else _model_in(folder, wanted.file)


def found() -> Iterator[tuple[str, Path]]:
    """The models in the cache, by the names that `find` takes."""
    try:
        folders = sorted(cache_folder().glob("models--*--*"))
    except OSError:
        return
    for folder in folders:
        repo = "/".join(folder.name.split("--")[1:3])
        if (path := find(f"hf:{repo}")) is not None:
            yield repo, path


def resolve(name: str, progress: Progress) -> Path | None:
    """The folder or GGUF file that `name` means, fetched where it is not in the cache; None where
    it cannot be a repository's name.

    Raises:
        ModelFileError: the repository has no model of a kind that is supported.
        DownloadError: it could not be fetched.
    """
    wanted = parse(name)
    if wanted is None:
        return None
    return find(name) or _fetched(wanted, progress)


def pull(name: str, progress: Progress) -> Path | None:
    """As `resolve`, but asks the hub whether there is something newer."""
    wanted = parse(name)
    return None if wanted is None else _fetched(wanted, progress)


def _fetched(wanted: HubName, progress: Progress) -> Path:
    with tempfile.TemporaryDirectory(prefix="chat-tui-") as temporary:
        folder = Path(temporary)
        try:
            listing = _run(folder / "list", wanted.repo, wanted.revision, [], 0, progress)
            sizes: dict[str, int] = listing["files"]
            files = files_of(sizes, wanted)
            total = sum(sizes[file] for file in files)
            # By its commit, so that all files are of one state.
            answer = _run(folder / "get", wanted.repo, listing["revision"], files, total, progress)
        except DownloadError as error:
            raise DownloadError(
                f"{wanted.repo} could not be fetched from the Hugging Face hub ({error})."
            ) from None
    _note_revision(wanted, listing["revision"])
    path = _model_in(Path(answer), wanted.file)
    if path is None:
        raise DownloadError(f"{wanted.repo}: the hub client did not leave all of its files.")
    return path


def _run(
    folder: Path, repo: str, revision: str, files: Sequence[str], total: int, progress: Progress
) -> Any:
    folder.mkdir()
    answer = folder / "answer.json"
    cache = cache_folder() / f"models--{repo.replace('/', '--')}" / "blobs"
    before = bytes_below(cache)
    what = f"Downloading {repo}, {total / 1e6:.0f} MB" if files else f"Looking up {repo}"
    command = [sys.executable, "-c", _PROGRAM, str(answer), repo, revision, *files]
    run_watched(command, folder, lambda: bytes_below(cache) - before, what, total, progress)
    return json.loads(answer.read_text())


def files_of(sizes: Mapping[str, int], wanted: HubName) -> list[str]:
    """Which files of a repository make up the model.

    Raises:
        ModelFileError: it has none of a kind that is supported, or not the one that was named.
    """
    gguf = [file for file in sizes if file.lower().endswith(".gguf")]
    if wanted.file is not None:
        if wanted.file not in sizes:
            there = f"; it has {', '.join(sorted(gguf)[:8])}" if gguf else ""
            raise ModelFileError(f"{wanted.repo} has no file {wanted.file}{there}.")
        return [wanted.file]
    tensors = _safetensors(sizes)
    if tensors and "config.json" in sizes:
        return [*(file for file in BESIDE_SAFETENSORS if file in sizes), *tensors]
    if gguf:
        return [best_gguf(gguf)]
    steps = {file: match for file in sizes if (match := _CHECKPOINT.fullmatch(file))}
    if steps:
        last = max(steps, key=lambda file: int(steps[file]["step"]))
        prefix, step = steps[last]["folder"], steps[last]["step"]
        beside = (
            *(f"{prefix}meta_{step}.json", f"{prefix}tokenizer.pkl"),
            *("tokenizer.pkl", "tokenizer/tokenizer.pkl"),
        )
        return [last, *dict.fromkeys(file for file in beside if file in sizes)]
    raise ModelFileError(
        f"{wanted.repo} holds no model of a kind that is supported: safetensors with config.json, "
        "GGUF, or a nanochat checkpoint."
    )


def _safetensors(files: Iterable[str]) -> list[str]:
    top = sorted(file for file in files if file.endswith(".safetensors") and "/" not in file)
    if "model.safetensors" in top:
        return ["model.safetensors"]
    shards = [file for file in top if re.fullmatch(r"model-\d+-of-\d+\.safetensors", file)]
    return shards or top


def best_gguf(files: Sequence[str]) -> str:
    """The one of several GGUF files that is taken where none is named."""

    def order(file: str) -> tuple[int, str]:
        name = file.upper()
        ranks = (rank for rank, kind in enumerate(QUANTISED) if kind in name)
        # Parts of a split file, and the vision parts of a model, are the last to be taken.
        unfit = len(QUANTISED) * ("-OF-" in name or "MMPROJ" in name)
        return unfit + next(ranks, len(QUANTISED)), file

    return min(files, key=order)


def _repository(wanted: HubName) -> Path:
    return cache_folder() / f"models--{wanted.repo.replace('/', '--')}"


def _snapshot(wanted: HubName) -> Path | None:
    folder = _repository(wanted)
    try:
        commit = (folder / "refs" / wanted.revision).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = wanted.revision
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _note_revision(wanted: HubName, commit: str) -> None:
    """Files were fetched by their commit; remember what name it goes by, as the hub client does."""
    note = _repository(wanted) / "refs" / wanted.revision
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(commit)
    except OSError:
        pass  # then the hub is asked again the next time


def _model_in(folder: Path, file: str | None) -> Path | None:
    """The model in a snapshot, where it is whole."""
    if file is not None:
        path = folder / file
        return path if path.is_file() else None
    if (folder / "config.json").is_file():
        from engine.loading.model_folder import safetensors_files

        try:
            if safetensors_files(folder):
                return folder
        except ModelFileError:
            return None
    gguf = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]
    if gguf:
        return folder / best_gguf(gguf)
    models = [path for path in folder.rglob("model_*.pt") if _CHECKPOINT.fullmatch(path.name)]
    if models:
        try:
            return nanochat_paths.locate(str(max(models, key=lambda path: path.name)))
        except ModelFileError:
            return None
    return None
