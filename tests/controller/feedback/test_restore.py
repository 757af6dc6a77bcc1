"""Giving back: whose original resources are due, and what becomes of each, without a pass or metrics; and outages."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from support.worlds import START, FakeActuator, FakeMemory

from slopewise.feedback.restore import Outage, due, restore_originals
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
    PassReport,
    PolicyMemory,
    Restored,
    RestoreResult,
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
    @pytest.mark.parametrize(
        ("mode", "selected", "expected"),
        [
            *((mode, {"a", "b", "c", "untouched"}, ["a", "b", "c"]) for mode in ("Observe", "Recommend")),
            ("Auto", {"a", "c"}, ["b"]),  # the selector let it go
            ("Auto", (), ["a", "b", "c"]),  # the policy is deleted
        ],
    )
    def test_changed_jobs_of_a_mode_that_changes_nothing_and_those_of_no_policy(
        self, mode: str, selected: Collection[str], expected: list[str]
    ) -> None:
        assert due(three_changed().state, mode, 1.0, selected) == expected

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

    @pytest.mark.parametrize(
        ("result", "part", "settled"), [("accepted", "accepted", False), ("infeasible", "impossible", True)]
    )
    def test_an_original_that_is_not_back_is_kept_and_tried_again_where_that_helps(
        self, result: RestoreResult, part: str, settled: bool
    ) -> None:
        memory = three_changed()
        given = restore_originals(memory, FakeActuator(restores={"a": Restored(result, "vpa resizes it")}), ["a"])
        assert (getattr(given, part), given.restored, given.settled) == ({"a": "vpa resizes it"}, {}, settled)
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


# --- no pass observes ------------------------------------------------------------------------------------------------

HELD = "Prometheus did not answer; nothing is changed meanwhile."


def a_report(at: float, *, held: str | None = None, failed: bool = False, requeue_at: float = 0.0) -> PassReport:
    return PassReport(at, "las", {}, requeue_at or at + 20, held=held, policy_failed=failed)


def an_outage(*, restores: bool = True) -> Outage:
    outage = Outage(20.0, 0.0, restores=restores)
    outage.note(a_report(100))
    return outage


@pytest.mark.parametrize(("at", "lasts"), [(159, False), (160, True), (165, True)])
def test_it_lasts_from_three_intervals_on(at: float, lasts: bool) -> None:
    outage = an_outage()
    report = outage.note(a_report(at, held=HELD))
    assert outage.lasts is lasts
    restored = f" No observation for {at - 100} s, {(at - 100) // 20} intervals: original resources are restored."
    assert report.held == ("Prometheus did not answer." + restored if lasts else HELD)


@pytest.mark.parametrize(
    "passes",
    [
        [(a_report(200, held=HELD), True), (a_report(220), False), (a_report(240, held=HELD), False)],
        [(a_report(120, requeue_at=400), False), (a_report(400, held=HELD), False), (a_report(440, held=HELD), True)],
        [(a_report(150, held="the policy failed", failed=True), False), (a_report(200, held=HELD), False)],
    ],
    ids=["ends with a pass that observes", "a planned pause is none", "a policy that fails has observed"],
)
def test_whether_an_outage_lasts_after_each_pass(passes: list[tuple[PassReport, bool]]) -> None:
    outage = an_outage()
    for report, lasts in passes:
        outage.note(report)
        assert outage.lasts is lasts


def test_a_controller_that_never_observed_counts_from_its_start() -> None:
    outage = Outage(20.0, 100.0, restores=True)
    outage.note(a_report(160, held=HELD))
    assert outage.lasts


def test_a_policy_that_changes_nothing_restores_nothing() -> None:
    outage = an_outage(restores=False)
    assert outage.note(a_report(900, held=HELD)).held == HELD
    assert not outage.lasts
