"""How a conversation is run: the model, and how its answers are sampled.

`Settings` is what the command line gives to `chat_tui.app.run`; the slash commands replace single
fields of it while the program runs. It is frozen, so that a running answer keeps the settings that
it was asked with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.messages import (
    DEFAULT_KEY_ENV,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    Load,
    SamplingParams,
)

DEFAULT_MODEL = "smollm2"
DEFAULT_SAMPLES = 2
MAX_SAMPLES = 32


@dataclass(frozen=True)
class Settings:
    """What is asked of the engine, and how.

    Attributes:
        model: whatever `--model` takes.
        server: the address of a server that answers in its place; None is this machine.
        server_model: the model's name there; empty is the first that it lists.
        key_env: the environment variable that holds the server's key.
        samples: answers per message.
        temperatures: one for all answers, or one per answer; 0 is greedy.
        top_ks: sample among the k likeliest tokens, None is all of them; one for all answers, or
            one per answer.
        max_tokens: new tokens per answer; None is what the context holds.
        seed: None takes a fresh one for every message.
        system: the system text; None is the model's own default.
        tools: whether the model is shown the calculator.
        reuse_cache: prefill only what is new, in the picked answer's KV state.
        device, dtype, threads: as `engine.messages.Load` takes them.
        assume: what the checkpoint does not say and the user settles.
    """

    model: str = DEFAULT_MODEL
    server: str | None = None
    server_model: str = ""
    key_env: str = DEFAULT_KEY_ENV
    samples: int = DEFAULT_SAMPLES
    temperatures: tuple[float, ...] = (DEFAULT_TEMPERATURE,)
    top_ks: tuple[int | None, ...] = (DEFAULT_TOP_K,)
    max_tokens: int | None = None
    seed: int | None = None
    system: str | None = None
    tools: bool = True
    reuse_cache: bool = False
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    assume: tuple[tuple[str, object], ...] = ()

    def load(self) -> Load:
        if self.server is not None:
            return Load(self.server_model, server=self.server, key_env=self.key_env)
        return Load(self.model, self.device, self.dtype, self.threads, dict(self.assume))

    @property
    def asked_for(self) -> str:
        """The model, by the name that the user knows it by."""
        return self.model if self.server is None else self.server_model or self.server

    def changed(self, field: str, value: object) -> Settings:
        """With one field replaced, as a command names it: the model is the one where answers come
        from, and another server has other names."""
        if field == "model" and self.server is not None:
            field = "server_model"
        settings = replace(self, **{field: value})  # type: ignore[arg-type]
        if field in ("temperatures", "top_ks"):  # none of them is to go without an answer
            asked = len(getattr(settings, field))
            return replace(settings, samples=max(settings.samples, asked))
        return replace(settings, server_model="") if field == "server" else settings

    def answered_like(self, other: Settings) -> Settings:
        """With the model, and the place where it runs, of `other`."""
        return replace(
            self, model=other.model, server=other.server, server_model=other.server_model
        )

    def params(self) -> SamplingParams:
        return SamplingParams(self.temperatures, self.top_ks, self.max_tokens, self.seed)


def show_top_k(top_k: int | None) -> str:
    return "all tokens" if top_k is None else f"top-k {top_k}"
