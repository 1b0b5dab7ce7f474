"""The benchmark's arithmetic and its cases, on networks of a few thousand weights. Nothing here
depends on how long anything takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from engine.bench import ceilings, counts, gpu
from engine.bench.eager import EagerNanochat
from engine.bench.plan import QUICK, Plan
from engine.bench.random_models import as_loaded, random_nanochat, random_tensors
from engine.bench.report import Decode, Report, SharedPrefill, median, percentile
from engine.bench.suite import Chat, Generation, PrefillForEach, Suite, Timing, endless, ours, timed
from engine.errors import EngineError
from engine.generate import Engine
from engine.load import LoadedModel
from engine.models.nanochat import NanochatModel
from engine.models.nanochat_variants import VARIANTS, Config, tensor_shapes
from tests.engine.nanochat_noise import noise, small_config

CPU = torch.device("cpu")

CONFIG = Config(
    sequence_len=128,
    vocab_size=320,
    n_layer=2,
    n_head=4,
    n_kv_head=2,
    n_embd=32,
    window_pattern="L",
    vocab_rows=320,
)

PLAN = Plan(
    prompt_tokens=(12, 20),
    rows=(1, 3),
    decode_tokens=4,
    repeats=2,
    shared_prompt=24,
    shared_rows=3,
    turns=3,
    turn_prompt=8,
    turn_answer=5,
    copy_bytes=1 << 18,
    ceiling_s=0.0,
)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    model = random_nanochat(CONFIG, CPU, torch.float32)
    return as_loaded(model, "noise", family="nanochat")


@pytest.fixture(scope="module")
def report() -> Report:
    return gpu.measure("cpu", dtype=torch.float32, config=CONFIG, plan=PLAN)


class TestPercentiles:
    def test_the_median_lies_between_the_middle_ones(self):
        assert median([4.0, 1.0, 3.0, 2.0]) == 2.5

    def test_a_percentile_is_interpolated(self):
        assert percentile([10.0, 20.0], 0.95) == pytest.approx(19.5)
        assert percentile([7.0], 0.95) == 7.0


class TestFlops:
    def test_of_a_prompt_are_products_scores_and_one_row_of_the_head(self, loaded):
        matrices = 2 * (32 * 32 + 2 * 16 * 32 + 32 * 32 + 2 * 4 * 32 * 32)
        pairs = sum(position + 1 for position in range(10))
        expected = 2 * matrices * 10 + 2 * (4 * 4 * 8 * pairs) + 2 * 320 * 32
        assert counts.prefill_flops(loaded.model, 10) == expected

    def test_a_window_cuts_the_scores(self):
        config = small_config("V2")
        model = NanochatModel(config, VARIANTS["V2"], noise(config, "V2"))
        pairs = sum(
            min(position + 1, left + 1)
            for left, _ in config.windows(VARIANTS["V2"])
            for position in range(250)
        )
        attention = 4 * config.n_head * config.head_dim * pairs
        products = 2 * counts.block_parameters(model) * 250
        head = 2 * config.vocab_size * config.n_embd
        assert counts.prefill_flops(model, 250) == attention + products + head

    def test_tables_that_are_looked_up_are_no_products(self, loaded):
        tables = 2 * 320 * 32
        assert counts.block_parameters(loaded.model) == loaded.model.parameters() - tables

    def test_utilisation_is_needed_over_possible(self):
        assert counts.mfu(flops=3e9, seconds=2.0, flops_per_s=1e10) == pytest.approx(0.15)
        assert counts.mbu(bytes_read=1e9, seconds=0.5, bytes_per_s=8e9) == pytest.approx(0.25)


class TestBytes:
    position = 2 * 2 * 2 * 8 * 4
    """Two layers, K and V, two KV heads of 8, float32."""

    def test_one_row_reads_all_that_it_holds(self, loaded):
        read = counts.kv_read(loaded.model, 1, prompt=10, generated=3, shared=False)
        assert read == 13 * self.position
        assert counts.kv_stored(loaded.model, 1, 10, 3, shared=False) == read

    def test_a_shared_prompt_is_read_and_held_once(self, loaded):
        read = counts.kv_read(loaded.model, 5, prompt=10, generated=3, shared=True)
        assert read == (10 + 5 * 3) * self.position
        assert counts.kv_stored(loaded.model, 5, 10, 3, shared=True) == read

    def test_a_copied_prompt_is_read_by_every_row(self, loaded):
        read = counts.kv_read(loaded.model, 5, prompt=10, generated=3, shared=False)
        assert read == 5 * 13 * self.position

    def test_a_window_is_all_that_is_read(self):
        config = small_config("V2")
        model = NanochatModel(config, VARIANTS["V2"], noise(config, "V2"))
        per_position = 2 * config.n_kv_head * config.head_dim * 4
        for prompt, generated in ((30, 2), (200, 7), (20, 200)):
            expected = 0
            for left, _ in config.windows(VARIANTS["V2"]):
                seen = range(max(0, prompt + generated - left - 1), prompt + generated)
                expected += sum(1 if place < prompt else 3 for place in seen)
            read = counts.kv_read(model, 3, prompt, generated, shared=True)
            assert read == expected * per_position

    def test_a_step_reads_the_weights_and_the_mean_of_the_keys(self, loaded):
        mean = (11 + 12 + 13) / 3 * self.position
        weights = loaded.model.weight_bytes()
        assert counts.step_bytes(loaded.model, 1, 10, 3) == pytest.approx(weights + mean)


class TestTiming:
    def test_the_first_column_is_told_from_the_later_ones(self):
        timing = timed(iter(["a", "b", "c"]))
        assert timing.ttft_s >= 0
        assert len(timing.steps_s) == 2

    def test_columns_are_made_while_the_clock_runs(self):
        made: list[int] = []

        def columns() -> Iterator[int]:
            for column in range(3):
                made.append(column)
                yield column

        generation = columns()
        assert made == []
        timed(generation)
        assert made == [0, 1, 2]

    def test_no_token_ends_a_measured_answer(self, loaded):
        steps = list(ours(Engine(endless(loaded)))([1, 2, 3], 2, 40))
        assert len(steps) == 40

    def test_naive_is_as_many_prefills_as_rows(self, loaded):
        asked: list[tuple[int, int]] = []

        def generate(tokens, rows, new_tokens):
            asked.append((len(tokens), rows))
            yield None

        naive = PrefillForEach(Generation(loaded.model, generate, 7, 1, 1), rows=4)
        naive.measure()
        naive.measure()
        assert asked == [(7, 1)] * 8
        assert len(naive.seconds) == 2


class TestDecode:
    def test_medians_rates_and_bandwidth(self, loaded, report):
        case = Generation(loaded.model, ours(Engine(loaded)), 10, rows=2, new_tokens=5)
        case.timings = [
            Timing(1.0, (0.1, 0.1, 0.2, 0.1)),
            Timing(3.0, (0.1, 0.1, 0.1, 0.1)),
            Timing(2.0, (0.1, 0.1, 0.1, 0.7)),
        ]
        machine = replace(report.machine, copy_bytes_per_s=1e6)
        decode = case.decode(machine)
        assert case.ttft() == 2.0
        assert decode.tpot_median_s == pytest.approx(0.1)
        assert decode.tpot_p95_s == pytest.approx(percentile([0.1] * 10 + [0.2, 0.7], 0.95))
        assert decode.tokens_per_s == pytest.approx(2 * 4 / 0.5)
        read = counts.step_bytes(loaded.model, 2, 10, 4)
        assert decode.mbu == pytest.approx(read / 0.1 / 1e6)

    def test_shared_over_one_row(self):
        assert SharedPrefill(2000, 8, 1.1, 8.0).over_one_row == pytest.approx(1.1)


class TestReport:
    def test_the_document_has_the_fields_that_scripts_rely_on(self, report):
        document = json.loads(json.dumps(report.document()))
        assert {"copy_bytes_per_s", "matmul_flops_per_s"} <= set(document["machine"])
        assert set(document["prefill"][0]) == {"prompt_tokens", "seconds", "tokens_per_s", "mfu"}
        assert set(document["decode"][0]) == {
            "rows",
            "prompt_tokens",
            "tpot_median_s",
            "tpot_p95_s",
            "tokens_per_s",
            "mbu",
        }
        assert set(document["shared_prefill"][0]) == {
            "prompt_tokens",
            "rows",
            "shared_ttft_s",
            "naive_ttft_s",
        }
        assert document["screen"] is None

    def test_every_prompt_is_decoded_with_every_number_of_rows(self, report):
        cases = [(decode.prompt_tokens, decode.rows) for decode in report.decode]
        assert cases == [(12, 1), (12, 3), (20, 1), (20, 3)]
        assert [(kv.prompt_tokens, kv.rows) for kv in report.model.kv] == cases
        assert [prefill.prompt_tokens for prefill in report.prefill] == [12, 20]
        assert report.machine.rounds == 2

    def test_figures_are_finite_and_positive(self, report):
        for part in (report.prefill, report.decode, report.eager, report.conversation):
            for row in part:
                assert all(0 < value < math.inf for value in vars(row).values()), row

    def test_a_chat_grows_by_its_turns_and_reuse_prefills_the_new(self, report):
        assert [turn.prompt_tokens for turn in report.conversation] == [8, 21, 34]
        assert [turn.new_tokens for turn in report.conversation] == [8, 9, 9]

    def test_a_chat_is_not_helped_by_the_round_before(self, loaded):
        chat = Chat(endless(loaded), PLAN)
        forwarded: list[int] = []

        class Counting:
            def __getattr__(self, name):
                return getattr(loaded.model, name)

            def forward(self, ids, cache, **how):
                forwarded.append(ids.size(1))
                return loaded.model.forward(ids, cache, **how)

        chat.keeping.model = Counting()
        chat.measure()
        first, forwarded[:] = list(forwarded), []
        chat.measure()
        assert forwarded == first
        assert [size for size in first if size > 1] == [8, 9, 9]

    def test_the_other_loop_is_measured_beside_ours(self, report):
        assert [(row.rows, row.prompt_tokens) for row in report.eager] == [
            (row.rows, row.prompt_tokens) for row in report.decode
        ]
        assert "eager" not in Report().document()

    def test_without_a_single_row_a_prefill_is_measured_all_the_same(self, loaded):
        plan = replace(PLAN, rows=(2,), turns=0, repeats=1)
        report = Suite(loaded, plan).run()
        assert [prefill.prompt_tokens for prefill in report.prefill] == [12, 20]
        assert report.conversation == ()

    def test_no_round_begins_after_the_limit_but_the_first(self, loaded):
        told: list[str] = []
        plan = replace(PLAN, repeats=50, limit_s=0.0)
        report = Suite(loaded, plan, tell=told.append).run()
        assert report.machine.rounds == 1
        assert told[-1] == "The time is up: of 50 rounds there is only the one to warm up."
        assert report.decode[0].tokens_per_s > 0

    def test_what_warmed_up_does_not_count(self, loaded):
        suite = Suite(loaded, replace(PLAN, repeats=3))
        suite.run()
        assert all(len(case.timings) == 3 for case in suite.decodes)
        assert len(suite.naive.seconds) == len(suite.chat.reuse) == 3


class TestPlan:
    def test_a_plan_is_cut_to_the_context(self):
        plan, note = Plan().fitted(context=400)
        assert note == "Shortened to the model's context of 400 tokens."
        assert plan.prompt_tokens == (335,)
        assert max(plan.prompt_tokens) + plan.decode_tokens < 400
        assert plan.shared_prompt == 335
        assert plan.turns * (plan.turn_prompt + plan.turn_answer) < 400

    def test_a_plan_that_fits_is_left_alone(self):
        assert Plan().fitted(8192) == (Plan(), "")
        assert QUICK.fitted(2048) == (QUICK, "")

    @pytest.mark.parametrize("change", [{"rows": ()}, {"rows": (0,)}, {"prompt_tokens": (-1,)}])
    def test_nothing_to_measure_is_an_error(self, change):
        with pytest.raises(EngineError, match="from 1 up"):
            Plan(**change)


class TestEager:
    """The loop that ours is compared with computes the same."""

    def test_it_is_the_same_network(self, loaded):
        tensors = random_tensors(CONFIG, CPU, torch.float32)
        eager = EagerNanochat(CONFIG, tensors, device=CPU, dtype=torch.float32)
        ids = list(range(5, 45))
        cache = eager.new_cache(1, 64)
        with torch.inference_mode():
            head = eager.forward(torch.tensor([ids[:30]]), cache)[0]
            tail = [eager.forward(torch.tensor([[token]]), cache)[0] for token in ids[30:]]
        logits = torch.cat([head, *tail])
        torch.testing.assert_close(logits, loaded.logits(ids), atol=1e-4, rtol=1e-4)

    def test_it_has_as_many_columns_as_are_asked_for(self):
        tensors = random_tensors(CONFIG, CPU, torch.float32)
        eager = EagerNanochat(CONFIG, tensors, device=CPU, dtype=torch.float32)
        columns = list(eager.generate([1, 2, 3], 4, 6))
        assert [len(column) for column in columns] == [4] * 6

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_without_a_gpu_it_says_so(self):
        with pytest.raises(EngineError, match="--device cpu"):
            gpu.measure()

    def test_the_d20_is_the_published_size(self):
        shapes = tensor_shapes(gpu.D20, VARIANTS["V0"]).values()
        assert sum(map(math.prod, shapes)) == 560_988_160


def test_goals_compare_with_the_other_loop_and_with_one_row():
    rows = (Decode(1, 9, 0.1, 0.1, 10.0, 0.7), Decode(8, 9, 0.1, 0.1, 70.0, 0.2))
    eager = (Decode(1, 9, 0.1, 0.1, 2.0, 0.1), Decode(8, 9, 0.1, 0.1, 35.0, 0.1))
    shared = (SharedPrefill(9, 8, shared_ttft_s=1.2, naive_ttft_s=8.0),)
    found = gpu.goals(Report(decode=rows, eager=eager, shared_prefill=shared))
    assert [(goal.value, goal.met) for goal in found] == [
        (5.0, True),
        (2.0, False),
        (0.7, True),
        (pytest.approx(1.2), False),
    ]


def test_ceilings_are_rates():
    machine = ceilings.measure(CPU, torch.float32, PLAN)
    assert machine.copy_bytes_per_s > 0
    assert machine.read_bytes_per_s > 0
    assert machine.matmul_flops_per_s > 0
    assert machine.threads == torch.get_num_threads()
