"""What a shell offers behind an option: `chat-tui --install-completion` sets it up.

Each function takes what is typed so far and gives what it could become, with a word about it where
the shell shows one. They run once per Tab: nothing here imports torch, and what cannot be read
offers nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

Offers = list[tuple[str, str]]

_PLAIN_NAME = re.compile(r"[\w./:@+-]+")
_NOT_PLAIN = re.compile(r"[^\w ,.?!-]")
_MODEL_FILES = (".gguf", ".pt", "/")


def models(incomplete: str) -> Offers:
    """Names of models, and paths where one is begun."""
    from engine.errors import EngineError
    from engine.loading.known import known_models

    try:
        names = _beginning(((model.name, model.title) for model in known_models()), incomplete)
    except EngineError:
        names = []
    return names or [(path, "") for path in _paths(incomplete)]


def sessions(incomplete: str) -> Offers:
    """Numbers of saved conversations, the last first."""
    from chat_tui.store import Store, StoreError

    try:
        with Store.open() as store:
            found = [(str(session.id), session.title) for session in store.sessions()]
    except StoreError:
        found = []
    return _beginning(found, incomplete)


def themes(incomplete: str) -> Offers:
    from chat_tui.look import themes

    return _beginning(((name, "") for name in themes()), incomplete)


def devices(incomplete: str) -> Offers:
    return _beginning((("cpu", ""), ("cuda", "an NVIDIA GPU"), ("mps", "Apple's GPU")), incomplete)


def dtypes(incomplete: str) -> Offers:
    return _beginning(((name, "") for name in ("float32", "bfloat16", "float16")), incomplete)


def _beginning(offers: Iterable[tuple[str, str]], incomplete: str) -> Offers:
    # zsh evaluates what it is given, and a title is anybody's text.
    return [
        (name, " ".join(_NOT_PLAIN.sub(" ", about).split()))
        for name, about in offers
        if name.startswith(incomplete) and _PLAIN_NAME.fullmatch(name)
    ]


def _paths(incomplete: str) -> Iterator[str]:
    # The other shells complete paths by themselves where nothing is offered, and do it better.
    if "fish" not in os.environ.get("_CHAT_TUI_COMPLETE", ""):
        return
    from chat_tui.path_choices import paths

    yield from (path for path, _ in paths(incomplete) if path.endswith(_MODEL_FILES))
