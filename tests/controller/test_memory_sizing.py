"""Memory requests of jobs that need little, and limits before they kill: what is decided, before guards."""

from __future__ import annotations

from dataclasses import replace

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
    MemoryState,
    MemoryUse,
    PendingResize,
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
    return JobMemory(job_class=job_class, memory_use=used, original=kept, original_memory=original)


def decided(
    has: MemoryAllocation | None, memory: JobMemory, control: MemoryControl = "Requests", **more: object
) -> ResizeMemory | None:
    job: Job = replace(a_job("j"), memory=has, **more)  # type: ignore[arg-type]
    found = list(resizes(a_snapshot([job]), MemoryState({"j": memory}), control))
    assert len(found) <= 1
    return found[0] if found else None


def change(found: ResizeMemory | None) -> tuple[str, float, float] | None:
    """Which bound, from and to, in MiB."""
    return None if found is None else (found.bound, found.from_bytes / MIB, found.to_bytes / MIB)


class TestRequests:
    @pytest.mark.parametrize("job_class", ["CL", "released"])
    def test_of_a_converged_or_released_job_go_to_a_fifth_above_the_peak(self, job_class: str) -> None:
        found = decided(size(1024), known(job_class, use(200, peak=300)))
        assert change(found) == ("request", 1024, 360)
        assert found is not None
        assert "1.2 times its peak of 300Mi, originally 1024Mi" in found.reason

    @pytest.mark.parametrize("job_class", ["NL", "WL", "urgent", "deliverable", None])
    def test_of_every_other_job_stay(self, job_class: str | None) -> None:
        assert decided(size(1024), known(job_class, use(200))) is None

    def test_keep_a_peak_from_before_the_last_checkpoint(self) -> None:
        assert change(decided(size(1024), known("CL", use(100, 150, previous=500)))) == ("request", 1024, 600)

    def test_never_go_above_the_original(self) -> None:
        assert decided(size(1024), known("CL", use(1000))) is None
        assert change(decided(size(600), known("CL", use(1000), size(1024)))) == ("request", 600, 1024)

    def test_go_up_again_when_the_use_grows_over_them(self) -> None:
        assert change(decided(size(360), known("CL", use(500), size(1024)))) == ("request", 360, 600)

    def test_go_back_when_the_job_leaves_its_class(self) -> None:
        found = decided(size(360), known("NL", use(100), size(1024)))
        assert change(found) == ("request", 360, 1024)
        assert found is not None
        assert found.reason == "its original request: its class is NL"

    def test_go_back_when_memory_is_to_be_ignored(self) -> None:
        assert change(decided(size(360), known("CL", use(100), size(1024)), "Ignore")) == ("request", 360, 1024)
        assert decided(size(1024), known("CL", use(100)), "Ignore") is None

    def test_that_are_a_byte_below_the_original_are_back(self) -> None:
        almost = MemoryAllocation(1024 * MIB - 1, 1024 * MIB)
        assert decided(almost, known("NL", use(100), size(1024, 1024))) is None
        assert decided(almost, known("CL", use(1000), size(1024, 1024))) is None

    @pytest.mark.parametrize(
        ("has", "used", "state"),
        [
            (None, use(100), JobState.TRAINING),
            (size(None), use(100), JobState.TRAINING),
            (size(1024), None, JobState.TRAINING),
            (size(1024), use(100), JobState.FINISHED),
        ],
        ids=["not known", "no request", "no use", "ended"],
    )
    def test_without_what_it_takes_nothing_is_decided(
        self, has: MemoryAllocation | None, used: MemoryUse | None, state: JobState
    ) -> None:
        assert decided(has, known("CL", used), state=state) is None


class TestLimits:
    def test_go_up_by_a_quarter_before_they_kill(self) -> None:
        found = decided(size(256, 512), known("NL", use(470)), "Limits")
        assert change(found) == ("limit", 512, 640)
        assert found is not None
        assert found.reason == "its working set of 470Mi is 92% of its limit, which kills it"

    def test_stay_below_nine_tenths_and_where_only_requests_are_changed(self) -> None:
        assert decided(size(256, 512), known("NL", use(460)), "Limits") is None
        assert decided(size(256, 512), known("NL", use(510)), "Requests") is None

    def test_are_raised_before_a_request_is_lowered(self) -> None:
        assert change(decided(size(1000, 1000), known("CL", use(10)), "Limits")) == ("request", 1000, 12)
        assert change(decided(size(1024, 512), known("CL", use(500)), "Limits")) == ("limit", 512, 640)

    def test_that_were_raised_stay_while_limits_may_be_raised(self) -> None:
        assert decided(size(256, 640), known("NL", use(100), size(256, 512)), "Limits") is None

    @pytest.mark.parametrize("control", ["Requests", "Ignore"])
    def test_that_were_raised_go_back_when_they_may_not_be_any_more(self, control: MemoryControl) -> None:
        found = decided(size(256, 640), known("NL", use(100), size(256, 512)), control)
        assert change(found) == ("limit", 640, 512)


class TestPending:
    def test_a_raise_that_its_node_has_no_room_for_is_taken_back(self) -> None:
        waits = PendingResize("deferred", START, "no memory", CPU, actual_memory=size(360, 2048))
        found = decided(size(1024, 2048), known("NL", use(100), size(1024, 2048)), pending=waits)
        assert change(found) == ("request", 1024, 360)
        assert found is not None
        assert found.is_rollback
        assert found.reason == "takes back a request of 1024Mi, which is deferred: no memory"

    def test_a_limit_too(self) -> None:
        waits = PendingResize("infeasible", START, "swap", CPU, actual_memory=size(256, 512))
        assert change(decided(size(256, 640), known("NL", use(500)), "Limits", pending=waits)) == ("limit", 640, 512)

    def test_a_pending_change_of_cpu_is_not_its_matter(self) -> None:
        waits = PendingResize("deferred", START, "no CPU", CPU)
        assert change(decided(size(1024), known("CL", use(100)), pending=waits)) == ("request", 1024, 120)


class TestRestorable:
    def test_memory_that_was_never_changed_stays(self) -> None:
        assert restorable(known("CL", use(100))) == (None, "")

    def test_a_lowered_request_goes_back_whatever_the_job_uses(self) -> None:
        assert restorable(known("CL", use(500), size(1024, 512))) == (size(1024, 512), "")

    def test_a_raised_limit_goes_back_where_the_peak_is_far_from_it(self) -> None:
        raised = known("NL", use(100, 400), size(256, 512)).altered(written_limit_bytes=640 * MIB)
        assert restorable(raised) == (size(256, 512), "")

    @pytest.mark.parametrize(("used", "named"), [(use(100, 500), "500Mi"), (None, "an unknown amount")])
    def test_a_raised_limit_stays_where_it_would_kill_and_that_is_said(
        self, used: MemoryUse | None, named: str
    ) -> None:
        raised = known("NL", used, size(256, 512)).altered(written_limit_bytes=640 * MIB)
        memory, note = restorable(raised)
        assert memory == size(256)
        assert note == f"a memory limit that was raised stays: the job uses {named}, too near its original 512Mi"
