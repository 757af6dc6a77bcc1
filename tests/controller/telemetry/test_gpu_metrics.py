"""What is counted of jobs with GPUs, from pass to pass and of each job."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from support.worlds import START, a_job, a_snapshot

from slopewise.model import CpuAllocation, Decisions, JobMemory, JobState, MemoryState, Pace, PassReport
from slopewise.telemetry.gpu_metrics import GpuSeconds, gpu_figures

PACES = tuple(Pace(START + 20 * number, 0.9, 3.0, 1.0, 0.5 / 0.9) for number in range(3))
WAITS = JobMemory(paces=PACES, original=CpuAllocation(3000, 3000))


def a_report(at: float, won: float, *uids: str) -> PassReport:
    jobs = [a_job(uid, at=at).altered(accelerators=2.0, wait_ratio=0.1) for uid in uids]
    memory = MemoryState(
        {uid: WAITS.altered(gpu=WAITS.gpu.altered(seconds_won=won)) for uid in uids} | {"plain": JobMemory()}
    )
    snapshot = a_snapshot([*jobs, a_job("plain", at=at)], at=at)
    return PassReport(at, "fair", {}, at + 20, snapshot=snapshot, decisions=Decisions("fair", (), {}, memory))


def counted(*reports: PassReport) -> dict[str, float]:
    registry = CollectorRegistry()
    seconds = GpuSeconds(registry)
    for report in reports:
        seconds.replace_pass("training", report)
    found = {
        kind: registry.get_sample_value("slopewise_gpu_seconds_total", {"job_namespace": "team", "kind": kind})
        for kind in ("held", "waiting", "won")
    }
    return {kind: round(value, 3) for kind, value in found.items() if value is not None}


def test_two_devices_that_wait_are_counted_over_the_time_between_two_passes() -> None:
    first, second = a_report(START, 5.0, "a"), a_report(START + 18, 9.0, "a")
    assert counted(first) == {"held": 0, "waiting": 0, "won": 0}
    assert counted(first, second) == {"held": 36, "waiting": 20, "won": 4}


def test_a_job_that_has_come_or_gone_between_two_passes_is_not_counted_for_that_time() -> None:
    assert counted(a_report(START, 5.0, "a"), a_report(START + 18, 9.0, "b")) == {"held": 0, "waiting": 0, "won": 0}


def test_a_job_has_its_figures_where_they_are_known_and_one_without_a_gpu_has_none() -> None:
    job = a_job("a").altered(accelerators=1.0)
    found = gpu_figures(job, WAITS.altered(gpu=WAITS.gpu.altered(seconds_won=7.0)))
    assert {name: round(value or 0.0, 3) for name, value, *_ in found} == {
        "gpu_wait_ratio": 0.556,
        "useful_cores": 6.75,
        "gpu_seconds_won": 7,
    }
    assert {value for _, value, *_ in gpu_figures(job, JobMemory())} == {None}
    assert list(gpu_figures(job.altered(state=JobState.FINISHED), WAITS)) == []
    assert list(gpu_figures(a_job("plain"), WAITS)) == []
