"""Giving back: whose original resources are due, and what becomes of each, without a pass and without metrics."""

from __future__ import annotations

import pytest
from support.worlds import START, FakeActuator, FakeMemory

from slopewise.feedback.restore import due, restore_originals
from slopewise.model import (
    Backoff,
    Change,
    CpuAllocation,
    JobMemory,
    Levels,
    MemoryAllocation,
    MemoryState,
    MemoryUse,
    NodeMemory,
    PolicyMemory,
    Restored,
    in_canary,
)

ORIGINAL = CpuAllocation(1000, 250)
CHANGED = JobMemory(
    levels=Levels("s"),
    decided=PolicyMemory(wanted_cores=0.5),
    backoff=Backoff(until_seconds=START + 600, reason="OOM-killed"),
    original=ORIGINAL,
    change=Change(START, "limits", 1000, 500),
)
NEVER_CHANGED = JobMemory(levels=Levels("s"), decided=PolicyMemory(wanted_cores=1.0))


def three_changed() -> FakeMemory:
    jobs = {"a": CHANGED, "b": CHANGED, "c": CHANGED, "untouched": NEVER_CHANGED}
    return FakeMemory(MemoryState(jobs, {"n1": NodeMemory(frozenset(jobs), START, 60.0)}))


class TestDue:
    @pytest.mark.parametrize("mode", ["Observe", "Recommend"])
    def test_every_changed_job_when_the_mode_changes_nothing(self, mode: str) -> None:
        assert due(three_changed().state, mode, 1.0, {"a", "b", "c", "untouched"}) == ["a", "b", "c"]

    def test_those_that_the_selector_let_go(self) -> None:
        assert due(three_changed().state, "Auto", 1.0, {"a", "c"}) == ["b"]

    def test_all_of_a_policy_that_is_deleted(self) -> None:
        assert due(three_changed().state, "Auto", 1.0, ()) == ["a", "b", "c"]

    def test_those_out_of_the_canary_when_auto_becomes_canary(self) -> None:
        uids = [f"workload-{number}:0" for number in range(100)]
        memory = MemoryState(dict.fromkeys(uids, CHANGED))
        is_rollback = due(memory, "Canary", 0.2, set(uids))
        assert is_rollback == [uid for uid in uids if not in_canary(uid, 0.2)]
        assert 0 < len(is_rollback) < 100


class TestGiveBack:
    def test_what_is_back_is_forgotten_and_nothing_else(self) -> None:
        memory, actuator = three_changed(), FakeActuator()
        given = restore_originals(memory, actuator, ["a", "untouched", "unheard-of"])
        assert (dict(given.restored), actuator.restored) == ({"a": ""}, {"a": ORIGINAL})
        assert memory.state.jobs["a"] == JobMemory(levels=Levels("s"), decided=PolicyMemory(wanted_cores=0.5))
        assert memory.state.jobs["b"] == CHANGED
        assert memory.state.nodes == three_changed().state.nodes
        assert given.settled

    def test_each_answer_is_reported_and_only_what_is_back_or_gone_is_forgotten(self) -> None:
        memory = three_changed()
        answers = {"a": Restored("gone", "its pod is gone"), "b": Restored("deferred", "no room")}
        given = restore_originals(memory, FakeActuator(refuses=frozenset({"c"}), restores=answers))
        assert (given.gone, given.waiting) == ({"a": "its pod is gone"}, {"b": "no room"})
        assert given.failed == {"c": "c cannot be reached"}
        assert [memory.state.jobs[uid].original for uid in "abc"] == [None, ORIGINAL, ORIGINAL]
        assert not given.settled

    def test_what_the_platform_has_only_accepted_is_kept_and_waited_for(self) -> None:
        memory = three_changed()
        given = restore_originals(
            memory, FakeActuator(restores={"a": Restored("accepted", "node-a says nothing yet")}), ["a"]
        )
        assert (given.accepted, given.restored, given.settled) == ({"a": "node-a says nothing yet"}, {}, False)
        assert memory.state.jobs["a"].original == ORIGINAL

    def test_what_no_other_try_would_change_is_settled_and_its_original_kept(self) -> None:
        memory = three_changed()
        given = restore_originals(memory, FakeActuator(restores={"a": Restored("infeasible", "vpa resizes it")}), ["a"])
        assert given.settled
        assert given.impossible == {"a": "vpa resizes it"}
        assert memory.state.jobs["a"].original == ORIGINAL

    def test_a_second_time_there_is_nothing_to_do_and_nothing_is_written(self) -> None:
        memory, actuator = three_changed(), FakeActuator()
        restore_originals(memory, actuator)
        saved, actuator.restored = len(memory.saved), {}
        assert restore_originals(memory, actuator).restored == {}
        assert (actuator.restored, len(memory.saved)) == ({}, saved)

    def test_when_the_memory_cannot_be_stored_no_original_is_lost(self) -> None:
        class Full(FakeMemory):
            def save(self, state: MemoryState) -> None:
                raise OSError("no space left")

        memory = Full(three_changed().state)
        with pytest.raises(OSError, match="no space left"):
            restore_originals(memory, FakeActuator())
        assert memory.state.jobs["a"].original == ORIGINAL


class TestMemory:
    ORIGINAL_MEMORY = MemoryAllocation(2**30, 2**31)

    def test_original_memory_goes_back_with_the_cpu_and_is_forgotten(self) -> None:
        changed = CHANGED.altered(original_memory=self.ORIGINAL_MEMORY)
        memory, actuator = FakeMemory(MemoryState({"a": changed})), FakeActuator()
        assert dict(restore_originals(memory, actuator).restored) == {"a": ""}
        assert (actuator.restored, actuator.restored_memory) == ({"a": ORIGINAL}, {"a": self.ORIGINAL_MEMORY})
        assert memory.state.jobs["a"].original_memory is None

    def test_a_raised_limit_that_is_in_use_stays_and_the_result_says_so(self) -> None:
        use = MemoryUse(START, 2.0**31, 2.0**31)
        changed = CHANGED.altered(
            memory_resizes=CHANGED.memory_resizes.altered(written_limit_bytes=3 * 2**30),
            original_memory=self.ORIGINAL_MEMORY,
            memory_use=use,
        )
        memory, actuator = FakeMemory(MemoryState({"a": changed})), FakeActuator()
        given = restore_originals(memory, actuator)
        assert actuator.restored_memory == {"a": MemoryAllocation(2**30)}
        assert "a memory limit that was raised stays: the job uses 2048Mi" in given.restored["a"]
        assert memory.state.jobs["a"].memory_resizes.written_limit_bytes is None
