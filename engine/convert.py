"""`convert`: a model to another form of its files.

    convert("smollm2", Path("smollm2-hf"), dtype="bfloat16", progress=print)

A GGUF file becomes a folder of safetensors, which `transformers`, vLLM, SGLang and TGI serve.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelFileError
from engine.load import Progress, dtype_named, is_gguf, locate
from engine.loading.gguf import read_gguf
from engine.loading.hub_folder import write_hub_folder


def convert(
    name: str, folder: Path, *, dtype: str = "bfloat16", progress: Progress | None = None
) -> None:
    """Write the model that `--model NAME` means to `folder`, as Hugging Face safetensors.

    Raises:
        EngineError: it is no GGUF file of a family that is known here, or the folder is not empty
            or cannot be written.
    """
    how = dtype_named(dtype)
    path = locate(name, progress)
    if not is_gguf(path):
        raise ModelFileError(
            f"{path} is safetensors already: servers take it as it is."
            if (path / "config.json").is_file()
            else f"{path} is a nanochat checkpoint: only GGUF files are converted."
        )
    write_hub_folder(read_gguf(path), folder, how, progress or (lambda what, done, total: None))
