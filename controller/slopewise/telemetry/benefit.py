"""Metrics of what was gained: CPU that went from job to job, and ends of jobs beside those under fair sharing.

CPU is compared with what each job came with: a container's original limit, or its part of the node by the original
requests. A policy that changes nothing therefore moves nothing.

Worked example: three jobs without limits share a node of 3 cores, 1 each. The converged one is lowered to 0.25: from
then on 0.75 core-seconds a second are freed from it, and the other two have 0.375 each more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter

from slopewise.allocation import actual_millicores, cores_of, original_millicores, water_filling
from slopewise.model import ClusterSnapshot, CpuControl, Job, JobMemory, PassReport
from slopewise.telemetry.families import Figure
from slopewise.telemetry.gpu_metrics import GpuSeconds


class _Gain(NamedTuple):
    namespace: str
    job_class: str
    cores: float
    """What it has now less what it came with; below 0: freed from it."""


class MovedCpu:
    """Core-seconds that went from job to job, counted from pass to pass, by policy document."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["job_namespace", "class"]
        self._freed = Counter(
            "slopewise_freed_core_seconds", "CPU that jobs had less than they came with, by their class.", labels,
            registry=registry,
        )  # fmt: skip
        self._received = Counter(
            "slopewise_received_core_seconds", "CPU that jobs had more than they came with, by their class.", labels,
            registry=registry,
        )  # fmt: skip
        self._gpus = GpuSeconds(registry)
        self._last: dict[str, tuple[float, Mapping[str, _Gain]]] = {}
        """Time and gains, by uid, of the last pass of each document."""

    def replace_pass(self, document: str, report: PassReport, control: CpuControl) -> None:
        """Count what the jobs of the last pass had until this one; held passes are ignored.

        A job that has left in between is not counted for that time, because its end is not known.
        """
        if report.held or report.snapshot is None or report.decisions is None:
            return
        self._gpus.replace_pass(document, report)
        now = report.snapshot.taken_at_seconds
        gains = _gains(report.snapshot, report.decisions.memory.jobs, control)
        before, last = self._last.get(document, (now, {}))
        freed, received, seconds = self._freed, self._received, max(0.0, now - before)
        sums: dict[tuple[Counter, str, str], float] = {}
        for each in gains.values():
            sums[freed, each.namespace, each.job_class] = sums[received, each.namespace, each.job_class] = 0.0
        for gain in (each for uid, each in last.items() if uid in gains):
            key = received if gain.cores > 0 else freed, gain.namespace, gain.job_class
            sums[key] = sums.get(key, 0.0) + abs(gain.cores) * seconds
        for (counter, namespace, job_class), core_seconds in sums.items():  # 10,000 jobs have a few labels together
            counter.labels(namespace, job_class).inc(core_seconds)
        self._last[document] = now, gains

    def forget(self, document: str) -> None:
        """Count nothing more of a deleted policy."""
        self._gpus.forget(document)
        self.note_restored(document)

    def note_restored(self, document: str) -> None:
        """Its jobs get back what they came with: until its next pass nothing is freed."""
        self._last.pop(document, None)


def _gains(snapshot: ClusterSnapshot, remembered: Mapping[str, JobMemory], control: CpuControl) -> dict[str, _Gain]:
    """No node gives more than it has, also where its limits add up to more."""
    gains, jobs_on = {}, snapshot.jobs_by_node()
    for node in snapshot.nodes:
        jobs = jobs_on[node.name]
        has, had = (
            water_filling(cores_of(millicores, node, control), node.cpu_cores)
            for millicores in (
                [actual_millicores(job, node, control) for job in jobs],
                [original_millicores(job, remembered, node, control) for job in jobs],
            )
        )
        for job, now, before in zip(jobs, has, had, strict=True):
            gains[job.uid] = _Gain(job.namespace, remembered[job.uid].decided.job_class or "", now - before)
    return gains


END_GAUGES = {
    "expected_end_timestamp_seconds": (
        "When it is expected to end; the earliest: if it were served alone; the latest: as under fair sharing.",
        "bound",
    ),
    "saved_seconds": ("By how much it is expected to end sooner than it would under fair sharing.", "bound"),
}


def end_figures(job: Job, known: JobMemory) -> Iterator[Figure]:
    """The ends of a job that has not ended, where its policy compares them with fair sharing."""
    ends = known.decided.ends
    if job.state.ended or ends is None or ends.fair_seconds is None:
        return
    for end, saved, seconds in (
        ("earliest", "most", ends.earliest_seconds),
        ("expected", "expected", ends.at_seconds),
        ("latest", "least", ends.latest_seconds),
    ):
        yield "expected_end_timestamp_seconds", seconds, end
        yield "saved_seconds", ends.fair_seconds - seconds, saved
