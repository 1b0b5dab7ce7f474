"""How a conversation is run: which models answer, and how their answers are sampled.

`Settings` is what the command line gives to `chat_tui.start.run`; the slash commands replace single
fields of it while the program runs. It is frozen, so that a running answer keeps the settings that
it was asked with. `Settings.setups()` is one `Setup` for each answer to the next message: every
model answers under every system text, with as many samples; `/pane` changes single ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from chat_tui.model import Model
from engine.messages import (
    DEFAULT_KEY_ENV,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    Load,
    SamplingParams,
    per_row,
)
from engine.threads import share

DEFAULT_MODEL = "smollm2"
DEFAULT_SAMPLES = 2
MAX_SAMPLES = 32
"""Answers to one message, those of all models together."""

HERE = "local"
"""Behind an @, in the place of a server's address."""


class SettingsError(ValueError):
    """A value that is fine by itself and not with the others. `str(error)` is one line."""


class Source(NamedTuple):
    """A model and where it runs.

    Attributes:
        name: whatever `--model` takes; of a server, its name there, and empty is the first that it
            lists.
        server: the server's address; None is this machine.
    """

    name: str = DEFAULT_MODEL
    server: str | None = None

    @classmethod
    def of(cls, text: str, server: str | None = None) -> Source:
        """As it is spelled: `NAME` (at `server`), `NAME@http://HOST:PORT`, the address alone, or
        `NAME@local` for a model of this machine."""
        told = re.fullmatch(r"(?:(.*?)@)?(https?://.+)", text)
        if told:
            return cls(told[1] or "", told[2])
        if text.endswith(f"@{HERE}"):
            return cls(text.removesuffix(f"@{HERE}"))
        return cls(text, server)

    def __str__(self) -> str:
        return self.name if self.server is None else f"{self.name}@{self.server}".removeprefix("@")

    @property
    def label(self) -> str:
        """By the name that the user knows it by."""
        return self.name or str(self)

    @property
    def stand_in(self) -> Model:
        """For what only looks at names and places."""
        return Model(self.label, self.server or "")


class Setup(NamedTuple):
    """What one answer is asked with. A system text of None is the model's own, a top-k of None all
    tokens."""

    model: Source
    system: str | None
    temperature: float
    top_k: int | None


OwnField = Literal["model", "system", "temperature", "top_k", ""]


class Own(NamedTuple):
    """What a pane (counted from 0) has for itself: a field of its `Setup`; "" takes all of it
    back."""

    pane: int
    field: OwnField
    value: object = None


_OF_ALL = {"models": "model", "systems": "system", "temperatures": "temperature", "top_ks": "top_k"}
"""Fields of the settings, and what panes may have of their own in their place."""


@dataclass(frozen=True)
class Settings:
    """What is asked of the models, and how.

    Attributes:
        models: those that answer, side by side.
        here: the models that answer again after `/server off`.
        key_env: the environment variable that holds a server's key.
        samples: answers per message, of each model and under each system text.
        temperatures: one for all of these, or one per answer; 0 is greedy.
        top_ks: sample among the k likeliest tokens, None is all of them; one, or one per answer.
        max_tokens: new tokens per answer; None is what the context holds.
        seed: of each model's first answer, the next one has the next; None takes a fresh one for
            every message.
        systems: the system texts; None is the model's own default.
        own: what single panes have for themselves.
        tools: whether the models are shown the calculator.
        reuse_cache: prefill only what is new, in the picked answer's KV state.
        device, dtype, threads: as `engine.messages.Load` takes them.
        assume: what the checkpoint does not say and the user settles.
    """

    models: tuple[Source, ...] = (Source(),)
    here: tuple[Source, ...] = (Source(),)
    key_env: str = DEFAULT_KEY_ENV
    samples: int = DEFAULT_SAMPLES
    temperatures: tuple[float, ...] = (DEFAULT_TEMPERATURE,)
    top_ks: tuple[int | None, ...] = (DEFAULT_TOP_K,)
    max_tokens: int | None = None
    seed: int | None = None
    systems: tuple[str | None, ...] = (None,)
    own: tuple[Own, ...] = ()
    tools: bool = True
    reuse_cache: bool = False
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    assume: tuple[tuple[str, object], ...] = ()

    # What comes of it.

    def setups(self) -> tuple[Setup, ...]:
        """What is asked for with a message: one for each pane."""
        setups = [
            Setup(model, system, temperature, top_k)
            for model in self.models
            for system in self.systems
            for temperature, top_k in zip(
                per_row(self.temperatures, self.samples),
                per_row(self.top_ks, self.samples),
                strict=True,
            )
        ]
        for own in self.own:
            if own.pane < len(setups):
                field: dict[str, object] = {own.field: own.value}
                setups[own.pane] = setups[own.pane]._replace(**field)  # type: ignore[arg-type]
        return tuple(setups)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The models that are needed for that, in the order of their first panes."""
        return tuple(dict.fromkeys(setup.model for setup in self.setups()))

    @property
    def server(self) -> str | None:
        """Where a model runs that is named without a place."""
        return self.models[0].server

    def loads(self) -> dict[Source, Load]:
        """How each of them is loaded. Those that run on this machine share its cores."""
        here = [source for source in self.sources if source.server is None]
        threads = share(len(here)) if len(here) > 1 else None
        return {
            source: Load(
                source.name,
                self.device,
                self.dtype,
                self.threads or threads,
                dict(self.assume),
                beside=source in here[1:],
            )
            if source.server is None
            else Load(source.name, server=source.server, key_env=self.key_env)
            for source in self.sources
        }

    def params(self, setups: Sequence[Setup]) -> SamplingParams:
        """How answers to one prompt are sampled."""
        return SamplingParams(
            tuple(setup.temperature for setup in setups),
            tuple(setup.top_k for setup in setups),
            self.max_tokens,
            self.seed,
        )

    # Other settings.

    def changed(self, field: str, value: object) -> Settings:
        """With one field replaced, as a command names it.

        Raises:
            SettingsError: there is no such pane, or there would be too many.
        """
        if field == "own":
            assert isinstance(value, Own)
            return self._with_own(value)
        if field == "server":
            return self._at(value if isinstance(value, str) else None)
        if field == "models":
            assert isinstance(value, tuple)
            value = tuple(dict.fromkeys(self._source(model) for model in value))
        settings = replace(self, **{field: value})  # type: ignore[arg-type]
        if field in ("temperatures", "top_ks"):  # none of them is to go without an answer
            most = max(settings.samples, len(getattr(settings, field)))
            settings = replace(settings, samples=most)
        if field in _OF_ALL:  # what is said of all is said of each
            kept = tuple(own for own in self.own if own.field != _OF_ALL[field])
            settings = replace(settings, own=kept)
        return settings.checked()

    def checked(self) -> Settings:
        """Itself.

        Raises:
            SettingsError: it asks for more answers than there may be.
        """
        models, systems = len(self.models), len(self.systems)
        total = models * systems * self.samples
        if total > MAX_SAMPLES:
            parts = [f"{self.samples} samples", f"{models} models", f"{systems} system texts"]
            shown = [part for part in parts if not part.startswith("1 ")]
            raise SettingsError(
                f"{' × '.join(shown)} are {total} answers to each message; {MAX_SAMPLES} is the"
                " most."
            )
        return self

    def without(self, source: Source) -> Settings:
        """With no pane for a model; there must be another one."""
        own = tuple(own for own in self.own if own.value != source)
        settings = replace(self, own=own)
        models = tuple(model for model in self.models if model != source)
        return replace(settings, models=models) if models else settings

    def answered_like(self, other: Settings) -> Settings:
        """With the models of `other`, and the places where they run."""
        return replace(self, models=other.models, here=other.here, own=other.own)

    def _source(self, model: object) -> Source:
        return model if isinstance(model, Source) else Source.of(str(model), self.server)

    def _at(self, server: str | None) -> Settings:
        if server is None:
            return self.changed("models", self.here)
        here = tuple(model for model in self.models if model.server is None) or self.here
        return replace(self, here=here).changed("models", (Source("", server),))

    def _with_own(self, own: Own) -> Settings:
        panes = len(self.setups())
        if own.pane >= panes:
            there = "is 1 pane" if panes == 1 else f"are {panes} panes"
            raise SettingsError(f"There {there}, no {own.pane + 1}: /samples makes more.")
        value = self._source(own.value) if own.field == "model" else own.value
        kept = tuple(
            other
            for other in self.own
            if other.pane != own.pane or (own.field and other.field != own.field)
        )
        new = (own._replace(value=value),) if own.field else ()
        return replace(self, own=(*kept, *new))


def by_prompt(setups: Iterable[Setup]) -> dict[tuple[Source, str | None], list[int]]:
    """The places of the answers that share a prompt: one model, one system text, one prefill."""
    places: dict[tuple[Source, str | None], list[int]] = {}
    for place, setup in enumerate(setups):
        places.setdefault((setup.model, setup.system), []).append(place)
    return places


def show_top_k(top_k: int | None) -> str:
    return "all tokens" if top_k is None else f"top-k {top_k}"
