"""The engine's loop: prefill once at batch 1, give the KV state to N rows, decode, one queue check
per token.

The design is that of karpathy/nanochat's `engine.py`: the token column and the mask column of each
step, a queue of forced tokens per row that is looked at before the sample. Added: finished rows
leave the batch, rows can be cancelled between steps, each row has its own generator, a prefill in
chunks. Where the ids come from is the decoder's business: a CPU samples one column after the other
(`engine/decoding.py`), a GPU runs ahead of the host (`engine/pipelined.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from engine.capture import CudaGraphs
from engine.decoding import Asked, Decoder, EagerDecoder, Samples
from engine.errors import ContextOverflowError, EngineError
from engine.graphs import DecodeGraphs
from engine.kv_cache import KVCache
from engine.load import LoadedModel
from engine.messages import (
    FinishReason,
    ModelInfo,
    SamplingParams,
    TokenScore,
    ToolCall,
    per_row,
)
from engine.pipelined import PipelinedDecoder
from engine.reuse import Retained
from engine.rows import Emitted, RowState
from engine.sampling import Sampler
from engine.scoring import measured, read
from engine.seeds import fresh_seed
from engine.tools import NoTools

PREFILL_CHUNK = 512
"""Tokens between two looks at progress and cancellation: 0.2-0.4 s of a 135M model on two cores."""

GPU_PREFILL_CHUNK = 4096
"""The same for a GPU, which shorter ones would leave idle."""

Decoding: TypeAlias = Literal["eager", "pipelined", "graphs"]
"""How steps are run: one after the other; launched ahead; or launched ahead as CUDA graphs."""


@dataclass(frozen=True)
class Step:
    """One step of all rows.

    Attributes:
        tokens: the token column; None in a row that has finished.
        masks: the mask column: 1 sampled, 0 forced, None finished.
        texts: characters that became complete with this step, per row.
        scores: per row, where `params.alternatives` asks for them.
        calls: (row, index, call) for each tool call that changed.
        finished: (row, reason, tail) for each row that ended with this step or was cancelled before
            it; `tail` is text that had been held back as an incomplete character.
    """

    tokens: tuple[int | None, ...]
    masks: tuple[int | None, ...]
    texts: tuple[str, ...]
    calls: tuple[tuple[int, int, ToolCall], ...] = ()
    finished: tuple[tuple[int, FinishReason, str], ...] = ()
    scores: tuple[TokenScore | None, ...] = ()


class Cancellation:
    """Which rows are to end; may be set from any thread while the generator runs."""

    def __init__(self) -> None:
        self._rows: set[int] = set()
        self.everything = False

    def cancel(self, row: int | None = None) -> None:
        """End one row before its next step, or all of them."""
        if row is None:
            self.everything = True
        else:
            self._rows.add(row)

    def covers(self, row: int) -> bool:
        return self.everything or row in self._rows


class Engine:
    """Generates with one loaded model."""

    def __init__(self, loaded: LoadedModel, decoding: Decoding | None = None) -> None:
        """`decoding` None is what the model's device is best at: CUDA graphs on an NVIDIA GPU, else
        one step after the other."""
        self.loaded = loaded
        self.model = loaded.model
        device = loaded.model.device
        self.decoding = decoding or ("graphs" if device.type == "cuda" else "eager")
        self._capture = CudaGraphs(device) if self.decoding == "graphs" else None
        self._graphs: DecodeGraphs | None = None
        self._retained = Retained()

    @property
    def info(self) -> ModelInfo:
        """The model's, with what has been found out by running it."""
        info, capture = self.loaded.info, self._capture
        if capture is None or not capture.failure:
            return info
        notes = (info.backend_note, f"no CUDA graphs: {capture.failure}")
        return replace(info, backend_note="; ".join(filter(None, notes)))

    def generate(
        self,
        tokens: Sequence[int],
        num_samples: int = 1,
        params: SamplingParams | None = None,
        *,
        given: int = 0,
        tools: bool = True,
        reuse_cache: bool = False,
        cancellation: Cancellation | None = None,
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> Iterator[Step]:
        """Continue `tokens` with `num_samples` rows; a plain generator of one `Step` per token
        column.

        Where the last rows were cancelled, one more step without tokens says so.

        Args:
            tokens: the prompt, at least one id.
            params: `SamplingParams()` when None; a seed of None is a fresh one.
            given: how many of the last `tokens` are the beginning of every answer.
            tools: answer the model's tool calls.
            reuse_cache: go on in the KV state that the last such call of this engine left behind,
                as far as its tokens are those of this prompt, and leave one behind.
            cancellation: looked at between steps and between the chunks of the prefill.
            on_prefill: told (done, total) tokens before the first chunk and after each; `done`
                begins with what was reused.

        Raises:
            ContextOverflowError: the prompt leaves no room for a single token.
            EngineError: the prompt is empty, an id lies outside the vocabulary, or a parameter
                makes no sense.
        """
        params = params or SamplingParams()
        context = self.model.shape.context
        self._check(tokens, num_samples, params)
        if params.max_tokens == 0:
            return
        cancellation = cancellation or Cancellation()
        seed = fresh_seed() if params.seed is None else params.seed
        dialect = self.loaded.tools if tools else NoTools()
        stop_tokens = self.loaded.chat_format.stop_tokens
        rows = [
            RowState(index, self.loaded.tokenizer, dialect.reader(), stop_tokens)
            for index in range(num_samples)
        ]
        for row in rows:
            row.begin(tokens[len(tokens) - given :])

        reused = self._retained.take(tokens, context) if reuse_cache else None
        with self._decoder(Asked(len(tokens), num_samples, params, seed)) as decoder:
            prompt = decoder.prompt_cache(reused)
            logits = self._prefill(tokens, prompt, cancellation, on_prefill)
            if logits is None:
                for row in rows:
                    row.finish_reason = "cancelled"
                yield _step({}, rows, num_samples)
                return
            if reuse_cache:
                self._retained.begin(tokens, prompt)
            decoder.begin(prompt, logits)

            active = rows
            ended: list[RowState] = []
            most = min(context - len(tokens), params.max_tokens or context)
            for count in range(1, most + 1):
                column = decoder.column(active, last=count == most)
                emitted = {
                    row.index: row.push(token) for row, token in zip(active, column, strict=True)
                }
                if count == most:
                    reason: FinishReason = "length" if count == params.max_tokens else "context"
                    for row in active:
                        row.finish_reason = row.finish_reason or reason
                ended += [row for row in active if row.finish_reason]
                scores = self._scores(decoder, active, params, num_samples)
                yield _step(emitted, ended, num_samples, scores)

                ended = [
                    row
                    for row in active
                    if not row.finish_reason and cancellation.covers(row.index)
                ]
                for row in ended:
                    row.finish_reason = "cancelled"
                if reuse_cache:
                    for place, row in enumerate(active):
                        if row.finish_reason:
                            self._retained.keep(row, decoder.tail_of(place, len(tokens)))
                kept = [place for place, row in enumerate(active) if not row.finish_reason]
                if not kept:
                    break
                if len(kept) < len(active):
                    decoder.keep(kept)
                active = [active[place] for place in kept]
            if ended:
                yield _step({}, ended, num_samples)

    @contextmanager
    def _decoder(self, asked: Asked) -> Iterator[Decoder]:
        """How the rows of one ask get their ids. Raises EngineError where a GPU's memory does not
        hold them."""
        if self.decoding == "eager":
            sampler = self._sampler(asked.params, asked.seed, asked.num_samples)
            yield EagerDecoder(self.model, asked, sampler)
            return
        # Taken, so that another generator that runs meanwhile makes its own.
        graphs, self._graphs = self._graphs, None
        self._retained = Retained()  # what it held stands where this prompt will be
        try:
            graphs = graphs or DecodeGraphs(self.model, self._capture)
            yield PipelinedDecoder(graphs, asked)
        except torch.OutOfMemoryError:
            graphs = None
            raise EngineError(
                f"The GPU has too little memory left for {asked.num_samples} samples of a prompt of"
                f" {asked.prompt} tokens: ask for fewer, or begin a new conversation."
            ) from None
        finally:
            self._graphs = graphs

    def _check(self, tokens: Sequence[int], num_samples: int, params: SamplingParams) -> None:
        shape = self.model.shape
        if not tokens:
            raise EngineError("The prompt is empty: give it at least one token.")
        if len(tokens) >= shape.context:
            raise ContextOverflowError(len(tokens), shape.context)
        if not 0 <= min(tokens) <= max(tokens) < shape.vocab_size:
            raise EngineError(f"The prompt has ids outside the vocabulary of {shape.vocab_size}.")
        if num_samples < 1:
            raise EngineError(f"At least one sample is needed, not {num_samples}.")
        if not params.temperatures or not all(0 <= t < float("inf") for t in params.temperatures):
            raise EngineError(f"Temperatures are numbers from 0 up, not {params.temperatures}.")
        if not params.top_ks or any(top_k is not None and top_k < 1 for top_k in params.top_ks):
            raise EngineError(f"top-k is at least 1, not {params.top_ks}.")
        if params.max_tokens is not None and params.max_tokens < 0:
            raise EngineError(f"max-tokens is at least 0, not {params.max_tokens}.")

    def _sampler(self, params: SamplingParams, seed: int, num_samples: int) -> Samples:
        return Sampler(params, seed, num_samples)

    def _prefill(
        self,
        tokens: Sequence[int],
        cache: KVCache,
        cancellation: Cancellation,
        on_prefill: Callable[[int, int], None] | None,
    ) -> Tensor | None:
        """Run what `cache` does not hold yet. Logits (1, vocab_size) behind the prompt; None if
        everything was cancelled meanwhile."""
        logits = None
        cache.reserve(len(tokens) - cache.length, self.model.shape.context)
        if on_prefill:
            on_prefill(cache.length, len(tokens))
        device = self.model.device
        size = PREFILL_CHUNK if device.type == "cpu" else GPU_PREFILL_CHUNK
        for start in range(cache.length, len(tokens), size):
            if cancellation.everything:
                return None
            chunk = list(tokens[start : start + size])
            logits = self._forward(chunk, cache)
            if device.type == "cuda":  # which has only been told so far
                torch.cuda.synchronize(device)
            if on_prefill:
                on_prefill(start + len(chunk), len(tokens))
        return logits

    def _scores(
        self, decoder: Decoder, active: list[RowState], params: SamplingParams, num_samples: int
    ) -> tuple[TokenScore | None, ...]:
        """What the model thought of the tokens that the rows have just emitted."""
        if params.alternatives is None:
            return ()
        temperatures = per_row(params.temperatures, num_samples)
        top_ks = per_row(params.top_ks, num_samples)
        scored = read(
            decoder.measured(active),
            [row.tokens[-1] for row in active],
            self.loaded.tokenizer,
            temperatures=[temperatures[row.index] if row.masks[-1] else None for row in active],
            top_ks=[top_ks[row.index] for row in active],
        )
        of_row = dict(zip((row.index for row in active), scored, strict=True))
        return tuple(of_row.get(index) for index in range(num_samples))

    @torch.inference_mode()
    def score(
        self,
        tokens: Sequence[int],
        start: int = 1,
        alternatives: int = 10,
        temperature: float | None = None,
        top_k: int | None = None,
    ) -> list[TokenScore]:
        """How likely was each of `tokens` from place `start` on, given those before it? And, where
        they were sampled at a temperature, in the distribution that they came from?

        Raises:
            ContextOverflowError, EngineError: as `generate`; also where `start` is not a place
                behind the first token.
        """
        self._check(tokens, 1, SamplingParams())
        if not 1 <= start <= len(tokens):
            raise EngineError(f"Scores begin at a place from 1 to {len(tokens)}, not {start}.")
        cache = self.model.new_cache(1, len(tokens))
        scores: list[TokenScore] = []
        for begin in range(0, len(tokens) - 1, PREFILL_CHUNK):
            chunk = list(tokens[begin : min(begin + PREFILL_CHUNK, len(tokens) - 1)])
            ids = torch.tensor([chunk], device=self.model.device)
            # Logits at place i are about the token at place i + 1.
            wanted = max(start - 1 - begin, 0)
            logits = self.model.forward(ids, cache, all_positions=wanted < len(chunk))
            if wanted < len(chunk):
                targets = tokens[begin + wanted + 1 : begin + len(chunk) + 1]
                how = [temperature] * len(targets), [top_k] * len(targets)
                cells = measured(logits[0, wanted:], targets, alternatives, *how)
                scores += read(cells, targets, self.loaded.tokenizer, *how)
        return scores

    @torch.inference_mode()
    def _forward(self, ids: list[int], cache: KVCache) -> Tensor:
        return self.model.forward(torch.tensor([ids], device=self.model.device), cache)


def _step(
    emitted: dict[int, Emitted],
    finished: list[RowState],
    num_samples: int,
    scores: tuple[TokenScore | None, ...] = (),
) -> Step:
    columns = [emitted.get(index) for index in range(num_samples)]
    return Step(
        tokens=tuple(None if cell is None else cell.token for cell in columns),
        masks=tuple(None if cell is None else cell.mask for cell in columns),
        texts=tuple("" if cell is None else cell.text for cell in columns),
        calls=tuple((row, *cell.call) for row, cell in emitted.items() if cell.call),
        finished=tuple((row.index, row.finish_reason or "stop", row.flush()) for row in finished),
        scores=scores,
    )
