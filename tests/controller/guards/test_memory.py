"""The guards of memory, one by one: what each lets through, and what it says where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Job,
    JobMemory,
    MemoryAllocation,
    MemoryBound,
    MemoryResizes,
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
    sized = a_job("j").altered(memory=MemoryAllocation(1024 * MIB, 2048 * MIB), memory_request_bytes=1024.0 * MIB)
    return a_snapshot([job or sized], [node])


def verdict(
    change: ResizeMemory, world: ClusterSnapshot | None = None, known: JobMemory | None = None, bounds: Bounds = OPEN
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


GUARANTEED = a_job("j").altered(memory_ineligible_reason="it is Guaranteed")
UNDER_WAY = replace(a_world(), moving=(MoveUnderWay("j", "n1", "n2", START, "saving"),))
PRESSURE = "memory_pressure: node n1 reports MemoryPressure, and evicts first what uses more than it requests"
LIMIT_BACK = a_change(640, 512, "limit")


def using(at: float = START, peak_mib: float = 300.0, samples: int = 10, **more: Any) -> JobMemory:
    return JobMemory(memory_use=MemoryUse(at, 1.0, peak_mib * MIB, samples=samples), **more)


@pytest.mark.parametrize(
    ("change", "asked", "reason"),
    [
        (LOWERED, {}, ""),
        (RAISED, {}, ""),
        (LIMIT, {}, ""),
        (LIMIT_BACK, {}, ""),
        *((LOWERED, {"bounds": replace(OPEN, mode=mode)}, f"memory_paused: mode is {mode}, and only Canary and Auto")
          for mode in ("Observe", "Recommend")),
        (LOWERED, {"bounds": replace(OPEN, mode="Canary", canary_ratio=1e-9)}, "memory_canary: mode is Canary"),
        (RAISED, {"world": a_world(GUARANTEED)}, "memory_ineligible: it is Guaranteed"),
        (LOWERED, {"world": UNDER_WAY}, "moving: goes to n2"),
        # an old sample lowers nothing and raises no limit
        (LOWERED, {"known": using(START - 40.0)}, "stale_memory_use: its working set is 40 s old, bound 39 s"),
        (LIMIT, {"known": using(START - 40.0)}, "stale_memory_use"),
        (RAISED, {"known": using(START - 40.0)}, ""),
        (LOWERED, {"known": JobMemory()}, "stale_memory_use: its working set is not known; scrape"),
        # a job that was just seen has no peak yet
        (LOWERED, {"known": using(samples=3)}, "few_samples: 3 samples of its working set, bound 4"),
        (RAISED, {"known": using(samples=3)}, ""),
        (LIMIT, {"known": using(samples=3)}, ""),
        *((change, {"world": a_world(pressure=True)}, PRESSURE) for change in (LOWERED, LIMIT, LIMIT_BACK)),
        (RAISED, {"world": a_world(pressure=True)}, ""),
        (
            LIMIT_BACK,
            {"known": using(peak_mib=470.0)},
            "limit_in_use: the limit stays raised: a peak of 470Mi is too near the original 512Mi",
        ),
        # a peak right after a request was lowered raises it at once
        (RAISED, {"known": using(memory_resizes=MemoryResizes(START - 1.0))}, ""),
        (LIMIT, {"known": using(memory_resizes=MemoryResizes(START - 1.0))}, ""),
        (LOWERED, {"known": using(memory_resizes=MemoryResizes(START - 1.0))}, "memory_cooldown: resized 1 s ago"),
        # small changes are not worth a call, but below the peak and back to the original
        (a_change(1000, 910), {}, "memory_minimum_change: change of 9.0% to 910Mi, bound 10%"),
        (a_change(1000, 1090), {}, "memory_minimum_change"),
        (a_change(1000, 900), {}, ""),
        (a_change(299, 310), {}, ""),
        (a_change(990, 1000), {"known": using(original_memory=MemoryAllocation(1000 * MIB))}, ""),
    ],
)  # fmt: skip
def test_a_change_passes_or_its_veto_says_why(change: ResizeMemory, asked: dict[str, Any], reason: str) -> None:
    found = verdict(change, **asked)
    assert found == change if not reason else str(found).startswith(reason)


@pytest.mark.parametrize("change", [LOWERED, RAISED, LIMIT])
def test_after_its_node_refused_a_change_every_change_waits_for_a_minute(change: ResizeMemory) -> None:
    for seconds, passes in ((59.0, False), (60.0, True)):
        known = JobMemory(memory_resizes=MemoryResizes(refused_at_seconds=START - seconds), memory_use=USE)
        assert isinstance(verdict(change, known=known), ResizeMemory) is passes


def test_while_a_resize_is_pending_nothing_but_taking_it_back() -> None:
    waits = PendingResize("deferred", START, "no room", CpuAllocation(None, 1000))
    world = a_world(a_job("j").altered(pending=waits))
    assert verdict(RAISED, world) == "memory_pending: the last resize is deferred: no room"
    back = replace(LOWERED, is_rollback=True)
    assert verdict(back, world) == back


def test_a_raise_gets_what_its_node_has_left() -> None:
    crowded = a_world(gib=1)  # all of which the job requests
    assert verdict(RAISED, crowded) == "node_memory: n1 has 0Mi left, and the request would grow by 664Mi"
    assert verdict(LOWERED, crowded) == LOWERED
    found = verdict(a_change(1024, 3072, "limit"), a_world(gib=2))
    assert isinstance(found, ResizeMemory)
    assert (found.to_bytes, found.reason) == (2048 * MIB, "why (wanted 3072Mi, node has 1024Mi left)")


def test_room_is_what_jobs_neither_request_nor_use_and_is_given_once() -> None:
    jobs = [a_job(uid).altered(memory_request_bytes=1024.0 * MIB) for uid in ("j", "k")]
    node = replace(a_node(), memory_bytes=3 * 2**30)
    heavy = JobMemory(memory_use=MemoryUse(START, 1536.0 * MIB, 1536.0 * MIB, samples=10))
    memory = MemoryState({"j": JobMemory(memory_use=USE), "k": heavy})
    wanted = [a_change(1024, 1436, "limit", uid) for uid in ("j", "k")]
    allowed, withheld = reviewed(wanted, a_snapshot(jobs, [node]), memory, OPEN)
    # 3072 - 1024 - 1536 leave 512 MiB; the first takes 412 of them, and 100 are less than a tenth of 1024.
    assert [each.job_uid for each in allowed] == ["j"]
    assert [each.reason for each in withheld] == ["node_memory: n1 has 100Mi left, and the limit would grow by 412Mi"]
