"""What the engine raises at its callers: one clear sentence each, fit to be shown as it is.

Every error that a user can meet is an `EngineError`; anything else that leaves the engine is a
fault of ours.
"""

from __future__ import annotations


class EngineError(Exception):
    """Something the user can act on. `str(error)` is one line: what is wrong and what to do."""


class ModelFileError(EngineError):
    """A model file is missing, broken or of a kind that is not supported."""


class ModelDoesNotFitError(EngineError):
    """A model is larger than the memory that is free."""


class DownloadError(EngineError):
    """A model could not be fetched from any of its sources."""


class CacheMismatchError(EngineError):
    """`KVCache.prefill` was given a cache that does not fit; the message names what differs."""


class ContextOverflowError(EngineError):
    """The prompt does not fit into the model's context.

    Attributes:
        prompt_tokens: tokens of the prompt.
        limit: tokens that the model can hold.
    """

    def __init__(self, prompt_tokens: int, limit: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        super().__init__(
            f"The prompt has {prompt_tokens} tokens and the model holds {limit}: "
            "drop the oldest turns or start a new conversation."
        )
