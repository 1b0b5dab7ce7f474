"""What a server turned out to be like: its name for the model, what it takes and what it refuses.

Learnt once per server, from its own answers: a parameter that an error names is left out from then
on. What that means for the user stands in `note`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from chat_tui.backends.faults import RefusedError

_NAMED = (
    ("stream_options", r"stream_options|include_usage"),
    ("logprobs", r"log_?probs|log probabilities"),
    ("top_k", r"\btop_?k\b"),
    ("top_p", r"\btop_?p\b"),
    ("min_p", r"\bmin_?p\b"),
    ("repetition_penalty", r"repetition_?penalty"),
    ("max_tokens", r"max_tokens"),
    ("seed", r"\bseed\b"),
    ("n", r"(?<![\w\\])n(?![\w'])|completion choice|num_choices|\bbest_of\b"),
    ("tools", r"\btools?\b|tool_choice|function call"),
)
"""Parameters that an answer can do without, and how errors name them, the most telling first."""

_GUESSED = ("n",)
"""What to try without where an error names nothing."""

_LOST = {
    "logprobs": "no log-probabilities",
    "top_k": "no top-k",
    "seed": "no seed",
    "tools": "no calculator",
}
"""What its absence means to the user."""

_TOGETHER = {"logprobs": ("top_logprobs",), "tools": ("tool_choice",)}


class Traits:
    """Attributes:
    model: the model's name there.
    kind: what serves it, as a name to show.
    open: it is one of the engines that take top-k and the like.
    exact: it takes token ids; always, or only where no tool is offered ("without tools").
    changed: called when more is known of it.
    """

    def __init__(self, model: str, kind: str, changed: Callable[[], None] = lambda: None) -> None:
        self.model = model
        self.kind = kind or "server"
        self.open = bool(kind)
        self.exact: Literal["", "always", "without tools"] = ""
        self._changed = changed
        self._refuses: dict[bool, set[str]] = {True: set(), False: set()}

    def takes(self, name: str) -> bool:
        return not (name in self._refuses[True] or name in self._refuses[False])

    def refused(self, error: RefusedError, body: dict[str, Any]) -> str:
        """The parameter of `body` that `error` is about; empty where it is about something else."""
        if error.status not in (400, 415, 422, 500, 501):
            return ""
        for name, pattern in _NAMED:
            if name in body and re.search(pattern, error.said, re.IGNORECASE | re.DOTALL):
                return name
        if error.status != 500:
            return next((name for name in _GUESSED if name in body), "")
        return ""

    def learn(self, names: Iterable[str], *, tools: bool) -> None:
        """An answer came once these had been left out."""
        new = set(names) - self._refuses[tools]
        if new:
            self._refuses[tools] |= new
            self._changed()

    def fit(self, body: dict[str, Any], refused: set[str], *, tools: bool) -> dict[str, Any]:
        """`body` without what is refused; log-probabilities often only beside tools."""
        refuses = self._refuses[tools] | refused
        if "max_tokens" in refuses and "max_tokens" in body:  # OpenAI's newer name
            body = {**body, "max_completion_tokens": body["max_tokens"]}
        without = {each for name in refuses for each in (name, *_TOGETHER.get(name, ()))}
        return {name: value for name, value in body.items() if name not in without}

    def note(self) -> str:
        """How it is asked, for the status line."""
        lost = [text for name, text in _LOST.items() if not self.takes(name)]
        several = "one request for all answers" if self.takes("n") else "a request for each answer"
        exact = ["exact tokens"] if self.exact else []
        if self.exact == "without tools" and self.takes("tools"):
            exact = ["exact tokens with /tools off"]
        return ", ".join([several, *exact, *lost])
