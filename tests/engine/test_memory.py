"""How much memory there is, on a machine and in a container."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine import memory
from engine.errors import EngineError
from engine.load import load_model
from engine.loading.footprint import ANSWERS, footprint
from engine.loading.torch_file import read_tensors

CPU = torch.device("cpu")
TINY = str(Path(__file__).parents[1] / "data" / "nanochat" / "V6" / "chatsft_checkpoints" / "d4")


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup of 1 GB, of which 600 MB are taken, 100 MB of them by the page cache."""
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("600000000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 90000000\nactive_file 10000000\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_meminfo", lambda key: 8_000_000_000)
    return tmp_path


def test_a_container_has_what_its_limit_leaves(container: Path) -> None:
    assert memory.free_memory(CPU) == 500_000_000
    assert memory.total_memory() == 1_000_000_000


def test_without_a_limit_the_machine_counts(container: Path) -> None:
    (container / "memory.max").write_text("max\n")
    assert memory.free_memory(CPU) == 8_000_000_000
    total = memory.total_memory()
    assert total is None or total > 1_000_000_000


def test_what_is_free_on_macos_is_read_off_vm_stat() -> None:
    printed = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10000.\n"
        "Pages active:                            250000.\n"
        "Pages inactive:                           30000.\n"
        "Pages speculative:                         2000.\n"
    )
    assert memory.vm_stat_free(printed) == 40_000 * 16_384
    assert memory.vm_stat_free("vm_stat: not there") is None


def test_a_model_beside_others_is_refused_where_they_leave_too_little(container: Path) -> None:
    (container / "memory.current").write_text("950000000\n")
    load_model(TINY, device="cpu")
    refused = "d4, beside the others, does not fit into memory: it needs about 269 MB"
    with pytest.raises(EngineError, match=refused):
        load_model(TINY, device="cpu", beside=True)


def test_a_models_footprint_is_what_it_holds_and_room_for_answers(smollm2_path: Path) -> None:
    quantised = footprint(smollm2_path, CPU, None, gguf=True) - ANSWERS
    assert quantised == pytest.approx(365e6, rel=0.1), "with its vocabulary, as it is kept"
    in_16_bits = footprint(smollm2_path, CPU, torch.bfloat16, gguf=True) - ANSWERS
    assert in_16_bits == pytest.approx(2 * 134_515_008, rel=0.01)


def test_what_does_not_fit_is_said_in_one_line(container: Path) -> None:
    memory.require_memory("model.gguf", 400_000_000, CPU)
    with pytest.raises(EngineError) as caught:
        memory.require_memory("model.gguf", 2_000_000_000, CPU)
    assert "it needs about 2.0 GB and 500 MB are free" in str(caught.value)


def test_where_nothing_is_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_meminfo", lambda key: None)
    monkeypatch.setattr(memory, "_macos_free", lambda: None)
    monkeypatch.setattr(memory, "_container_free", lambda: None)
    memory.require_memory("model.gguf", 1 << 60, CPU)


def test_freed_memory_is_given_back_where_the_system_can() -> None:
    memory.return_freed()


def test_what_is_mapped_can_be_read_again_after_it_was_released(tmp_path: Path) -> None:
    expected = {"a": torch.randn(3000, 40), "b": torch.randn(7), "c": torch.randn(900, 33)}
    torch.save(expected, tmp_path / "tensors.pt")
    mapped = read_tensors(tmp_path / "tensors.pt")
    for _ in range(2):
        for name, tensor in mapped.items():
            assert torch.equal(tensor, expected[name])
        memory.release_mapped(mapped.values())
