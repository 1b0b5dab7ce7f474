"""The JSON files of a model's folder as `transformers` writes it.

config = read_json(folder / "config.json")
settings = read_json(folder / "tokenizer_config.json", missing_is_empty=True)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelFileError

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
