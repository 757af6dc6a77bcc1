"""The guards of memory, one by one: what each lets through, and what it says where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards.memory import GUARDS
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Job,
    JobMemory,
    MemoryAllocation,
    MemoryBound,
    MemoryState,
    MemoryUse,
    MoveUnderWay,
    PendingResize,
    ResizeMemory,
)

MIB = 2**20
OPEN = Bounds("Auto", 1, 64_000, cooldown_seconds=10, max_step_ratio=1000, min_change_ratio=0.1)
USE = MemoryUse(START, 100.0 * MIB, 300.0 * MIB, samples=10)


def a_change(from_mib: int, to_mib: int, bound: MemoryBound = "request", uid: str = "j") -> ResizeMemory:
    return ResizeMemory(uid, "n1", bound, from_mib * MIB, to_mib * MIB, "why")


LOWERED, RAISED, LIMIT = a_change(1024, 360), a_change(360, 1024), a_change(512, 640, "limit")


def a_world(job: Job | None = None, *, pressure: bool = False, gib: int = 8) -> ClusterSnapshot:
    node = replace(a_node(), memory_pressure=pressure, memory_bytes=gib * 2**30)
    sized = replace(a_job("j"), memory=MemoryAllocation(1024 * MIB, 2048 * MIB), memory_request_bytes=1024.0 * MIB)
    return a_snapshot([job or sized], [node])


def verdict(
    change: ResizeMemory,
    world: ClusterSnapshot | None = None,
    known: JobMemory | None = None,
    bounds: Bounds = OPEN,
) -> str | ResizeMemory:
    """The change that passed, or the reason of the veto, with the guard's name before it."""
    memory = MemoryState({"j": known or JobMemory(memory_use=USE)})
    allowed, withheld = reviewed([change], world or a_world(), memory, bounds)
    if allowed:
        assert not withheld
        return allowed[0]
    [one] = withheld
    assert one.decision == change
    assert one.reason.startswith(f"{one.guard}: ")
    return one.reason


def test_all_three_kinds_of_change_pass_where_nothing_is_against_them() -> None:
    assert [verdict(each) for each in (LOWERED, RAISED, LIMIT)] == [LOWERED, RAISED, LIMIT]


@pytest.mark.parametrize("mode", ["Observe", "Recommend"])
def test_a_mode_that_changes_nothing(mode: str) -> None:
    expected = f"memory_paused: mode is {mode}, and only Canary and Auto change anything"
    assert verdict(LOWERED, bounds=replace(OPEN, mode=mode)) == expected


def test_a_job_outside_of_the_canary() -> None:
    found = verdict(LOWERED, bounds=replace(OPEN, mode="Canary", canary_ratio=1e-9))
    assert str(found).startswith("memory_canary: mode is Canary")


def test_a_job_whose_memory_is_not_to_be_changed() -> None:
    job = replace(a_job("j"), memory_ineligible_reason="it is Guaranteed")
    assert verdict(RAISED, a_world(job)) == "memory_ineligible: it is Guaranteed"


def test_a_job_that_is_being_moved() -> None:
    world = replace(a_world(), moving=(MoveUnderWay("j", "n1", "n2", START, "saving"),))
    assert verdict(LOWERED, world) == "memory_moving: the job is being moved"


@pytest.mark.parametrize("change", [LOWERED, RAISED, LIMIT])
def test_after_its_node_refused_a_change_every_change_waits_for_a_minute(change: ResizeMemory) -> None:
    for seconds, passes in ((59.0, False), (60.0, True)):
        known = JobMemory(memory_use=USE, memory_refused_at_seconds=START - seconds)
        assert isinstance(verdict(change, known=known), ResizeMemory) is passes


def test_while_a_resize_is_pending_nothing_but_taking_it_back() -> None:
    waits = PendingResize("deferred", START, "no room", CpuAllocation(None, 1000))
    world = a_world(replace(a_job("j"), pending=waits))
    assert verdict(RAISED, world) == "memory_pending: the last resize is deferred: no room"
    back = replace(LOWERED, is_rollback=True)
    assert verdict(back, world) == back


def test_an_old_sample_lowers_nothing_and_raises_no_limit() -> None:
    old = JobMemory(memory_use=MemoryUse(START - 40.0, 1.0, 300.0 * MIB, samples=10))
    assert verdict(LOWERED, known=old) == "stale_memory_use: its working set is 40 s old, bound 39 s"
    assert str(verdict(LIMIT, known=old)).startswith("stale_memory_use")
    assert verdict(RAISED, known=old) == RAISED
    assert "is not known; scrape" in str(verdict(LOWERED, known=JobMemory()))


def test_a_job_that_was_just_seen_has_no_peak_yet() -> None:
    new = JobMemory(memory_use=MemoryUse(START, 1.0, 1.0, samples=3))
    assert verdict(LOWERED, known=new) == "few_samples: 3 samples of its working set, bound 4"
    assert verdict(RAISED, known=new) == RAISED
    assert verdict(LIMIT, known=new) == LIMIT


@pytest.mark.parametrize("change", [LOWERED, LIMIT, a_change(640, 512, "limit")])
def test_a_node_under_memory_pressure_takes_no_memory_from_a_job_and_gives_it_none_to_use(
    change: ResizeMemory,
) -> None:
    expected = "memory_pressure: node n1 reports MemoryPressure, and evicts first what uses more than it requests"
    assert verdict(change, a_world(pressure=True)) == expected
    assert verdict(change) == change


def test_a_request_goes_up_under_memory_pressure_too() -> None:
    assert verdict(RAISED, a_world(pressure=True)) == RAISED


def test_a_raised_limit_goes_down_only_where_the_peak_is_far_from_it() -> None:
    assert verdict(a_change(640, 512, "limit")) == a_change(640, 512, "limit")
    high = JobMemory(memory_use=MemoryUse(START, 1.0, 470.0 * MIB, samples=10))
    expected = "limit_in_use: the limit stays raised: a peak of 470Mi is too near the original 512Mi"
    assert verdict(a_change(640, 512, "limit"), known=high) == expected


def test_a_peak_right_after_a_request_was_lowered_raises_it_at_once() -> None:
    just = JobMemory(memory_use=USE, memory_resized_at_seconds=START - 1.0)
    assert verdict(RAISED, known=just) == RAISED
    assert verdict(LIMIT, known=just) == LIMIT
    assert verdict(LOWERED, known=just) == "memory_cooldown: resized 1 s ago, bound 10 s"


def test_small_changes_are_not_worth_a_call() -> None:
    assert verdict(a_change(1000, 910)) == "memory_minimum_change: change of 9.0% to 910Mi, bound 10%"
    assert verdict(a_change(1000, 900)) == a_change(1000, 900)
    assert verdict(a_change(1000, 1090)) != a_change(1000, 1090)


def test_a_request_below_the_peak_and_an_original_are_worth_one_however_small() -> None:
    assert verdict(a_change(299, 310)) == a_change(299, 310)
    back = JobMemory(memory_use=USE, original_memory=MemoryAllocation(1000 * MIB))
    assert verdict(a_change(990, 1000), known=back) == a_change(990, 1000)


def test_a_raise_gets_what_its_node_has_left() -> None:
    crowded = a_world(gib=1)  # all of which the job requests
    assert verdict(RAISED, crowded) == "node_memory: n1 has 0Mi left, and the request would grow by 664Mi"
    assert verdict(LOWERED, crowded) == LOWERED
    found = verdict(a_change(1024, 3072, "limit"), a_world(gib=2))
    assert isinstance(found, ResizeMemory)
    assert (found.to_bytes, found.reason) == (2048 * MIB, "why (wanted 3072Mi, node has 1024Mi left)")


def test_room_is_what_jobs_neither_request_nor_use_and_is_given_once() -> None:
    jobs = [replace(a_job(uid), memory_request_bytes=1024.0 * MIB) for uid in ("j", "k")]
    node = replace(a_node(), memory_bytes=3 * 2**30)
    heavy = JobMemory(memory_use=MemoryUse(START, 1536.0 * MIB, 1536.0 * MIB, samples=10))
    memory = MemoryState({"j": JobMemory(memory_use=USE), "k": heavy})
    wanted = [a_change(1024, 1436, "limit", uid) for uid in ("j", "k")]
    allowed, withheld = reviewed(wanted, a_snapshot(jobs, [node]), memory, OPEN)
    # 3072 - 1024 - 1536 leave 512 MiB; the first takes 412 of them, and 100 are less than a tenth of 1024.
    assert [each.job_uid for each in allowed] == ["j"]
    assert [each.reason for each in withheld] == ["node_memory: n1 has 100Mi left, and the limit would grow by 412Mi"]


def test_no_name_of_a_guard_is_one_of_another_kind() -> None:
    assert all("memory" in guard.__name__ or guard.__name__ in ("few_samples", "limit_in_use") for guard in GUARDS)
