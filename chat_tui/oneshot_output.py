"""What one-shot mode writes: a text as it grows, texts under headers, or one JSON document.

`Result` is what one model answered under one system text. A text is the answer alone, as whoever
reads from a pipe wants it: what was thought before it is in the document, and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chat_tui.labels import show_system
from chat_tui.rendering.sanitise import sanitise
from chat_tui.settings import Setup, show_top_k
from chat_tui.thought import Thought, may_begin, thought_in
from engine.messages import NO_ID, FinishReason, Started, Stats, Stepped, ToolCall
from engine.seeds import row_seed

_FILTERED = "The server's content filter ended the answer."
_CUT: dict[FinishReason, str] = {
    "stop": "The model ended while it was still thinking.",
    "length": "The token limit came while the model was still thinking: --max-tokens sets it.",
    "context": "The context was full while the model was still thinking.",
    "cancelled": "It was stopped while the model was still thinking.",
    "content_filter": _FILTERED,
}


@dataclass
class Sample:
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    reason: FinishReason | None = None

    def add(self, event: Stepped, row: int) -> None:
        token, mask = event.tokens[row], event.masks[row]
        if token is not None and mask is not None:
            self.tokens.append(token)
            self.mask.append(mask)
            self.text += event.texts[row]

    def set_call(self, index: int, call: ToolCall) -> None:
        self.calls[index:] = [call]

    @property
    def thought(self) -> Thought | None:
        """What the model thinks, or thought, before it answers."""
        return thought_in(self.text)

    @property
    def remark(self) -> str:
        """Why there is no answer, or not all of one; empty where the text says it by itself."""
        thought = self.thought
        if self.reason is not None and thought is not None and thought.after is None:
            return _CUT[self.reason]
        return _FILTERED if self.reason == "content_filter" else ""

    def shown(self) -> str:
        """The answer as far as it is settled, tool calls written as chips."""
        thought = self.thought
        if thought is None and self.reason is None and may_begin(self.text):
            return ""
        begins = 0 if thought is None else thought.after
        if begins is None:
            return ""
        out, at = "", begins
        for call in self.calls:
            if call.start == call.end or call.start < begins:
                continue  # it looked like a call and was none; or it is part of the thought
            out += self.text[at : call.start]
            if not call.done and self.reason is None:
                return out
            result = "?" if call.result is None else call.result
            after = self.text[call.end : call.end + 1]
            out += f"[{call.expression.strip()} → {result}]" + (" " if after.isalnum() else "")
            at = call.end
        # A lone `<` may become the beginning of a call.
        tail = self.text[at:]
        return out + (tail.rstrip("<") if self.reason is None else tail)


@dataclass
class Result:
    """The answers of one model under one system text."""

    model: str
    setups: Sequence[Setup]
    started: Started
    samples: list[Sample]
    stats: Stats

    @property
    def prompt_tokens(self) -> int | None:
        """Of a server, as far as it tells."""
        return len(self.started.prompt_tokens) or self.stats.prompt_tokens


def write_texts(results: Sequence[Result], setups: Sequence[Setup]) -> None:
    """The answers of the last result under headers, numbered behind those of the others. `setups`
    are those of all answers: a header says what differs between them."""
    last = results[-1]
    before = sum(len(result.samples) for result in results[:-1])
    models = len({setup.model for setup in setups}) > 1
    systems = len({setup.system for setup in setups}) > 1
    top_ks = len({setup.top_k for setup in setups}) > 1
    for row, (sample, setup) in enumerate(zip(last.samples, last.setups, strict=True)):
        parts = [
            f"--- {before + row + 1}/{len(setups)}",
            last.model if models else "",
            show_system(setup.system) if systems else "",
            f"temperature {setup.temperature:g}",
            show_top_k(setup.top_k) if top_ks else "",
            f"seed {row_seed(last.started.seed, row)}",
            sample.thought.label(closed=True) if sample.thought is not None else "",
            str(sample.reason),
        ]
        print(sanitise("  ".join(part for part in parts if part)))
        print(sanitise(sample.shown()))
        if sample.remark:
            remark(sample.remark, f"answer {before + row + 1}")


def document(results: Sequence[Result]) -> dict[str, object]:
    """What all have in common stands in its place; where there are several models or system texts,
    each sample says which is its own, and `parts` has the figures of each prompt."""
    models = {result.model: None for result in results}
    systems = {result.setups[0].system for result in results}
    samples = [
        _sample(result, row)
        | ({"model": result.model} if len(models) > 1 else {})
        | ({"system": setup.system} if len(systems) > 1 else {})
        for result in results
        for row, setup in enumerate(result.setups)
    ]
    whole: dict[str, object] = {
        "model": ", ".join(models),
        "prompt_tokens": _sum(result.prompt_tokens for result in results),
        "samples": [{"index": index, **sample} for index, sample in enumerate(samples)],
        "stats": _figures(results),
    }
    if len(results) > 1:
        whole["parts"] = [
            {
                "model": result.model,
                "system": result.setups[0].system,
                "samples": len(result.samples),
                "prompt_tokens": result.prompt_tokens,
                "stats": _figures([result]),
            }
            for result in results
        ]
    return whole


def _sample(result: Result, row: int) -> dict[str, object]:
    sample, setup = result.samples[row], result.setups[row]
    return {
        "text": sample.text,
        # A server may not say which tokens they are.
        "tokens": None if NO_ID in sample.tokens else sample.tokens,
        "mask": None if NO_ID in sample.tokens else sample.mask,
        "finish_reason": sample.reason,
        "tool_calls": [
            {"expression": call.expression, "result": call.result}
            for call in sample.calls
            if call.start != call.end
        ],
        "seed": row_seed(result.started.seed, row),
        "temperature": setup.temperature,
        "top_k": setup.top_k,
    }


def _figures(results: Sequence[Result]) -> dict[str, object]:
    """Prompts are run one after the other: seconds add up. The first token of all counts."""
    stats = [result.stats for result in results]
    decode_s = sum(each.decode_s for each in stats)
    tokens = sum(each.tokens_per_s * each.decode_s for each in stats)
    return {
        "ttft_s": stats[0].ttft_s,
        "prefill_s": sum(each.prefill_s for each in stats),
        "decode_s": decode_s,
        "tokens_per_s": tokens / decode_s if decode_s > 0 else 0.0,
        "backend": ", ".join(dict.fromkeys(each.backend for each in stats)),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def remark(line: str, about: str = "") -> None:
    """A line on stderr: about one of several answers, where `about` names it."""
    sys.stdout.flush()  # what it is about stands above it
    print(": ".join(part for part in ("chat-tui", about, line) if part), file=sys.stderr)


class Writer:
    """Writes one growing text to stdout, each character once; how far a thought is, to stderr,
    where that is a terminal."""

    HELD_BACK = 2
    """Characters at the end whose harmless form can still depend on what follows: a carriage
    return, a joiner."""

    def __init__(self) -> None:
        self._text = self._label = ""
        self._written = 0
        self._watched = sys.stderr.isatty()  # until the answer begins

    def write(self, sample: Sample) -> None:
        if self._watched:
            self._tell(sample)
        self._text = sample.shown()
        self._out(sanitise(self._text[: -self.HELD_BACK]))

    def end(self) -> None:
        self._out(sanitise(self._text))
        self._end_line()
        if not self._text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _tell(self, sample: Sample) -> None:
        thought = sample.thought
        label = "" if thought is None else thought.label(closed=sample.reason is not None)
        if label != self._label:
            sys.stderr.write(f"\r\x1b[K{label}")
            sys.stderr.flush()
            self._label = label

    def _end_line(self) -> None:
        """Nothing more is written where the label stands."""
        if self._label:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._label = ""

    def _out(self, text: str) -> None:
        if new := text[self._written :]:
            self._end_line()
            self._watched = False
            sys.stdout.write(new)
            sys.stdout.flush()
        self._written = max(self._written, len(text))
