"""Models that come and go, each with a backend of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chat_tui.lanes import Lane, Lanes
from chat_tui.settings import Own, Settings, SettingsError, Source
from engine.messages import Ask, Died, Event, Failed, Load
from engine.threads import cores, share
from tests.chat_tui.fakes import FakeBackend

A, B, C = Source("a"), Source("b"), Source("c")
THERE = Source("", "http://gpu:8000")


class Made:
    """Lanes with fake backends, and what these were made for."""

    def __init__(self) -> None:
        self.backends: list[FakeBackend] = []
        self.lanes = Lanes(self._make)

    def _make(self, load: Load) -> FakeBackend:
        self.backends.append(FakeBackend())
        return self.backends[-1]

    def want(self, *models: Source) -> None:
        self.lanes.want(Settings(models=models))

    def hear(self, backend: FakeBackend, *events: Event) -> None:
        """A backend says that it is ready, or something else."""
        backend.say(*events) if events else backend.ready(backend.loads[-1].name or "theirs")
        for _ in self.lanes.drain():
            pass

    @property
    def phases(self) -> dict[str, str]:
        return {lane.source.label: lane.phase for lane in self.lanes}

    def lane(self, place: int) -> Lane:
        return list(self.lanes)[place]


@pytest.fixture
def made() -> Made:
    return Made()


def test_models_of_this_machine_load_one_after_the_other_and_servers_at_once(made: Made) -> None:
    made.want(A, B, THERE)
    first, second, there = made.backends
    assert [len(backend.loads) for backend in made.backends] == [1, 0, 1]
    assert made.lanes.phase == "loading"
    made.hear(first)
    assert [load.name for load in second.loads] == ["b"]
    made.hear(there)
    made.hear(second)
    assert made.lanes.phase == "ready"
    assert [lane.name for lane in made.lanes] == ["a", "b", "theirs"]


def test_models_of_this_machine_share_its_cores_and_a_server_takes_none() -> None:
    assert [load.threads for load in Settings(models=(A,)).loads().values()] == [None]
    assert [load.threads for load in Settings(models=(A, THERE)).loads().values()] == [None, None]
    both = Settings(models=(A, B)).loads()
    assert [load.threads for load in both.values()] == [share(2)] * 2
    assert share(2) == max(1, cores() // 2)
    assert [load.beside for load in both.values()] == [False, True]
    given = Settings(models=(A, B), threads=3).loads()
    assert [load.threads for load in given.values()] == [3, 3]


def test_a_model_that_comes_beside_another_leaves_it_where_it_is(made: Made) -> None:
    made.want(A)
    made.hear(made.backends[0])
    made.want(A, B)
    first, second = made.backends
    assert [load.threads for load in first.loads] == [None, share(2)], "told of fewer threads"
    assert made.phases == {"a": "ready", "b": "loading"}
    made.hear(first)
    made.hear(second)
    assert made.lanes.phase == "ready"
    made.want(B)
    assert first.closed
    assert [lane.name for lane in made.lanes] == ["b"]


def test_a_model_in_the_place_of_another_takes_over_its_process(made: Made) -> None:
    made.want(A)
    made.hear(made.backends[0])
    made.want(B)
    (backend,) = made.backends
    assert [load.name for load in backend.loads] == ["a", "b"]
    made.hear(backend, Failed(None, "There is no b.", kept=True))
    assert made.phases == {"a": "ready"}
    assert made.lane(0).failed == B


def test_what_is_left_stays_until_the_other_is_there_and_its_answers_have_ended(
    made: Made,
) -> None:
    made.want(A)
    here = made.backends[0]
    made.hear(here)
    made.lane(0).send(Ask(1, "Hello?"))
    made.want(THERE)
    there = made.backends[1]
    assert not here.closed
    made.hear(there)
    assert not here.closed
    here.start()
    here.finish()
    made.hear(there)
    assert here.closed
    assert not there.closed
    made.lanes.close()
    assert there.closed


def test_a_server_that_cannot_be_reached_leaves_the_model_that_was_there(made: Made) -> None:
    made.want(A)
    here = made.backends[0]
    made.hear(here)
    made.want(THERE)
    there = made.backends[1]
    made.hear(there, Failed(None, "gpu:8000 refuses."))
    made.want(A)
    assert made.phases == {"a": "ready"}
    assert len(here.loads) == 1, "nothing is loaded again"
    assert there.closed


def test_the_last_of_several_wishes_counts(made: Made) -> None:
    made.want(A)
    backend = made.backends[0]
    made.hear(backend)
    made.want(B)
    made.want(C)
    made.hear(backend, Failed(None, "There is no b.", kept=True))
    assert made.phases == {"c": "loading"}
    made.hear(backend)
    assert made.phases == {"c": "ready"}


def test_a_process_that_dies_costs_its_own_model_alone(made: Made) -> None:
    made.want(A, B)
    for backend in made.backends:
        made.hear(backend)
    made.hear(made.backends[1], Died("killed"))
    assert made.phases == {"a": "ready", "b": "absent"}
    assert made.lanes.gone
    made.lanes.revive()
    assert len(made.backends[1].loads) == 2
    assert len(made.backends[0].loads) == 1


def test_names_are_as_short_as_tells_them_apart(made: Made) -> None:
    made.want(
        Source("/models/one/sft/model.gguf"),
        Source("/models/two/sft/model.gguf"),
        Source("org/small", "http://gpu:8000"),
        Source("org/small"),
    )
    names = [made.lanes.name(lane) for lane in made.lanes]
    assert names == ["one/sft/model", "two/sft/model", "small@gpu:8000", "small"]


# How a model is spelled, and what is asked of each.


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("smollm2", Source("smollm2")),
        ("nanochat:rl/d20@650", Source("nanochat:rl/d20@650")),
        ("qwen@http://gpu:8000", Source("qwen", "http://gpu:8000")),
        ("org/qwen@https://api.example.com/v1", Source("org/qwen", "https://api.example.com/v1")),
        ("http://gpu:8000", Source("", "http://gpu:8000")),
        ("smollm2@local", Source("smollm2")),
    ],
)
def test_a_model_is_spelled_with_the_place_where_it_runs(text: str, source: Source) -> None:
    assert Source.of(text) == source
    assert Source.of(str(source)) == source


def test_without_a_place_it_runs_where_the_others_do() -> None:
    assert Source.of("qwen", "http://gpu:8000") == Source("qwen", "http://gpu:8000")
    assert Source.of("smollm2@local", "http://gpu:8000") == Source("smollm2")
    settings = Settings(models=(THERE,)).changed("models", ("qwen", "smollm2@local"))
    assert settings.models == (Source("qwen", "http://gpu:8000"), Source("smollm2"))


def test_every_model_answers_under_every_system_text_as_often() -> None:
    settings = Settings(
        models=(A, B), systems=(None, "Be brief."), samples=2, temperatures=(0.2, 1.2), top_ks=(5,)
    )
    setups = settings.setups()
    assert [(s.model.name, s.system, s.temperature, s.top_k) for s in setups] == [
        (model, system, temperature, 5)
        for model in "ab"
        for system in (None, "Be brief.")
        for temperature in (0.2, 1.2)
    ]


def test_a_pane_can_have_something_of_its_own_and_lose_it_again() -> None:
    settings = Settings(models=(A,), samples=3)
    settings = settings.changed("own", Own(1, "temperature", 1.1))
    settings = settings.changed("own", Own(2, "model", "b"))
    settings = settings.changed("own", Own(1, "temperature", 1.4))
    setups = settings.setups()
    assert [setup.temperature for setup in setups] == [0.7, 1.4, 0.7]
    assert [setup.model for setup in setups] == [A, A, B]
    assert settings.sources == (A, B)
    assert settings.changed("own", Own(2, "")).sources == (A,)
    everywhere = settings.changed("temperatures", (0.3,))
    assert {setup.temperature for setup in everywhere.setups()} == {0.3}
    assert everywhere.sources == (A, B)
    assert settings.without(B).sources == (A,)
    with pytest.raises(SettingsError, match=r"There are 3 panes, no 4: /samples makes more\."):
        settings.changed("own", Own(3, "temperature", 1.0))


def test_there_are_no_more_panes_than_can_be_shown() -> None:
    settings = Settings(models=(A, B), systems=(None, "x"), samples=8)
    assert len(settings.checked().setups()) == 32
    with pytest.raises(SettingsError, match="9 samples × 2 models × 2 system texts are 36"):
        replace(settings, samples=9).checked()


def test_another_server_answers_alone_and_the_models_of_this_machine_come_back() -> None:
    settings = Settings(models=(A, B)).changed("server", "http://gpu:8000")
    assert settings.models == (THERE,)
    assert settings.changed("server", None).models == (A, B)
