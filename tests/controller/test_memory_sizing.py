"""Memory requests of jobs that need little, and limits before they kill: what is decided, before guards."""

from __future__ import annotations

import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.memory_sizing import resizes, restorable
from slopewise.model import (
    CpuAllocation,
    Job,
    JobMemory,
    JobState,
    MemoryAllocation,
    MemoryControl,
    MemoryResizes,
    MemoryState,
    MemoryUse,
    PendingResize,
    PolicyMemory,
    ResizeMemory,
)

MIB = 2**20
CPU = CpuAllocation(None, 1000)


def size(request: int | None, limit: int | None = None) -> MemoryAllocation:
    """In MiB."""
    return MemoryAllocation(None if request is None else request * MIB, None if limit is None else limit * MIB)


def use(now: float, peak: float = 0.0, previous: float = 0.0) -> MemoryUse:
    """In MiB."""
    return MemoryUse(START, now * MIB, max(now, peak) * MIB, previous * MIB, samples=10)


def known(job_class: str | None, used: MemoryUse | None, original: MemoryAllocation | None = None) -> JobMemory:
    kept = None if original is None else CPU
    return JobMemory(
        decided=PolicyMemory(job_class=job_class), memory_use=used, original=kept, original_memory=original
    )


def decided(
    has: MemoryAllocation | None, memory: JobMemory, control: MemoryControl = "Requests", **more: object
) -> ResizeMemory | None:
    job: Job = a_job("j").altered(memory=has, **more)
    found = list(resizes(a_snapshot([job]), MemoryState({"j": memory}), control))
    assert len(found) <= 1
    return found[0] if found else None


def change(found: ResizeMemory | None) -> tuple[str, float, float] | None:
    """Which bound, from and to, in MiB."""
    return None if found is None else (found.bound, found.from_bytes / MIB, found.to_bytes / MIB)


ALMOST = MemoryAllocation(1024 * MIB - 1, 1024 * MIB)
RAISED = known("NL", use(100), size(256, 512))
OF_MEMORY = PendingResize("infeasible", START, "swap", CPU, actual_memory=size(256, 512))


@pytest.mark.parametrize(
    ("has", "memory", "control", "more", "expected"),
    [
        *((size(1024), known(each, use(200)), "Requests", {}, None) for each in ("NL", "urgent", "deliverable", None)),
        # a peak from before the last checkpoint counts
        (size(1024), known("CL", use(100, 150, previous=500)), "Requests", {}, ("request", 1024, 600)),
        # never to nothing, of which no part can be changed
        (size(1024), known("CL", use(0)), "Requests", {}, ("request", 1024, 1)),
        # never above the original
        (size(1024), known("CL", use(1000)), "Requests", {}, None),
        (size(600), known("CL", use(1000), size(1024)), "Requests", {}, ("request", 600, 1024)),
        # up again when the use grows over it
        (size(360), known("CL", use(500), size(1024)), "Requests", {}, ("request", 360, 600)),
        # back when memory is to be ignored
        (size(360), known("CL", use(100), size(1024)), "Ignore", {}, ("request", 360, 1024)),
        (size(1024), known("CL", use(100)), "Ignore", {}, None),
        # a byte below the original is back
        (ALMOST, known("NL", use(100), size(1024, 1024)), "Requests", {}, None),
        (ALMOST, known("CL", use(1000), size(1024, 1024)), "Requests", {}, None),
        # without what it takes nothing is decided
        (None, known("CL", use(100)), "Requests", {}, None),
        (size(None), known("CL", use(100)), "Requests", {}, None),
        (size(1024), known("CL", None), "Requests", {}, None),
        (size(1024), known("CL", use(100)), "Requests", {"state": JobState.FINISHED}, None),
        # limits stay below nine tenths and where only requests are changed
        (size(256, 512), known("NL", use(460)), "Limits", {}, None),
        (size(256, 512), known("NL", use(510)), "Requests", {}, None),
        # they are raised before a request is lowered
        (size(1000, 1000), known("CL", use(10)), "Limits", {}, ("request", 1000, 12)),
        (size(1024, 512), known("CL", use(500)), "Limits", {}, ("limit", 512, 640)),
        # raised ones stay while limits may be raised, and go back when they may not be any more
        (size(256, 640), RAISED, "Limits", {}, None),
        (size(256, 640), RAISED, "Requests", {}, ("limit", 640, 512)),
        (size(256, 640), RAISED, "Ignore", {}, ("limit", 640, 512)),
        # a request does not wait for a limit that stays raised because it is in use
        (size(120, 640), known("NL", use(500), size(256, 512)), "Ignore", {}, ("request", 120, 256)),
        (size(120, 640), known("NL", use(500), size(256, 512)), "Requests", {}, ("request", 120, 256)),
        # what its node has no room for is taken back, but a change of CPU is not its matter
        (size(256, 640), known("NL", use(500)), "Limits", {"pending": OF_MEMORY}, ("limit", 640, 512)),
        (
            size(1024),
            known("CL", use(100)),
            "Requests",
            {"pending": PendingResize("deferred", START, "no CPU", CPU)},
            ("request", 1024, 120),
        ),
    ],
)
def test_which_bound_is_changed_and_to_what(
    has: MemoryAllocation | None,
    memory: JobMemory,
    control: MemoryControl,
    more: dict[str, object],
    expected: tuple[str, float, float] | None,
) -> None:
    assert change(decided(has, memory, control, **more)) == expected


class TestRequests:
    @pytest.mark.parametrize("job_class", ["CL", "released"])
    def test_of_a_converged_or_released_job_go_to_a_fifth_above_the_peak(self, job_class: str) -> None:
        found = decided(size(1024), known(job_class, use(200, peak=300)))
        assert change(found) == ("request", 1024, 360)
        assert found is not None
        assert "1.2 times its peak of 300Mi, originally 1024Mi" in found.reason

    def test_go_back_when_the_job_leaves_its_class(self) -> None:
        found = decided(size(360), known("NL", use(100), size(1024)))
        assert change(found) == ("request", 360, 1024)
        assert found is not None
        assert found.reason == "its original request: its class is NL"


class TestLimits:
    def test_go_up_by_a_quarter_before_they_kill(self) -> None:
        found = decided(size(256, 512), known("NL", use(470)), "Limits")
        assert change(found) == ("limit", 512, 640)
        assert found is not None
        assert found.reason == "its working set of 470Mi is 92% of its limit, which kills it"


class TestPending:
    def test_a_raise_that_its_node_has_no_room_for_is_taken_back(self) -> None:
        waits = PendingResize("deferred", START, "no memory", CPU, actual_memory=size(360, 2048))
        found = decided(size(1024, 2048), known("NL", use(100), size(1024, 2048)), pending=waits)
        assert change(found) == ("request", 1024, 360)
        assert found is not None
        assert found.is_rollback
        assert found.reason == "takes back a request of 1024Mi, which is deferred: no memory"


@pytest.mark.parametrize(
    ("memory", "restored", "named"),
    [
        (known("CL", use(100)), None, None),  # never changed
        (known("CL", use(500), size(1024, 512)), size(1024, 512), None),  # a lowered request, whatever the job uses
        (
            known("NL", use(100, 400), size(256, 512)).altered(
                memory_resizes=MemoryResizes(written_limit_bytes=640 * MIB)
            ),
            size(256, 512),
            None,
        ),
        (
            known("NL", use(100, 500), size(256, 512)).altered(
                memory_resizes=MemoryResizes(written_limit_bytes=640 * MIB)
            ),
            size(256),
            "500Mi",
        ),
        (
            known("NL", None, size(256, 512)).altered(memory_resizes=MemoryResizes(written_limit_bytes=640 * MIB)),
            size(256),
            "an unknown amount",
        ),
    ],
)
def test_what_can_be_restored_and_a_raised_limit_stays_where_its_original_would_kill(
    memory: JobMemory, restored: MemoryAllocation | None, named: str | None
) -> None:
    stays = f"a memory limit that was raised stays: the job uses {named}, too near its original 512Mi"
    assert restorable(memory) == (restored, stays if named else "")
