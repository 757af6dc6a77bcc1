"""Class records: what the jobs of a workload class have shown of their speed, steps and memory.

Jobs are of one class when they run the same program (a cluster digests image and command, the simulator takes the
model's name). What ended or running jobs have shown is kept after them, so that the next job of the class is known when
it arrives. The newest `JOBS_KEPT` jobs of the `CLASSES_KEPT` classes seen last are kept: 20 KB as JSON at most.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from slopewise.estimators import pace
from slopewise.estimators.growth import IDLE_CORES
from slopewise.model import ClassFigures, ClusterSnapshot, Job, JobMemory, MemoryState

JOBS_KEPT = 4
CLASSES_KEPT = 48

_DIGITS = 4
"""Significant digits of what is stored: a pace is known to a few percent."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a job of a class is expected to need: the medians over its record."""

    line: pace.Line
    """Seconds a step or response, by cores."""
    least_cores: float
    """The least CPU at which one was timed: the line says little of less."""
    steps_planned: float | None
    """None: no job of the class planned any."""
    memory_bytes: float | None
    jobs: int
    """How many jobs this is from."""

    def cores_for(self, seconds: float) -> float | None:
        """The CPU at which one step or response takes so long; None when no CPU makes it that fast."""
        return pace.cores_for(seconds, self.line)


def measure(snapshot: ClusterSnapshot, memory: MemoryState) -> MemoryState:
    """Bring the class records up to this snapshot."""
    found: dict[str, list[ClassFigures]] = {}
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid)
        if job.workload_class and known is not None and (figures := _figures(job, known)) is not None:
            found.setdefault(job.workload_class, []).append(figures)
    changed = {name: _joined(memory.classes.get(name, ()), new) for name, new in found.items()}
    if all(memory.classes.get(name) == record for name, record in changed.items()):
        return memory
    others = {name: record for name, record in memory.classes.items() if name not in changed}
    newest_last = [*others.items(), *changed.items()]
    return replace(memory, classes=dict(newest_last[-CLASSES_KEPT:]))


def _joined(record: Sequence[ClassFigures], new: Sequence[ClassFigures]) -> tuple[ClassFigures, ...]:
    """The record with newer figures of its jobs; the peak of memory stays."""
    by_uid = {each.job_uid: each for each in record}
    for each in new:
        before = by_uid.pop(each.job_uid, None)
        by_uid[each.job_uid] = each if before is None else _with_peak(each, before)
    return tuple(sorted(by_uid.values(), key=lambda each: (each.at_seconds, each.job_uid))[-JOBS_KEPT:])


def _with_peak(figures: ClassFigures, before: ClassFigures) -> ClassFigures:
    if before.memory_bytes is None or (figures.memory_bytes or 0.0) >= before.memory_bytes:
        return figures
    return structs.replace(figures, memory_bytes=before.memory_bytes)


def _figures(job: Job, known: JobMemory) -> ClassFigures | None:
    """What the job has shown; None before it was timed at a known CPU."""
    line = pace.calibrated(known.paces)
    if line is None:
        return None
    timed_at = [each.cores for each in known.paces if each.cores is not None and each.cores >= IDLE_CORES]
    return ClassFigures(
        job.uid,
        known.paces[-1].at_seconds,
        _rounded(line[0]),
        _rounded(line[1]),
        _rounded(min(timed_at)),
        job.steps_planned,
        None if job.usage is None else job.usage.memory_bytes,
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def expected(name: str, classes: Mapping[str, Sequence[ClassFigures]]) -> Expected | None:
    """What a job of this class is expected to need; None: nothing is known of it."""
    record = classes.get(name, ()) if name else ()
    if not record:
        return None
    steps = [each.steps_planned for each in record if each.steps_planned is not None]
    memory = [each.memory_bytes for each in record if each.memory_bytes is not None]
    return Expected(
        line=(
            statistics.median(each.fixed_seconds for each in record),
            statistics.median(each.cpu_seconds for each in record),
        ),
        least_cores=min(each.least_cores for each in record),
        steps_planned=statistics.median(steps) if steps else None,
        memory_bytes=max(memory) if memory else None,
        jobs=len(record),
    )
