"""The files of a model's folder as `transformers` writes it.

config = read_json(folder / "config.json")
settings = read_json(folder / "tokenizer_config.json", missing_is_empty=True)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelFileError

INDEX = "model.safetensors.index.json"

MAX_JSON = 16 << 20
"""Of a file with settings; tokenizer.json is not one."""


def read_json(path: Path, *, missing_is_empty: bool = False) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ModelFileError: it cannot be read, is too large or is no JSON object.
    """
    if missing_is_empty and not path.exists():
        return {}
    try:
        if path.stat().st_size > MAX_JSON:
            raise ModelFileError(f"{path} is larger than any such file; it is something else.")
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is no valid JSON; download it again.") from error
    if not isinstance(document, dict):
        raise ModelFileError(f"{path} is no JSON object; download it again.")
    return document


def read_text(path: Path) -> str | None:
    """The text in a file; None where there is none.

    Raises:
        ModelFileError: it cannot be read, is too large or is no text.
    """
    if not path.exists():
        return None
    try:
        if path.stat().st_size > MAX_JSON:
            raise ModelFileError(f"{path} is larger than any such file; it is something else.")
        return path.read_text("utf-8")
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is no text; download it again.") from error


def safetensors_files(folder: Path) -> list[Path]:
    """The files that hold a folder's tensors; none where it has no safetensors."""
    index = folder / INDEX
    if index.is_file():
        return _indexed(index)
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) > 1 and not all("-of-" in file.name for file in found):
        raise ModelFileError(
            f"{folder}: there are {len(found)} safetensors files in it and no index that says"
            f" which of them are the model ({INDEX})."
        )
    return found


def _indexed(index: Path) -> list[Path]:
    try:
        document = json.loads(index.read_text("utf-8"))
        names = sorted(set(document["weight_map"].values()))
        if not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise ValueError
    except OSError as error:
        raise ModelFileError(f"{index} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelFileError(f"{index} is broken; download it again.") from None
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ModelFileError(
            f"{index.parent}: {missing[0]} is missing ({len(missing)} of {len(names)} files);"
            " download the model again."
        )
    return [index.parent / name for name in names]
