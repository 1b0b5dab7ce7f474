"""The native step computes what PyTorch computes, for every family and on every kind of machine
that it is written for, and a row's result does not depend on its neighbours."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from engine import Engine, SamplingParams, scoring
from engine.attention import attend
from engine.kv_cache import KVCache, SharedPrefixCache, Spans
from engine.models.base import Shape
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS
from engine.models.pieces import ACTIVATIONS, PLAIN, compiled
from engine.native import library, prompt
from engine.native.library import Native
from engine.native.logits import measure, sample
from engine.native.packing import pack_4bit, pack_8bit
from engine.native.program import LOGITS, Matrix, Program, multiply
from engine.sampling import Kept, choose
from tests.engine.nanochat_noise import noise as noise_of
from tests.engine.nanochat_noise import small_config
from tests.engine.test_families import CONFIGS, TOKENS, load, saved

pytestmark = pytest.mark.skipif(library.load() is None, reason=library.reason())

MACHINES = {
    "this machine": None,
    "AVX2": ("-O0", "-mavx2", "-mfma"),
    "any machine": ("-O0", "-Wall", "-Wextra", "-Werror"),
}
"""Compiler flags. Optimising takes ten times as long."""


def can_run(name: str) -> bool:
    cpu = Path("/proc/cpuinfo")
    return name != "AVX2" or (cpu.exists() and " avx2 " in cpu.read_text())


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if can_run(name) else pytest.mark.skip(f"this has no {name}"))
        for name in MACHINES
    ],
)
def native(request, tmp_path_factory) -> Native:
    flags = MACHINES[request.param]
    if flags is None:
        found = library.load()
        assert found is not None
        return found
    return library.open_library(library.build(tmp_path_factory.mktemp("native"), flags))


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_4_bits(out: int, inputs: int, native: Native) -> tuple[Matrix, torch.Tensor]:
    codes = torch.randint(0, 16, (out, inputs), generator=torch.Generator().manual_seed(1))
    scales = noise(out, inputs // 32, seed=2).abs().bfloat16().float() / 8
    zeros = noise(out, inputs // 32, seed=3).bfloat16().float()
    blocks = pack_4bit(codes.to(torch.uint8), scales, zeros - 8 * scales, native.lanes)
    weight = scales[..., None] * (codes.view(out, -1, 32) - 8) + zeros[..., None]
    return Matrix.packed(4, blocks, out), weight.view(out, inputs)


def in_8_bits(out: int, inputs: int, native: Native) -> tuple[Matrix, torch.Tensor]:
    codes = torch.randint(-127, 128, (out, inputs // 32, 32)).float()
    codes[..., 0] = 127  # so that the scales come out as they went in
    weight = codes * noise(out, inputs // 32, 1, seed=4).abs().bfloat16().float()
    weight = weight.view(out, inputs)
    return Matrix.packed(8, pack_8bit(weight, native.lanes), out), weight


def dense(dtype: torch.dtype) -> object:
    def matrix(out: int, inputs: int, native: Native) -> tuple[Matrix, torch.Tensor]:
        weight = noise(out, inputs, seed=5).to(dtype)
        (found,) = Matrix.dense(weight)
        return found, weight.float()

    return matrix


FORMS = {
    "4 bits": in_4_bits,
    "8 bits": in_8_bits,
    "bfloat16": dense(torch.bfloat16),
    "float32": dense(torch.float32),
}


@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_of_the_weights_for_any_number_of_rows(native, form):
    out, inputs = 77, 96  # not a whole number of blocks
    matrix, weight = FORMS[form](out, inputs, native)
    x = noise(19, inputs, seed=6)
    expected = (x.double() @ weight.double().T).float()
    whole = multiply(native, matrix, x)
    torch.testing.assert_close(whole, expected, atol=2e-5 * float(expected.abs().max()), rtol=1e-5)
    for rows in range(1, 19):
        assert torch.equal(multiply(native, matrix, x[:rows]), whole[:rows])


def attention(native: Native, shape: Shape, dtype: torch.dtype, window: int) -> Program:
    program = Program(native, shape, dtype)
    heads = shape.n_head + 2 * shape.n_kv_head
    qkv = program.register(heads * shape.head_dim)
    attended = program.register(shape.n_head * shape.head_dim)
    program.attend(attended, qkv, 1, window)
    program.product(LOGITS, attended, Matrix.dense(torch.eye(shape.n_head * shape.head_dim)))
    return program


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("window", [-1, 0, 5, 150], ids=lambda window: f"window {window}")
@pytest.mark.parametrize(("prompt", "tail"), [(1, 0), (127, 1), (128, 0), (129, 127), (300, 9)])
def test_attention_is_that_of_the_caches(native, dtype, window, prompt, tail):
    """Over lengths on both sides of a chunk's end, with the prompt in the rows and beside them."""
    rows, heads, kv_heads, dim = 3, 6, 2, 32
    shape = Shape(2, heads, kv_heads, dim, 0, heads * dim, 0)
    program = attention(native, shape, dtype, window)
    prefix = KVCache(2, 1, 320, kv_heads, dim, dtype=dtype)
    size = (2, 2, rows, prompt + tail, kv_heads, dim)
    k, v = noise(*size).to(dtype)
    k[:, :, :prompt], v[:, :, :prompt] = k[:, :1, :prompt], v[:, :1, :prompt]
    prefix.k[:, :, :prompt], prefix.v[:, :, :prompt] = k[:, :1, :prompt], v[:, :1, :prompt]
    prefix.advance(prompt)
    copied = KVCache(2, rows, prompt + tail + 1, kv_heads, dim, dtype=dtype)
    copied.prefill(prefix)
    for cache in (shared := SharedPrefixCache(prefix, rows)), copied:
        for at in range(prompt, prompt + tail):
            for layer in range(2):
                new = (x[layer, :, at : at + 1] for x in (k, v))
                cache.attend(layer, torch.zeros(rows, 1, heads, dim, dtype=dtype), *new)
            cache.advance(1)
    qkv = noise(rows, 1, heads + 2 * kv_heads, dim, seed=7).to(dtype)
    q, new_k, new_v = qkv.split((heads, kv_heads, kv_heads), 2)
    # In float32, so that only what is in the cache has been rounded.
    exact = KVCache(2, rows, prompt + tail + 1, kv_heads, dim)
    exact.k[:, :, :-1], exact.v[:, :, :-1] = (
        x[:, :, : prompt + tail].float() for x in (copied.k, copied.v)
    )
    exact.advance(prompt + tail)
    expected = exact.attend(1, q.float(), new_k.float(), new_v.float(), (window, 0)).flatten(1)
    for cache in (shared, copied):
        flat = qkv.float().flatten(1)
        found = program.run(torch.zeros(rows, 1), cache.spans(), given={0: flat})
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
        (span,) = [spans.own for spans in (cache.spans(),) if isinstance(spans, Spans)]
        assert torch.equal(span.k[1, :, span.length], new_k[:, 0])
        assert torch.equal(span.v[1, :, span.length], new_v[:, 0])


@pytest.mark.parametrize(
    ("batch", "time", "length", "heads", "kv_heads", "dim", "left"),
    [
        (1, 512, 700, 9, 3, 64, -1),
        (1, 77, 77, 9, 3, 64, -1),
        (2, 50, 130, 4, 4, 96, -1),
        (1, 200, 300, 8, 1, 128, 37),
        (1, 2, 65, 2, 2, 32, -1),
        (1, 33, 64, 100, 2, 32, 5),  # more heads in a group than are computed at once
        (1, 100, 100, 6, 2, 256, 0),
        (1, 130, 400, 2, 1, 64, 64),
    ],
)
def test_prompts_attend_as_in_float32(batch, time, length, heads, kv_heads, dim, left):
    q = noise(batch, time, heads, dim).bfloat16()
    k, v = noise(2, batch, length, kv_heads, dim, seed=1).bfloat16()
    native = prompt.attends(q, k, v)
    if native is None:
        pytest.skip(
            "PyTorch attends here: there is no AVX512_BF16, or there is AMX, which is faster"
        )
    head_major = k.transpose(1, 2).contiguous().transpose(1, 2)  # as a cache has them
    found = prompt.attend(
        native, q, head_major, v.transpose(1, 2).contiguous().transpose(1, 2), left, 0.2
    )
    window = (left, 0)
    expected = attend(q.float(), k.float(), v.float(), length, True, window, 0.2)
    torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("width", [96, 90], ids=["in vectors", "not in vectors"])
def test_pieces_are_those_of_pytorch(native, width):
    pieces = compiled(native)
    x, delta = noise(2, 2, 13, width).bfloat16()
    weight, gate_up = noise(width, seed=1).bfloat16(), noise(3, 11, 2 * width, seed=2).bfloat16()
    pairs = [(pieces.gated(gate_up, name), PLAIN.gated(gate_up, name)) for name in ACTIVATIONS]
    for of in (weight, None):
        sides = (way.add_norm(x, delta, of, 1e-5) for way in (pieces, PLAIN))
        pairs += zip(*sides, strict=True)
    for found, expected in pairs:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        torch.testing.assert_close(found, expected, atol=0.04, rtol=0.02)


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_of_each_family_are_those_of_transformers(tmp_path, name):
    reference, path = saved(tmp_path, CONFIGS[name][1], "safetensors")
    loaded = load(path, dtype="float32")
    assert loaded.info.backend == "native"
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS])).logits[0]
        cache = loaded.model.new_cache(1, len(TOKENS))
        first = loaded.model.forward(torch.tensor([TOKENS[:9]]), cache)
        steps = [loaded.model.forward(torch.tensor([[token]]), cache) for token in TOKENS[9:]]
    torch.testing.assert_close(torch.cat((first, *steps)), expected[8:], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_steps_of_each_nanochat_are_those_that_pytorch_computes(variant):
    config = small_config(variant)
    model = NanochatModel(config, VARIANTS[variant], noise_of(config, variant))
    prompt = model.new_cache(1, 300)
    model.forward(torch.tensor([[(7 * i) % 90 for i in range(270)]]), prompt)
    native, model.native = model.native, None
    assert native is not None
    expected, found = ([] for _ in range(2))
    for steps, model.native in ((expected, None), (found, native)):
        cache = SharedPrefixCache(prompt, 3)
        steps += [model.forward(torch.tensor([[i], [i + 7], [i + 50]]), cache) for i in range(9)]
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), atol=2e-4, rtol=1e-4)


def test_it_reads_and_writes_no_memory_but_its_own(tmp_path):
    _, path = saved(tmp_path, CONFIGS["llama"][1], "safetensors")
    model = load(path, dtype="float32").model
    cache = model.new_cache(1, 2)
    for _ in range(2):
        model.forward(torch.tensor([[5]]), cache)
    with pytest.raises(IndexError, match="no room behind the 2 positions"):
        model.forward(torch.tensor([[5]]), cache)
    for wrong in (-1, model.shape.vocab_size):
        with pytest.raises(IndexError, match="outside the vocabulary"):
            model.forward(torch.tensor([[wrong]]), model.new_cache(1, 2))


@torch.inference_mode()
def test_a_row_gets_the_same_bits_whatever_runs_beside_it(smollm2_path):
    model = load(smollm2_path).model
    prompt = model.new_cache(1, 200)
    model.forward(torch.tensor([[(31 * i) % 40000 for i in range(150)]]), prompt)
    tokens = torch.arange(100, 123)[:, None]
    together = model.forward(tokens, SharedPrefixCache(prompt, len(tokens)))
    for first, last in ((0, 1), (3, 5), (7, 10), (10, 17), (1, 20)):
        cache = SharedPrefixCache(prompt, last - first)
        assert torch.equal(model.forward(tokens[first:last], cache), together[first:last])


def test_an_answer_has_the_same_scores_alone_and_among_others(smollm2_path):
    engine = Engine(load(smollm2_path))
    prompt = engine.loaded.tokenizer.encode("The three largest rivers of the world are")

    def first_row(rows: int) -> list[tuple[int, float]]:
        params = SamplingParams(max_tokens=40, seed=5, alternatives=2)
        steps = engine.generate(prompt, rows, params, tools=False)
        return [(step.tokens[0], step.scores[0].logprob) for step in steps if step.scores[0]]

    assert first_row(1) == first_row(2) == first_row(5)


@pytest.mark.parametrize("vocab", [1, 3, 50, 1000, 5003])
def test_logits_are_read_as_pytorch_reads_them(native, vocab):
    logits = 5 * noise(6, vocab)
    logits[1, vocab // 2] = 200.0  # all of the probability
    if vocab > 9:
        logits[2, :9] = -1e4
        logits[3, ::2] = logits[3, 0]  # equal ones
    ids = [0, vocab // 2, vocab - 1, 0, vocab // 3, 0]
    temperatures = [1.0, 0.7, 1.0, 2.0, 0.05, 1.3]
    kept = [vocab, vocab, min(20, vocab), 1, min(40, vocab), vocab]
    scale, counts = torch.tensor(temperatures)[:, None], torch.tensor(kept)[:, None]
    expected = scoring.measure(logits.double(), torch.tensor(ids), 2, scale, Kept(vocab, counts))
    found = torch.tensor(measure(native, logits, ids, 2, temperatures, kept), dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for most in {1, min(20, vocab), min(256, vocab)}:
        cells = torch.tensor(measure(native, logits, ids, most, temperatures, kept))[:, 4:]
        values, places = logits.log_softmax(-1).topk(most)
        torch.testing.assert_close(cells[:, :most], values, atol=1e-4, rtol=1e-5)
        order = cells[:, most:].long()
        torch.testing.assert_close(logits.gather(1, order), logits.gather(1, places))
        distinct = torch.tensor([0, 1, 2, 4, 5])
        if vocab > 50:
            assert torch.equal(order[distinct], places[distinct])
    logits[2, : 9 if vocab > 9 else 0].fill_(-torch.inf)  # PyTorch's entropy is not a number then
    again = torch.tensor(measure(native, logits, ids, 2, temperatures, kept), dtype=torch.float64)
    torch.testing.assert_close(again[:, :4], found[:, :4], atol=1e-5, rtol=1e-5)


def test_samples_are_those_that_pytorch_chooses(native):
    logits = 3 * noise(40, 1000)
    temperatures = [(0.0, 0.3, 1.0, 2.5)[row % 4] for row in range(40)]
    kept = [(1, 5, 50, 256, 20)[row % 5] for row in range(40)]
    draws = [row / 39 for row in range(40)]  # 0 and 1 are among them
    columns = (torch.tensor(of)[:, None] for of in (temperatures, draws))
    expected = choose(logits, *columns, Kept(256, torch.tensor(kept)[:, None]))
    assert sample(native, logits, temperatures, draws, kept) == expected.tolist()


def test_one_row_of_logits_serves_all_that_begin_with_it(native):
    logits, ids = noise(1, 700), [5, 6, 7]
    single = [measure(native, logits, [id], 3, [1.0], [700])[0] for id in ids]
    assert measure(native, logits, ids, 3, [1.0] * 3, [700] * 3) == single


def test_threads_that_call_at_once_do_not_meet():
    native = library.load()
    assert native is not None
    matrix, _ = in_4_bits(320, 640, native)
    inputs = [noise(3, 640, seed=seed) for seed in range(4)]
    expected = [multiply(native, matrix, x) for x in inputs]
    wrong: list[int] = []

    def repeat(index: int) -> None:
        found = (multiply(native, matrix, inputs[index]) for _ in range(50))
        wrong.extend(index for each in found if not torch.equal(each, expected[index]))

    torch.set_num_threads(2)
    callers = [threading.Thread(target=repeat, args=(index,)) for index in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("/nowhere/cc", "no C compiler: CC is /nowhere/cc, which was not found"),
        ("false", "false fails: it says nothing"),
        (None, "no C compiler: cc, gcc and clang were not found"),
    ],
)
def test_without_a_compiler_pytorch_computes_and_the_reason_is_told(
    tmp_path, monkeypatch, compiler, reason
):
    monkeypatch.setattr(library, "_loaded", library._loaded.__wrapped__)
    monkeypatch.setenv("CHAT_TUI_HOME", str(tmp_path))
    if compiler is None:
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setenv("CC", compiler)
    _, path = saved(tmp_path, CONFIGS["llama"][1], "safetensors")
    loaded = load(path)
    assert loaded.info.backend == "sdpa"
    assert reason in loaded.info.backend_note
    assert loaded.model.native is None


def test_what_is_compiled_is_kept_and_nothing_is_left_of_what_fails(tmp_path, monkeypatch):
    library.build(tmp_path, ("-O0",))
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(library.subprocess, "run", None)  # nothing is compiled again
    assert library.build(tmp_path, ("-O0",)) == kept
    monkeypatch.undo()
    with pytest.raises(Exception, match="fails: "):
        library.build(tmp_path, ("-no-such-flag",))
    assert list(tmp_path.iterdir()) == [kept]


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("CHAT_TUI_NATIVE", "0")
    assert library.load() is None
    assert library.reason() == "CHAT_TUI_NATIVE is 0"
    assert library.lanes() == 0
