"""Token ids, tensors and files: loads small language models and generates N answers from one
prefill.

    from engine import Engine, SamplingParams, load_model

    loaded = load_model("smollm2")
    prompt = loaded.chat_format.render([], "Why is the sky blue?", None)
    for step in Engine(loaded).generate(prompt, num_samples=4, params=SamplingParams()):
        print(step.tokens, step.masks)

The names below are the package's face. They are imported on first use, so that a program can speak
the protocol of `engine.messages` and read `engine.errors` without loading torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.calculator import use_calculator
    from engine.generate import Cancellation, Engine, Step
    from engine.kv_cache import KVCache, SharedPrefixCache
    from engine.load import LoadedModel, load_model
    from engine.messages import SamplingParams

_FACE = {
    "Cancellation": "engine.generate",
    "Engine": "engine.generate",
    "KVCache": "engine.kv_cache",
    "LoadedModel": "engine.load",
    "SamplingParams": "engine.messages",
    "SharedPrefixCache": "engine.kv_cache",
    "Step": "engine.generate",
    "load_model": "engine.load",
    "use_calculator": "engine.calculator",
}

__all__ = [
    "Cancellation",
    "Engine",
    "KVCache",
    "LoadedModel",
    "SamplingParams",
    "SharedPrefixCache",
    "Step",
    "load_model",
    "use_calculator",
]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_FACE[name]), name)
