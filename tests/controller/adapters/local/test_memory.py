"""The memory file: what is saved is loaded by the next controller; damage is reported, never guessed around."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.worlds import START, a_job, a_snapshot, known

from slopewise.adapters.local.ports import FileMemory, forget, inherit
from slopewise.errors import SlopewiseError
from slopewise.estimators.growth import Measuring, measure
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import (
    Anchor,
    Answering,
    Backoff,
    CpuAllocation,
    Departed,
    Doubts,
    JobMemory,
    Levels,
    MemoryState,
    NodeMemory,
    Outlier,
    PaceAnchor,
    PolicyMemory,
    Timing,
)


def a_state() -> MemoryState:
    first = measure(a_snapshot([a_job("a"), a_job("b", level=None)]), MemoryState(), Measuring(20.0))
    doubts = Doubts((2.718281828459045, -1.7e308), Outlier(START, -1.7e308), (1.7e308, -1.7e308))
    doubted = known(levels=Levels(doubts=doubts, silent_since_seconds=START))
    decided = known(efficiency=0.02, job_class="NL", original=CpuAllocation(None, 1000))
    jobs = {**first.jobs, "c": decided, "d": doubted}
    return MemoryState(jobs, {"n1": NodeMemory(frozenset({"a", "b"}), START, 40.0)})


def test_a_restarted_controller_remembers_everything(tmp_path: Path) -> None:
    FileMemory(tmp_path / "memory.json").save(a_state())
    assert FileMemory(tmp_path / "memory.json").load() == a_state()


@pytest.mark.parametrize("text", [b"", b"{", b'{"jobs": 3}', b"[" * 100_000, b'{"jobs": {"\xff": {}}}'])
def test_a_damaged_file_is_named_and_not_overwritten(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "memory.json"
    path.write_bytes(text)
    with pytest.raises(SlopewiseError, match=r"memory\.json: the controller's memory is damaged"):
        FileMemory(path).load()
    assert path.read_bytes() == text


def test_a_state_that_cannot_be_stored_is_reported_and_the_former_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    memory = FileMemory(path)
    memory.save(a_state())
    path.unlink()
    memory.save(a_state())
    assert not path.exists(), "an unchanged state is not written again"
    FileMemory(path).save(a_state())
    (tmp_path / "memory.json.new").mkdir()
    with pytest.raises(SlopewiseError, match="cannot be written"):
        memory.save(MemoryState())
    assert FileMemory(path).load() == a_state()


def test_what_a_killed_run_had_learnt_is_inherited_without_what_belonged_to_it(tmp_path: Path) -> None:
    learnt = JobMemory(
        levels=Levels(first=2.0, best=0.5),
        timing=Timing(least_step_cpu_seconds=0.2),
        decided=PolicyMemory(job_class="WL"),
    )
    ran = learnt.altered(
        levels=learnt.levels.altered(anchor=Anchor(1.0, 0.5, None)),
        timing=learnt.timing.altered(anchor=PaceAnchor(1.0, 5.0, None, 2.0), answering=Answering(0.5)),
        original=CpuAllocation(None, 1000),
        last_resized_at_seconds=1.0,
        backoff=Backoff(9.0, "it regressed"),
    )
    FileMemory(tmp_path / "old.json").save(MemoryState({"a": ran}, {"n1": NodeMemory(frozenset({"a"}), 1.0, 2.0)}))
    inherit(tmp_path / "old.json", tmp_path / "new.json")
    assert FileMemory(tmp_path / "new.json").load() == MemoryState({"a": learnt})


def test_what_cannot_be_inherited_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{")
    inherit(tmp_path / "old.json", tmp_path / "new.json")
    inherit(tmp_path / "none.json", tmp_path / "newer.json")
    assert FileMemory(tmp_path / "new.json").load() == MemoryState()
    assert FileMemory(tmp_path / "newer.json").load() == MemoryState()


def test_what_is_known_of_a_job_is_forgotten_when_another_has_its_name() -> None:
    memory = DictionaryMemory()
    state = MemoryState({"a": known(), "b": known()}, departed=(Departed("a", "x"), Departed("c", "y")))
    memory.save(state)
    forget(memory, [])
    assert memory.load() == state
    forget(memory, ["a"])
    assert set(memory.load().jobs) == {"b"}
    assert memory.load().departed == (Departed("c", "y"),)
