"""Where nanochat checkpoints lie on disk, and what `--model` may say to name one.

    locate("nanochat")                 the SFT model of the largest depth, its last step
    locate("nanochat:base/d20")        the last step of that one
    locate("nanochat:rl/d20@650")      model_000650.pt of it
    locate("runs/d12")                 the last step in a directory of checkpoints
    locate("runs/d12/model_000650.pt")
    locate("org/name")                 None: not of this kind

Only names are looked at, nothing is opened and torch is not imported: listing models stays cheap.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ModelFileError

SOURCES = {
    "sft": "chatsft_checkpoints",
    "rl": "chatrl_checkpoints",
    "mid": "mid_checkpoints",
    "base": "base_checkpoints",
}
"""nanochat's stages of training and their folders; plain `nanochat` takes the first that has a
model, and nanochat's own chat begins with SFT too."""

_NAME = re.compile(
    r"nanochat(?::(?P<source>[a-z]+)(?:/(?P<tag>[^/\\@]+))?)?(?:@(?P<step>\d{1,12}))?"
)
_MODEL = re.compile(r"model_(\d{1,12})\.pt")
_DEPTH = re.compile(r"d(\d{1,6})")


def base_directory() -> Path:
    """`NANOCHAT_BASE_DIR`, as nanochat itself takes it."""
    named = os.environ.get("NANOCHAT_BASE_DIR")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "nanochat"


def locate(name: str) -> Path | None:
    """The `model_<step>.pt` that `name` means; None where it names something else.

    Raises:
        ModelFileError: it names a nanochat checkpoint, and there is none.
    """
    if name == "nanochat" or name.startswith(("nanochat:", "nanochat@")):
        return _named(name)
    path = Path(name).expanduser()
    if path.suffix == ".pt":
        if not path.is_file():
            raise ModelFileError(f"{path}: there is no such file.")
        return path
    steps = _steps(path) or next((_steps(tag) for tag in _tags(path)), {})
    return steps[max(steps)] if steps else None


def names() -> list[str]:
    """A name for each model under the base directory that `locate` takes: "nanochat:sft/d20"."""
    base = base_directory()
    return [
        f"nanochat:{source}/{tag.name}"
        for source, folder in SOURCES.items()
        for tag in _tags(base / folder)
    ]


def source_of(model: Path) -> str | None:
    """The stage of training that made a checkpoint, told by its folder: a key of `SOURCES`."""
    folder = model.resolve().parent.parent.name
    return next((source for source, name in SOURCES.items() if name == folder), None)


def meta_path(model: Path) -> Path:
    """The `meta_<step>.json` beside a `model_<step>.pt`.

    Raises:
        ModelFileError: the model is not called so, or there is no such file.
    """
    match = _MODEL.fullmatch(model.name)
    if match is None:
        raise ModelFileError(
            f"{model}: a nanochat checkpoint is called model_<step>.pt and has meta_<step>.json "
            "beside it; give it that name."
        )
    meta = model.with_name(f"meta_{match[1]}.json")
    if not meta.is_file():
        raise ModelFileError(
            f"{model}: {meta.name} is missing beside it; without it the sizes are not known. "
            "Copy it from where the model was trained."
        )
    return meta


def tokenizer_path(model: Path) -> Path:
    """The `tokenizer.pkl` that belongs to a checkpoint: beside it, one level up, or under the base
    directory that it lies in or that is set.

    Raises:
        ModelFileError: it is in none of these places.
    """
    folder = model.resolve().parent
    # Also where the model is a link: the hub client's cache is made of those.
    places = [model.absolute().parent, model.absolute().parent.parent, folder, folder.parent]
    if source_of(model):
        places.append(folder.parent.parent)
    places.append(base_directory())
    for place in places:
        for candidate in (place / "tokenizer.pkl", place / "tokenizer" / "tokenizer.pkl"):
            if candidate.is_file():
                return candidate
    raise ModelFileError(
        f"{model}: its tokenizer.pkl is neither beside it, nor one level up, nor in "
        f"{base_directory() / 'tokenizer'}; copy it from where the model was trained."
    )


def _named(name: str) -> Path:
    match = _NAME.fullmatch(name)
    source = match["source"] if match else None
    if match is None or (source is not None and source not in SOURCES):
        raise ModelFileError(
            f"{name!r} is not a nanochat model: write nanochat, nanochat:sft, nanochat:base/d20 or "
            f"nanochat:rl/d20@650 (stages: {', '.join(SOURCES)})."
        )
    base = base_directory()
    for stage in [source] if source else SOURCES:
        folder = base / SOURCES[stage]
        tags = [folder / match["tag"]] if match["tag"] else _tags(folder)
        for tag in tags:
            steps = _steps(tag)
            if match["step"] is None and steps:
                return steps[max(steps)]
            if match["step"] is not None and int(match["step"]) in steps:
                return steps[int(match["step"])]
            if match["step"] is not None and steps:
                have = ", ".join(map(str, sorted(steps)[-5:]))
                raise ModelFileError(
                    f"{name}: {tag} has no step {int(match['step'])}; its last steps are {have}."
                )
    looked = base / (SOURCES[source] if source else "*_checkpoints") / (match["tag"] or "d<depth>")
    raise ModelFileError(
        f"{name}: there is no model_<step>.pt in {looked}; set NANOCHAT_BASE_DIR to where your "
        "checkpoints are, or give a path."
    )


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be read: {error.strerror}.") from error


def _steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by their step."""
    matches = ((_MODEL.fullmatch(path.name), path) for path in _entries(folder))
    return {int(match[1]): path for match, path in matches if match and path.is_file()}


def _tags(folder: Path) -> list[Path]:
    """The subfolders that hold checkpoints: by falling depth, then those with names of their own,
    the latest first."""
    tags = [path for path in _entries(folder) if path.is_dir() and _steps(path)]

    def order(tag: Path) -> tuple[int, float]:
        depth = _DEPTH.fullmatch(tag.name)
        return (int(depth[1]) if depth else -1, tag.stat().st_mtime)

    return sorted(tags, key=order, reverse=True)
