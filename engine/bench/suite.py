"""Measures a loaded model: prefill, decode, one prefill for all rows against one for each, and a
chat with and without its KV cache.

    report = Suite(loaded, Plan(), tell=print).run()

A `Case` is one thing that can be measured once. The suite measures every case in turn, round after
round, and only then looks at what came out: medians of rounds that are interleaved compare cases
under the same conditions.
"""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from engine.bench import ceilings, counts
from engine.bench.plan import Plan, Tell, silent
from engine.bench.report import (
    Decode,
    KVUse,
    Machine,
    Prefill,
    Report,
    SharedPrefill,
    Subject,
    Turn,
    median,
    percentile,
)
from engine.chat_format import PlainFormat
from engine.generate import Decoding, Engine, Step
from engine.load import LoadedModel
from engine.messages import SamplingParams
from engine.models.base import Model

Columns: TypeAlias = "Iterator[object]"
"""One item per token column, whatever it is."""

Generate: TypeAlias = "Callable[[Sequence[int], int, int], Columns]"
"""(prompt, rows, new tokens) -> columns."""

EXPECTED_MFU, EXPECTED_MBU = 0.35, 0.3
"""For the estimate of how long it will take; a guess on the slow side."""


def endless(loaded: LoadedModel) -> LoadedModel:
    """The same model with no token that ends an answer: every case has the length it says."""
    return replace(loaded, chat_format=PlainFormat(loaded.tokenizer))


def ours(engine: Engine) -> Generate:
    """The engine, sampling as it does by default."""

    def generate(tokens: Sequence[int], rows: int, new_tokens: int) -> Columns:
        params = SamplingParams(max_tokens=new_tokens, seed=1)
        return engine.generate(tokens, rows, params, tools=False)

    return generate


def any_tokens(count: int, vocab_size: int) -> list[int]:
    """A prompt. Which ids it has changes nothing that is measured; they are always the same."""
    return random.Random(count).choices(range(vocab_size), k=count)


@dataclass(frozen=True)
class Timing:
    """One generation: seconds to the first token column, and of each later one."""

    ttft_s: float
    steps_s: tuple[float, ...]


def timed(columns: Columns) -> Timing:
    """Run a generation, none of which has happened yet, to its end."""
    at = [time.perf_counter()]
    at += [time.perf_counter() for _ in columns]
    first, *steps = (after - before for before, after in itertools.pairwise(at))
    return Timing(first, tuple(steps))


class Case(Protocol):
    """Something that can be measured once, again and again."""

    def measure(self) -> None:
        """Once more."""
        ...

    def forget(self) -> None:
        """What was measured so far was warm-up."""
        ...

    def work(self) -> tuple[float, float]:
        """(FLOPs of prefills, bytes of decode steps) that one measurement has to do."""
        ...


@dataclass
class Generation:
    """One prompt, some rows, some tokens."""

    model: Model
    generate: Generate
    prompt_tokens: int
    rows: int
    new_tokens: int
    timings: list[Timing] = field(default_factory=list)

    def measure(self) -> None:
        prompt = any_tokens(self.prompt_tokens, self.model.shape.vocab_size)
        self.timings.append(timed(self.generate(prompt, self.rows, self.new_tokens)))

    def forget(self) -> None:
        self.timings.clear()

    def work(self) -> tuple[float, float]:
        return (
            counts.prefill_flops(self.model, self.prompt_tokens),
            self.steps * self.step_bytes() if self.steps else 0.0,
        )

    @property
    def steps(self) -> int:
        """Forward passes behind the prefill."""
        return self.new_tokens - 1

    def step_bytes(self) -> float:
        return counts.step_bytes(self.model, self.rows, self.prompt_tokens, self.steps)

    def ttft(self) -> float:
        return median([timing.ttft_s for timing in self.timings])

    def decode(self, machine: Machine) -> Decode:
        steps = [step for timing in self.timings for step in timing.steps_s]
        tpot = median(steps)
        return Decode(
            rows=self.rows,
            prompt_tokens=self.prompt_tokens,
            tpot_median_s=tpot,
            tpot_p95_s=percentile(steps, 0.95),
            tokens_per_s=median(
                [self.rows * len(timing.steps_s) / sum(timing.steps_s) for timing in self.timings]
            ),
            mbu=counts.mbu(self.step_bytes(), tpot, machine.copy_bytes_per_s),
        )

    def kv(self) -> KVUse:
        model, rows, prompt = self.model, self.rows, self.prompt_tokens
        shared = counts.shares_prefix(model, rows)
        # The last token is sampled and never run: its keys are nowhere.
        steps = self.steps

        def stored(shared: bool) -> int:
            return counts.kv_stored(model, rows, prompt, steps, shared=shared)

        def read(shared: bool) -> int:
            return round(counts.mean_kv_read(model, rows, prompt, steps, shared=shared))

        return KVUse(rows, prompt, stored(shared), stored(False), read(shared), read(False), shared)


@dataclass
class PrefillForEach:
    """The naive way to N answers: every row prefills the prompt for itself."""

    one: Generation
    """A single row's first token."""
    rows: int
    seconds: list[float] = field(default_factory=list)

    def measure(self) -> None:
        self.one.forget()
        for _ in range(self.rows):
            self.one.measure()
        self.seconds.append(sum(timing.ttft_s for timing in self.one.timings))

    def forget(self) -> None:
        self.seconds.clear()

    def work(self) -> tuple[float, float]:
        return self.rows * self.one.work()[0], 0.0


@dataclass
class Chat:
    """A conversation of one row. Each turn is asked twice: in an engine that keeps its KV cache,
    which also answers it, and with the whole history prefilled again."""

    loaded: LoadedModel
    plan: Plan
    decoding: Decoding | None = None
    reuse: list[list[float]] = field(default_factory=list)
    reprefill: list[list[float]] = field(default_factory=list)
    prompts: list[tuple[int, int]] = field(default_factory=list)
    """(tokens, new ones among them) of each turn."""

    def __post_init__(self) -> None:
        self.keeping, self.anew = (Engine(self.loaded, self.decoding) for _ in range(2))

    def measure(self) -> None:
        vocab_size, plan = self.loaded.model.shape.vocab_size, self.plan
        # Greedy, so that every round has the same answers.
        answer = SamplingParams((0.0,), max_tokens=plan.turn_answer)
        first = SamplingParams((0.0,), max_tokens=1)
        tokens: list[int] = []
        self._start_over()
        self.prompts.clear()
        self.reuse.append([])
        self.reprefill.append([])
        for turn in range(plan.turns):
            message = _message(turn, plan.turn_prompt, vocab_size)
            # The last token of the answer before was sampled and never run: it is new, too.
            self.prompts.append((len(tokens) + len(message), len(message) + (turn > 0)))
            tokens = tokens + message
            said: list[int] = []
            steps = self.keeping.generate(tokens, 1, answer, tools=False, reuse_cache=True)
            self.reuse[-1].append(timed(_noting(steps, said)).ttft_s)
            steps = self.anew.generate(tokens, 1, first, tools=False)
            self.reprefill[-1].append(timed(steps).ttft_s)
            tokens = tokens + said

    def _start_over(self) -> None:
        """Ask something else: what the last round left in the cache must not help this one."""
        opening = _message(0, 1, self.loaded.model.shape.vocab_size)[0]
        unrelated = [(opening + 1) % self.loaded.model.shape.vocab_size]
        one = SamplingParams((0.0,), max_tokens=1)
        for _ in self.keeping.generate(unrelated, 1, one, tools=False, reuse_cache=True):
            pass

    def forget(self) -> None:
        self.reuse.clear()
        self.reprefill.clear()

    def work(self) -> tuple[float, float]:
        model, plan = self.loaded.model, self.plan
        per_turn = plan.turn_prompt + plan.turn_answer
        flops, read = 0, 0.0
        for turn in range(plan.turns):
            prompt = turn * per_turn + plan.turn_prompt
            flops += counts.prefill_flops(model, prompt)
            flops += counts.prefill_flops(model, plan.turn_prompt)
            read += plan.turn_answer * counts.step_bytes(model, 1, prompt, plan.turn_answer)
        return flops, read

    def turns(self) -> tuple[Turn, ...]:
        return tuple(
            Turn(
                turn=number + 1,
                prompt_tokens=tokens,
                new_tokens=new,
                reprefill_ttft_s=median([round_[number] for round_ in self.reprefill]),
                reuse_ttft_s=median([round_[number] for round_ in self.reuse]),
            )
            for number, (tokens, new) in enumerate(self.prompts)
        )


def _message(turn: int, count: int, vocab_size: int) -> list[int]:
    """What the user says in a turn, always the same."""
    return random.Random(turn).choices(range(vocab_size), k=count)


def _noting(steps: Iterator[Step], said: list[int]) -> Columns:
    """`steps` as they come, their tokens put into `said`."""
    for step in steps:
        said.extend(token for token in step.tokens if token is not None)
        yield step


class Suite:
    """All cases of a plan for one model."""

    def __init__(
        self,
        loaded: LoadedModel,
        plan: Plan,
        *,
        tell: Tell = silent,
        progress: Tell = silent,
        reference: Generate | None = None,
        decoding: Decoding | None = None,
    ) -> None:
        """
        Args:
            tell: is told what a log should have, a line at a time.
            progress: is told what is being done just now.
            reference: another way to run the same model; its decodes are measured beside ours and
                reported as `eager`.
            decoding: of the engine.
        """
        plan, note = plan.fitted(loaded.model.shape.context)
        if note:
            tell(note)
        self.loaded, self.plan = endless(loaded), plan
        self.tell, self.progress = tell, progress
        model = loaded.model
        self.engine = Engine(self.loaded, decoding)
        generate = ours(self.engine)

        def cases_of(how: Generate) -> list[Generation]:
            return [
                Generation(model, how, prompt, rows, plan.decode_tokens + 1)
                for prompt in plan.prompt_tokens
                for rows in plan.rows
            ]

        self.decodes = cases_of(generate)
        self.references = cases_of(reference) if reference else []
        # Where one row is decoded, its prefill is measured with it.
        alone = [case for case in self.decodes if case.rows == 1]
        self.firsts = (
            []
            if alone
            else [Generation(model, generate, prompt, 1, 1) for prompt in plan.prompt_tokens]
        )
        self.prefills = alone or self.firsts
        shared, rows = plan.shared_prompt, plan.shared_rows
        self.shared = Generation(model, generate, shared, rows, 1)
        self.naive = PrefillForEach(Generation(model, generate, shared, 1, 1), rows)
        self.chat = Chat(self.loaded, plan, decoding)

    def cases(self) -> list[Case]:
        chat = [self.chat] if self.plan.turns else []
        generations = [*self.firsts, *self.decodes, *self.references]
        return [*generations, self.shared, self.naive, *chat]

    def run(self) -> Report:
        """Measure everything; see `Plan.limit_s` for how long."""
        plan, model = self.plan, self.loaded.model
        self.progress("Measuring the machine: a copy, a sum, a matrix product.")
        machine = ceilings.measure(model.device, model.dtype, plan)
        cases = self.cases()
        seconds = (plan.repeats + 1) * sum(_expected(case, machine) for case in cases)
        self.tell(
            f"{len(cases)} cases, {plan.repeats} + 1 rounds, the first to warm up:"
            f" some {seconds:.0f} s, at most about {plan.limit_s:.0f} s."
        )
        rounds = self._measure(cases)
        return self._report(replace(machine, rounds=rounds))

    def _measure(self, cases: Sequence[Case]) -> int:
        """Warm up, then measure; the number of rounds."""
        repeats, limit_s = self.plan.repeats, self.plan.limit_s
        began = time.perf_counter()
        for number, case in enumerate(cases):
            self.progress(f"Warming up: {number + 1}/{len(cases)}.")
            case.measure()
        round_s = time.perf_counter() - began
        if 2 * round_s > limit_s:
            self.tell(f"The time is up: of {repeats} rounds there is only the one to warm up.")
            return 1
        for case in cases:
            case.forget()
        rounds = 0
        while rounds < repeats:
            if time.perf_counter() - began + round_s > limit_s:
                self.tell(f"The time is up after {rounds} of {repeats} rounds.")
                break
            gc.collect()  # so that it falls into no case
            started = time.perf_counter()
            for number, case in enumerate(cases):
                self.progress(
                    f"Round {rounds + 1}/{repeats}, case {number + 1}/{len(cases)};"
                    f" a round takes {round_s:.0f} s."
                )
                case.measure()
            round_s = time.perf_counter() - started
            rounds += 1
        return rounds

    def _report(self, machine: Machine) -> Report:
        naive = median(self.naive.seconds)
        shared = SharedPrefill(
            self.shared.prompt_tokens, self.shared.rows, self.shared.ttft(), naive
        )
        return Report(
            machine=machine,
            model=self._subject(),
            prefill=tuple(self._prefill(case, machine) for case in self.prefills),
            decode=tuple(case.decode(machine) for case in self.decodes),
            shared_prefill=(shared,),
            conversation=self.chat.turns() if self.plan.turns else (),
            eager=tuple(case.decode(machine) for case in self.references),
        )

    def _prefill(self, case: Generation, machine: Machine) -> Prefill:
        seconds = case.ttft()
        flops = counts.prefill_flops(case.model, case.prompt_tokens)
        return Prefill(
            prompt_tokens=case.prompt_tokens,
            seconds=seconds,
            tokens_per_s=case.prompt_tokens / seconds,
            mfu=counts.mfu(flops, seconds, machine.matmul_flops_per_s),
        )

    def _subject(self) -> Subject:
        info = self.engine.info
        return Subject(
            name=info.name,
            family=info.family,
            parameters=info.parameters,
            weight_bytes=info.weight_bytes,
            kv_bytes_per_token=info.kv_bytes_per_token,
            context=info.context,
            dtype=info.dtype,
            device=info.device,
            backend=info.backend,
            backend_note=info.backend_note,
            decoding=self.engine.decoding,
            kv=tuple(case.kv() for case in self.decodes),
        )


def _expected(case: Case, machine: Machine) -> float:
    """Seconds that one measurement of `case` should take."""
    flops, read = case.work()
    return flops / (EXPECTED_MFU * machine.matmul_flops_per_s) + read / (
        EXPECTED_MBU * machine.copy_bytes_per_s
    )
