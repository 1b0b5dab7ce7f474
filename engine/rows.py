"""One row of a generation: its tokens, its queue of forced tokens, its tool state and why it
ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.messages import FinishReason, ToolCall
from engine.tokenizer import Tokenizer
from engine.tools import ToolReader


@dataclass(frozen=True)
class Emitted:
    """What a row did in one step; `call` is (index, call) where a tool call changed."""

    token: int
    mask: int
    text: str
    call: tuple[int, ToolCall] | None


class RowState:
    def __init__(
        self, index: int, tokenizer: Tokenizer, tools: ToolReader, stop_tokens: frozenset[int]
    ) -> None:
        self.index = index
        self.tokens: list[int] = []
        self.masks: list[int] = []
        self.forced_tokens: deque[int] = deque()
        self.finish_reason: FinishReason | None = None
        self._decoder = tokenizer.stream()
        self._tools = tools
        self._stop_tokens = stop_tokens
        self._text_length = 0

    def begin(self, given: Sequence[int]) -> str:
        """Follow ids that the answer begins with. They are in the prompt already, so nothing is
        emitted; but a tool call that they leave open goes on. Returns their text."""
        begun = ""
        for token in given:
            if self.forced_tokens and self.forced_tokens[0] == token:
                self.forced_tokens.popleft()
            elif self.forced_tokens:
                self.forced_tokens.clear()
                self._tools.interrupt()
            text = self._decoder.push(token)
            self.forced_tokens.extend(self._tools.push(token, self._text_length, text))
            self._text_length += len(text)
            begun += text
        return begun

    def push(self, sampled: int) -> Emitted:
        """Emit the next token: the head of the forced queue, else what was sampled."""
        forced = bool(self.forced_tokens)
        token = self.forced_tokens.popleft() if forced else sampled
        self.tokens.append(token)
        self.masks.append(0 if forced else 1)
        if not forced and token in self._stop_tokens:
            self.finish_reason = "stop"
            return Emitted(token, 1, "", None)
        text = self._decoder.push(token)
        calls = self._tools.calls
        before = calls[-1] if calls else None
        self.forced_tokens.extend(self._tools.push(token, self._text_length, text))
        self._text_length += len(text)
        changed = bool(calls) and calls[-1] is not before
        call = (len(calls) - 1, calls[-1]) if changed else None
        return Emitted(token, 0 if forced else 1, text, call)

    def flush(self) -> str:
        """The tail of the text that was held back as an incomplete character; call once, at the
        end."""
        return self._decoder.flush()
