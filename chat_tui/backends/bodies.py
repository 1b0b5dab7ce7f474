"""What a server is sent for an ask: the JSON of each request.

bodies = Bodies(ask, traits, exact, seed)
bodies.of([row], refused=set())          # messages; with `bodies.prompt`, ids
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chat_tui.backends import dialogue
from chat_tui.backends.exact import Exact, Prompt
from chat_tui.backends.faults import ServerError
from chat_tui.backends.server_row import Row
from chat_tui.backends.traits import Traits
from engine.messages import NO_ID, Ask

MOST_ROUNDS = 8
"""Requests behind tool calls; the last one may call no more."""

_MOST_ALTERNATIVES = 20

_AS_SAID = {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling is what the screen says of it. Without these, llama-server cuts at its own `min_p`, and
vLLM and SGLang take whatever the model's generation_config.json has."""


class Bodies:
    """Attributes:
    seed: row i's is `seed` + i.
    prompt: the ids to be sent; None where messages are.
    """

    def __init__(self, ask: Ask, traits: Traits, exact: Exact | None, seed: int) -> None:
        self._ask, self._traits, self._exact = ask, traits, exact
        self.seed = seed
        self.prompt: Prompt | None = None

    def of(self, rows: Sequence[Row], refused: set[str]) -> dict[str, Any]:
        """Of one request for `rows`, without the parameters that are `refused`."""
        row, params = rows[0], self._ask.params
        body: dict[str, Any] = {
            "model": self._traits.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": row.temperature,
            "seed": (self.seed + row.index) % 2**31,
        }
        if len(rows) > 1:
            body["n"] = len(rows)
        if params.max_tokens is not None:
            body["max_tokens"] = max(params.max_tokens - len(row.ids), 1)
        if row.top_k is not None or self._traits.open:
            body["top_k"] = -1 if row.top_k is None else row.top_k
        if self._traits.open:
            body |= _AS_SAID
        body |= self._messages(row, refused) if self.prompt is None else self._ids(self.prompt, row)
        return self._traits.fit(body, refused, tools=self._ask.tools)

    def _messages(self, row: Row, refused: set[str]) -> dict[str, Any]:
        ask, several = self._ask, self._ask.params.alternatives
        tools = self._traits.takes("tools") and "tools" not in refused and ask.tools
        sent = dialogue.messages(ask.history, ask.text, ask.system, tools=tools)
        body: dict[str, Any] = {"messages": [*sent, *row.behind]}
        if several is not None:
            body |= {"logprobs": True, "top_logprobs": min(several, _MOST_ALTERNATIVES)}
        if tools:
            last = row.rounds >= MOST_ROUNDS
            body |= {"tools": [dialogue.CALCULATOR], "tool_choice": "none" if last else "auto"}
        return body

    def _ids(self, prompt: Prompt, row: Row) -> dict[str, Any]:
        assert self._exact is not None
        if NO_ID in row.ids:  # a vLLM before `return_token_ids`
            raise ServerError("The server does not tell token ids: nothing can follow a call.")
        params, ids = self._ask.params, [*prompt.ids, *row.ids]
        several = params.alternatives
        body: dict[str, Any] = {"prompt": ids}
        if params.max_tokens is None:  # the endpoint's own default is 16
            body["max_tokens"] = self._exact.context - len(ids)
        if self._exact.kind == "vLLM":
            body["return_token_ids"] = True
        elif several is None:
            several = 1  # llama-server gives ids with log-probabilities alone
        if several is not None:
            body["logprobs"] = min(several, _MOST_ALTERNATIVES)
        return body
