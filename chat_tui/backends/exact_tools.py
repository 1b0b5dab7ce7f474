"""The calculator where a conversation is sent as token ids. The server only completes: a call is
found in what it streams, and its result goes back as ids, as in the local engine (`engine.tools`).

    tools = await learn(text.rendered_text)    # None: only the server can read its calls
    follower = tools.follower()
    call = follower.push(0, "<<12*7=")         # the call as it stands
    follower.forced                            # "84>>": what comes next, as text

Two dialects: a template that declares tools and has them called as `<tool_call>{...}</tool_call>`
(Qwen, Hermes) is given the calculator; a model whose template knows no tools is taught GSM8K's
notation by a few short turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from chat_tui.backends.dialogue import CALCULATOR, CALL, CALLED, Message
from chat_tui.backends.faults import RefusedError
from engine.chat_format import Place, ToolLayout
from engine.messages import NO_ID, ToolCall
from engine.tools import Example, JsonTools, NotationTools, ToolDialect

Rendered = Callable[[Sequence[Message], bool], Awaitable[str]]
"""The server's template on a conversation, as text; with the calculator declared, or without."""


class Follower:
    """Follows one answer.

    Attributes:
        forced: what has to stand next in the answer; empty where that is the model's affair.
    """

    def __init__(self, tools: ExactTools) -> None:
        self._noted = _Noted()
        self._reader = tools.dialect(self._noted).reader()
        self.forced = ""

    @property
    def calls(self) -> list[ToolCall]:
        return self._reader.calls

    def push(self, start: int, text: str) -> tuple[int, ToolCall] | None:
        """`text` came, at this place of the answer; what was forced comes in one piece. Gives
        (place, call) of a call that changed with it."""
        calls = self._reader.calls
        before = calls[-1] if calls else None
        self.forced = self._noted.text if self._reader.push(NO_ID, start, text) else ""
        changed = bool(calls) and calls[-1] is not before
        return (len(calls) - 1, calls[-1]) if changed else None

    def begin(self, text: str) -> None:
        """The answer is given this beginning, which may end inside of a call or of its result."""
        at = 0
        while at < len(text):
            if self.forced and text.startswith(self.forced, at):
                size = len(self.forced)
            elif self.forced and self.forced.startswith(text[at:]):
                self.forced = self.forced[len(text) - at :]
                return
            else:
                if self.forced:
                    self._reader.interrupt()
                size = 1
            self.push(at, text[at : at + size])
            at += size


class _Noted:
    """In a tokenizer's place: takes down what is to be encoded, since the tokenizer is elsewhere.
    What was noted comes back as one piece."""

    def __init__(self) -> None:
        self.text = ""

    def encode(self, text: str) -> list[int]:
        self.text = text
        return [NO_ID]

    def encode_mixed(self, parts: Iterable[int | str], *, continues: bool = False) -> list[int]:
        return self.encode("".join(str(part) for part in parts))


@dataclass(frozen=True)
class ExactTools:
    """How a model is given the calculator; `layout` None is the notation."""

    layout: ToolLayout | None = None

    @property
    def name(self) -> str:
        return self.dialect(_Noted()).name

    @property
    def declared(self) -> bool:
        """The template declares it."""
        return self.layout is not None

    def dialect(self, encoder: _Noted) -> ToolDialect:
        return NotationTools(encoder) if self.layout is None else JsonTools(encoder, self.layout)

    def examples(self, text: str) -> Sequence[Example]:
        """The turns to put before a conversation whose newest message is `text`."""
        return self.dialect(_Noted()).examples(text)

    def follower(self) -> Follower:
        return Follower(self)


_SAID, _EXPRESSION, _RESULT = "Zq1user1qZ", "Zq4expression4qZ", "Zq5result5qZ"
_USER: Message = {"role": "user", "content": _SAID}
_CALLING: tuple[Message, ...] = (
    _USER,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "call00000",
                "function": {
                    "name": CALCULATOR["function"]["name"],
                    "arguments": f'{{"expression": "{_EXPRESSION}"}}',
                },
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00000", "name": "calculator", "content": _RESULT},
)


async def learn(rendered: Rendered) -> ExactTools | None:
    """What the server's template does with a tool; None where that is something that only the
    server can read.

    Raises:
        ServerError: it fails.
    """
    try:
        if await rendered([_USER], True) == await rendered([_USER], False):
            return ExactTools()
        text = await rendered(_CALLING, True)
    except RefusedError:
        return None
    before, expression, behind = text.rpartition(_SAID)[2].partition(_EXPRESSION)
    behind_call, result, after_result = behind.partition(_RESULT)
    if not (expression and result) or CALL not in before or CALLED not in behind_call:
        return None
    return ExactTools(
        ToolLayout(
            first=Place(()),
            first_after_system=None,
            before_result=(behind_call.partition(CALLED)[2],),
            after_result=(after_result,),
        )
    )
