"""The network against what karpathy/nanochat itself computes (V0, V3, V6), and every variant
against a straight-line reading of the architecture; cached decoding against the full pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kv_cache import Cache, KVCache, SharedPrefixCache
from engine.loading.nanochat import load_checkpoint
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS, Config
from tests.engine.nanochat_noise import noise, small_config

DATA = Path(__file__).parents[1] / "data" / "nanochat"
TOLERANCE = 1e-4
REAL = ("V0", "V3", "V6")
# nanochat rounded its rotary tables to bfloat16 until V6; these were made with float32 ones.
ROTARY_IN_FLOAT32 = {"V0": "_rope32", "V3": "_rope32", "V6": ""}


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    """On one thread: models this small gain nothing from two, and lose much beside a busy core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def assert_same(logits: Tensor, expected: Tensor) -> None:
    assert logits.dtype == torch.float32
    assert logits.shape == expected.shape
    assert (logits - expected).abs().max().item() < TOLERANCE
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


def full(model: NanochatModel, ids: Tensor) -> Tensor:
    """Logits of all positions of `ids` (T,) in one pass, (T, V)."""
    return model.forward(ids[None], model.new_cache(1, len(ids)), all_positions=True)[0]


# Against nanochat itself.


def real(variant: str) -> NanochatModel:
    return load_checkpoint(DATA / variant / "chatsft_checkpoints/d4", dtype=torch.float32).model


def recorded(name: str) -> Tensor:
    return torch.from_numpy(np.load(DATA / name))


def prompt(variant: str, name: str = "prompt_320") -> Tensor:
    return torch.tensor(json.loads((DATA / variant / "prompts.json").read_text())[name])


@pytest.mark.parametrize("variant", REAL)
def test_a_full_pass_computes_what_nanochat_computes(variant: str) -> None:
    logits = full(real(variant), prompt(variant)[:200])
    assert_same(logits, recorded(f"{variant}/logits_full{ROTARY_IN_FLOAT32[variant]}.npy"))


@pytest.mark.parametrize("variant", ["V3", "V6"])
def test_it_does_so_where_the_long_window_cuts_too(variant: str) -> None:
    logits = full(real(variant), prompt(variant))
    expected = recorded(f"{variant}/logits_long{ROTARY_IN_FLOAT32[variant]}.npy")
    assert_same(logits[250:], expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("variant", REAL)
def test_decoding_three_rows_from_one_prefill_computes_it_too(variant: str, shared: bool) -> None:
    model, ids = real(variant), prompt(variant)
    prefilled = model.new_cache(1, 150)
    rows = [model.forward(ids[None, :150], prefilled).expand(3, -1)]
    cache = for_rows(model, prefilled, 3, 200, shared)
    rows += [model.forward(ids[None, t : t + 1].expand(3, 1), cache) for t in range(150, 200)]
    if variant == "V6":
        expected = recorded("V6/logits_incremental.npy")
    else:
        expected = recorded(f"{variant}/logits_full_rope32.npy")[149:]
    for row in range(3):
        assert_same(torch.stack(rows)[:, row], expected)


def test_odd_sizes_and_a_padded_vocabulary_make_no_difference() -> None:
    model = load_checkpoint(DATA / "V3/odd/base_checkpoints/d3", dtype=torch.float32).model
    logits = full(model, prompt("V3", "odd_300"))
    assert model.shape.vocab_size == 333
    assert_same(logits[-64:], recorded("V3/odd/logits_full_rope32.npy"))


@pytest.mark.parametrize("run", ["long_prompt", "chat_prompt", "tool_calls"])
@pytest.mark.parametrize("variant", REAL)
def test_greedy_decoding_chooses_nanochats_tokens(variant: str, run: str) -> None:
    """Tokens that were forced, or put in place of a sample, are fed as recorded; every other one
    must be the likeliest."""
    model = real(variant)
    runs = json.loads((DATA / variant / f"greedy{ROTARY_IN_FLOAT32[variant]}.json").read_text())
    recording = runs[run]
    overrides = recording.get("overrides", [{}] * recording["num_samples"])
    prefilled = model.new_cache(1, len(recording["prompt"]))
    logits = model.forward(torch.tensor([recording["prompt"]]), prefilled).expand(3, -1)
    cache = model.new_cache(3, len(recording["prompt"]) + recording["max_tokens"])
    cache.prefill(prefilled)
    columns = zip(recording["engine_token_columns"], recording["engine_token_masks"], strict=True)
    for step, (tokens, masks) in enumerate(columns):
        for row, (token, mask) in enumerate(zip(tokens, masks, strict=True)):
            if mask == 1 and str(step) not in overrides[row]:
                assert logits[row].argmax().item() == token, f"step {step}, row {row}"
        logits = model.forward(torch.tensor(tokens)[:, None], cache)


# Against the architecture as its table says it: one row, no cache, float64, masks in full.

#                 rotary q,k        short window of
#                 base   scale cap  a training length           gate
PUBLISHED = {
    "V0": (10_000, 1.0, 15, None, None),
    "V1": (10_000, 1.0, 15, None, None),
    "V2": (10_000, 1.0, 15, lambda n: n // 2, None),
    "V3": (10_000, 1.0, 15, lambda n: n // 2, (32, 2)),
    "V3e": (10_000, 1.0, 15, lambda n: n // 2, (32, 2)),
    "V4": (10_000, 1.0, 20, lambda n: n // 2, (32, 2)),
    "V5": (100_000, 1.15, 15, lambda n: next(w for w in range(0, n, 128) if 3 * w >= n), (12, 3)),
    "V6": (100_000, 1.2, 15, lambda n: next(w for w in range(0, n, 128) if 4 * w >= n), (12, 3)),
}


def straight(variant: str, config: Config, tensors: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Logits (T, V) of one row."""
    w = {name: tensor.double() for name, tensor in tensors.items()}
    base, scale, cap, short, gate = PUBLISHED[variant]
    tokens: list[int] = ids.tolist()
    time, layers, dim = len(tokens), config.n_layer, config.n_embd // config.n_head
    group = config.n_head // config.n_kv_head

    def norm(x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 2.0**-23).sqrt()

    def rotated(head: Tensor) -> Tensor:
        out = torch.empty_like(head)
        for i in range(dim // 2):
            theta = torch.arange(time).double() * base ** (-2 * i / dim)
            a, b = head[:, i], head[:, i + dim // 2]
            out[:, i] = a * theta.cos() + b * theta.sin()
            out[:, i + dim // 2] = b * theta.cos() - a * theta.sin()
        return norm(out) * scale

    x = norm(w["transformer.wte.weight"][ids])
    if "smear_lambda" in w:
        share = w["smear_lambda"] * torch.sigmoid(x[:, :24] @ w["smear_gate.weight"].T)
        x = torch.stack([x[t] + share[t] * x[t - 1] if t else x[t] for t in range(time)])
    if "bigram_lambdas" in w:
        table = w["bigram_embed.embed.weight"]
        last = len(table) - 1
        hashes = [((36313 * new) ^ (27191 * old)) % last for old, new in pairwise(tokens)]
        bigrams = table[torch.tensor([last, *hashes])]
    start = middle = x
    for i in range(layers):
        if "resid_lambdas" in w:
            x = w["resid_lambdas"][i] * x + w["x0_lambdas"][i] * start
        if "bigram_lambdas" in w:
            x = x + w["bigram_lambdas"][i] * bigrams
        letter = "L" if i == layers - 1 else config.window_pattern[i % len(config.window_pattern)]
        left = config.sequence_len
        if short is None:
            left = time
        elif letter == "S":
            left = short(config.sequence_len)
        mask = torch.tensor([[t - left <= s <= t for s in range(time)] for t in range(time)])
        block = f"transformer.h.{i}."
        h = norm(x)
        q, k, v = (h @ w[f"{block}attn.c_{name}.weight"].T for name in "qkv")
        heads = []
        for head in range(config.n_head):
            kv = head // group
            mine, theirs = slice(head * dim, (head + 1) * dim), slice(kv * dim, (kv + 1) * dim)
            value = v[:, theirs]
            if f"value_embeds.{i}.weight" in w and gate is not None:
                channels, times = gate
                gates = h[:, :channels] @ w[f"{block}attn.ve_gate.weight"][kv]
                embedded = w[f"value_embeds.{i}.weight"][ids][:, theirs]
                value = value + times * torch.sigmoid(gates)[:, None] * embedded
            scores = rotated(q[:, mine]) @ rotated(k[:, theirs]).T / dim**0.5
            heads.append(scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value)
        x = x + torch.cat(heads, -1) @ w[f"{block}attn.c_proj.weight"].T
        hidden = F.relu(norm(x) @ w[f"{block}mlp.c_fc.weight"].T) ** 2
        x = x + hidden @ w[f"{block}mlp.c_proj.weight"].T
        if i == layers // 2:
            middle = x
    if "backout_lambda" in w:
        x = x - w["backout_lambda"] * middle
    logits = norm(x) @ w["lm_head.weight"].T
    return (cap * torch.tanh(logits / cap))[:, : config.vocab_size].float()


def noisy(variant: str, **kwargs: Any) -> tuple[NanochatModel, Tensor]:
    """A model of noise and 300 tokens."""
    config = small_config(variant)
    model = NanochatModel(config, VARIANTS[variant], noise(config, variant), **kwargs)
    random = torch.Generator().manual_seed(1)
    return model, torch.randint(config.vocab_size, (300,), generator=random)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_what_its_row_of_the_table_says(variant: str) -> None:
    model, ids = noisy(variant)
    config = small_config(variant)
    expected = straight(variant, config, noise(config, variant), ids)
    assert_same(full(model, ids), expected)
    assert expected.std() > 1, "the noise must make logits that differ"


def test_a_bigram_table_may_have_five_rows_per_unpadded_token() -> None:
    config = small_config("V3e", bigram_rows=5 * 90)
    tensors = noise(config, "V3e")
    model = NanochatModel(config, VARIANTS["V3e"], tensors)
    ids = torch.arange(60) % 90
    assert_same(full(model, ids), straight("V3e", config, tensors, ids))


@pytest.mark.parametrize(
    ("variant", "short"), [("V2", 1024), ("V3", 1024), ("V4", 1024), ("V5", 768), ("V6", 512)]
)
def test_short_windows_at_nanochats_own_length(variant: str, short: int) -> None:
    config = small_config(variant, sequence_len=2048, window_pattern="SSSL", n_layer=6)
    s, long = (short, 0), (2048, 0)
    assert config.windows(VARIANTS[variant]) == [s, s, s, long, s, long]


@pytest.mark.parametrize("variant", ["V0", "V1"])
def test_the_first_variants_have_no_windows(variant: str) -> None:
    assert small_config(variant).windows(VARIANTS[variant]) == [(-1, -1)] * 5


# Cached decoding against the full pass.


def for_rows(model: NanochatModel, prefilled: KVCache, rows: int, seq: int, shared: bool) -> Cache:
    if shared:
        return SharedPrefixCache(prefilled, rows)
    cache = model.new_cache(rows, seq)
    cache.prefill(prefilled)
    return cache


@pytest.mark.parametrize("chunks", [(300,), (1, 299), (150, 150), (100, 1, 1, 60, 138)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_prompt_in_chunks_is_the_prompt(variant: str, chunks: tuple[int, ...]) -> None:
    model, ids = noisy(variant)
    both = torch.stack((ids, ids.flip(0)))
    cache = model.new_cache(2, 300)
    parts = [model.forward(part, cache, all_positions=True) for part in both.split(chunks, 1)]
    for row in range(2):
        assert_same(torch.cat(parts, 1)[row], full(model, both[row]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_that_part_after_the_prompt_each_go_their_own_way(variant: str, shared: bool) -> None:
    """Three rows part at once; after 20 steps the middle one is dropped and the others change
    places, as when a row has finished."""
    model, ids = noisy(variant)
    at, later, end = 260, 280, 300
    whole = torch.stack([torch.cat((ids[:at], (ids[at:] + 7 * row) % 90)) for row in range(3)])
    expected = [full(model, row) for row in whole]
    prefilled = model.new_cache(1, at)
    assert_same(model.forward(ids[None, :at], prefilled)[0], expected[0][at - 1])
    cache = for_rows(model, prefilled, 3, end, shared)
    for t in range(at, later):
        logits = model.forward(whole[:, t : t + 1], cache)
        for row in range(3):
            assert_same(logits[row], expected[row][t])
    cache.keep([2, 0])
    for t in range(later, end):
        logits = model.forward(whole[[2, 0], t : t + 1], cache)
        assert_same(logits[0], expected[2][t])
        assert_same(logits[1], expected[0][t])
    assert cache.length == end


def test_a_clone_does_not_touch_the_cache_that_it_came_from() -> None:
    """The next turn of a conversation goes on in the prefill's cache after its rows have run."""
    for variant in ("V3e", "V6"):
        model, ids = noisy(variant)
        prefilled = model.new_cache(1, 300)
        model.forward(ids[None, :200], prefilled)
        for shared in (False, True):
            model.forward(
                torch.zeros(2, 1, dtype=torch.long), for_rows(model, prefilled, 2, 300, shared)
            )
        logits = model.forward(ids[None, 200:], prefilled, all_positions=True)[0]
        assert_same(logits, full(model, ids)[200:])


# Types and counts.


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_is_the_same_model_less_precisely(variant: str) -> None:
    exact, ids = noisy(variant)
    rounded, _ = noisy(variant, dtype=torch.bfloat16)
    prefilled = rounded.new_cache(1, 250)
    rounded.forward(ids[None, :250], prefilled)
    rows = []
    for shared in (False, True):
        cache = for_rows(rounded, prefilled, 2, 300, shared)
        steps = [rounded.forward(ids[None, t : t + 1].expand(2, 1), cache) for t in range(250, 300)]
        rows.append(torch.stack(steps)[:, 1])
    for logits in rows:
        assert logits.dtype == torch.float32
        assert (logits - full(exact, ids)[250:]).abs().mean().item() < 0.1
    assert prefilled.k.dtype == torch.bfloat16


def test_parameters_are_counted_as_nanochat_does_and_bytes_as_a_step_reads_them() -> None:
    config = small_config("V6")
    tensors = noise(config, "V6")
    model = NanochatModel(config, VARIANTS["V6"], tensors, dtype=torch.bfloat16)
    assert model.parameters() == sum(tensor.numel() for tensor in tensors.values())
    block = 64 * (64 + 32 + 32) + 64 * 64 + 2 * 64 * 256
    assert model.weight_bytes() == 2 * (5 * block + 90 * 64)


def test_weights_that_fit_are_not_copied() -> None:
    config = small_config("V0")
    tensors = noise(config, "V0")
    model = NanochatModel(config, VARIANTS["V0"], tensors)
    before = full(model, torch.arange(5))
    tensors["lm_head.weight"].zero_()
    assert full(model, torch.arange(5)).abs().max().item() == 0
    assert before.abs().max().item() > 0
