"""Metrics of jobs with accelerators: how long their devices wait for batches, what CPU would end that, what was won.

Worked example: two devices that wait for 40 % of 20 s between two passes: 40 device-seconds held, 16 of them waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter

from slopewise.estimators.gpu_need import gpu_need
from slopewise.model import Job, JobMemory, PassReport
from slopewise.telemetry.families import Figure


class _Devices(NamedTuple):
    """Of one job."""

    namespace: str
    held: float
    waiting: float
    """How many wait, on average."""
    won_seconds: float
    """Device-seconds since its CPU was first changed."""


def _devices(job: Job, known: JobMemory) -> _Devices:
    waits = gpu_need(job, known).wait_ratio or job.wait_ratio or 0.0
    return _Devices(job.namespace, job.accelerators, job.accelerators * waits, known.gpu.seconds_won)


class GpuSeconds:
    """Device-seconds that jobs held, of these those that waited, and those that were won, counted from pass to pass."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "slopewise_gpu_seconds", "Device-seconds that jobs held; of these, waiting for batches; and won by CPU.",
            ["job_namespace", "kind"], registry=registry,
        )  # fmt: skip
        self._last: dict[str, tuple[float, Mapping[str, _Devices]]] = {}
        """Time and devices, by uid, of the last pass of each document."""

    def replace_pass(self, document: str, report: PassReport) -> None:
        """Count what the jobs of the last pass had until this one."""
        if report.snapshot is None or report.decisions is None:
            return
        now, remembered = report.snapshot.taken_at_seconds, report.decisions.memory.jobs
        having = (job for job in report.snapshot.jobs if job.accelerators and not job.state.ended)
        devices = {job.uid: _devices(job, remembered[job.uid]) for job in having}
        before, last = self._last.get(document, (now, {}))
        seconds = max(0.0, now - before)
        for uid, has in devices.items():
            had = last.get(uid, has)
            won = max(0.0, has.won_seconds - had.won_seconds)
            for kind, more in (("held", had.held * seconds), ("waiting", had.waiting * seconds), ("won", won)):
                self._counter.labels(has.namespace, kind).inc(more if uid in last else 0.0)
        self._last[document] = now, devices

    def forget(self, document: str) -> None:
        """Count nothing more of a deleted policy."""
        self._last.pop(document, None)


GPU_GAUGES = {
    "gpu_wait_ratio": "Part of the time in which its devices waited for batches.",
    "useful_cores": "CPU that it can turn into steps, in cores.",
}
GPU_COUNTERS = {"gpu_seconds_won": "Device-seconds that its steps would have waited longer with its original CPU."}


def gpu_figures(job: Job, known: JobMemory) -> Iterator[Figure]:
    """Of a job without accelerators there are none."""
    if job.accelerators and not job.state.ended:
        need = gpu_need(job, known)
        yield "gpu_wait_ratio", need.wait_ratio
        yield "useful_cores", need.useful_cores
        yield "gpu_seconds_won", None if known.original is None else known.gpu.seconds_won
