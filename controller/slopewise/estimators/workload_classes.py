"""Class records: what the jobs of a workload class have shown of their speed, steps, memory and work.

Jobs are of one class when they run the same program (a cluster digests image and command, the simulator takes the
model's name). What ended or running jobs have shown is kept after them, so that the next job of the class is known when
it arrives. Of the `CLASSES_KEPT` classes seen last, the newest `JOBS_KEPT` jobs that were timed are kept, and the
newest `ENDED_KEPT` that have ended with raw points: 32 KB as JSON at most. Ended jobs of no class are kept under "".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import NamedTuple

from msgspec import structs

from slopewise.estimators import pace
from slopewise.estimators.growth import IDLE_CORES
from slopewise.model import ClassFigures, ClusterSnapshot, Job, JobMemory, JobState, JobUid, MemoryState, Points

JOBS_KEPT = 4
ENDED_KEPT = 4
CLASSES_KEPT = 36

MAX_UNCOUNTED_SECONDS = 60.0
"""After a longer time without a count it is not known when the job ended."""

_DIGITS = 4
"""Significant digits of what is stored: a pace is known to a few percent."""


class Expected(NamedTuple):
    """What a job of a class is expected to need: the medians over its record."""

    step_cpu_seconds: float
    steps_planned: float | None
    """None: no job of the class planned any."""


def measure(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """Bring the class records up to this snapshot. `remembered`: of the last pass, with the jobs that left since."""
    timed: dict[str, list[tuple[Job, JobMemory]]] = {}
    seen: dict[str, float] = {}
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid)
        if job.workload_class and known and any((each.cores or 0.0) >= IDLE_CORES for each in known.paces):
            timed.setdefault(job.workload_class, []).append((job, known))
            seen[job.workload_class] = max(seen.get(job.workload_class, -math.inf), known.paces[-1].at_seconds)
    ended: dict[str, list[ClassFigures]] = {}
    for uid, known in _finished(snapshot, memory, remembered):
        if known.points is None or known.points.cpu_seconds <= 0:
            continue
        name = known.points.workload_class
        if not _is_over(uid, known.points.sampled_at_seconds, memory.classes.get(name, ())):
            ended.setdefault(name, []).append(_ended(uid, known, known.points, snapshot.taken_at_seconds))
            seen[name] = max(seen.get(name, -math.inf), known.points.sampled_at_seconds)
    changed, least = {}, _seen_before_all(memory.classes)
    newer = sorted((name for name in seen if name in memory.classes or seen[name] >= least), key=seen.__getitem__)
    for name in newer[-CLASSES_KEPT:]:  # those before them are not kept, and a sweep has a class for each trial
        record = memory.classes.get(name, ())
        changed[name] = _joined(record, [*_figures_of(timed.get(name, ()), record), *ended.get(name, ())])
    if all(memory.classes.get(name) == record for name, record in changed.items()):
        return memory
    others = {name: record for name, record in memory.classes.items() if name not in changed}
    newest_last = [*others.items(), *changed.items()]
    return replace(memory, classes=dict(newest_last[-CLASSES_KEPT:]))


def _seen_before_all(classes: Mapping[str, Sequence[ClassFigures]]) -> float:
    """A class that was last seen before this is older than all that are kept; minus infinity: there is room."""
    if len(classes) < CLASSES_KEPT:
        return -math.inf
    return min(max((each.at_seconds for each in record), default=-math.inf) for record in classes.values())


def _finished(
    snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState
) -> Iterator[tuple[str, JobMemory]]:
    """Jobs that have ended well, with or without a pod."""
    for job in snapshot.jobs:
        if job.state == JobState.FINISHED and (known := memory.jobs.get(job.uid)) is not None:
            yield job.uid, known
    for absence in snapshot.absent:
        if absence.state == "finished" and (known := remembered.jobs.get(absence.job_uid)) is not None:
            yield absence.job_uid, known


def _is_over(uid: str, at_seconds: float, record: Sequence[ClassFigures]) -> bool:
    """Whether the end of this job is in the record, or is older than those that are kept."""
    ended = [each for each in record if each.work is not None]
    return any(each.job_uid == uid for each in ended) or (
        len(ended) >= ENDED_KEPT and at_seconds <= min(each.at_seconds for each in ended)
    )


def _joined(record: Sequence[ClassFigures], new: Sequence[ClassFigures]) -> tuple[ClassFigures, ...]:
    """The record with newer figures of its jobs; the peak of memory stays, and so does what an end has shown."""
    by_uid = {each.job_uid: each for each in record}
    for each in new:
        before = by_uid.pop(each.job_uid, None)
        by_uid[each.job_uid] = each if before is None else _with_former(each, before)
    ordered = sorted(by_uid.values(), key=lambda each: (each.at_seconds, each.job_uid))
    timed = [each for each in ordered if each.line is not None][-JOBS_KEPT:]
    ended = _one_a_workload([each for each in ordered if each.work is not None])[-ENDED_KEPT:]
    kept = {each.job_uid for each in (*timed, *ended)}
    return tuple(each for each in ordered if each.job_uid in kept)


def _one_a_workload(ended: Sequence[ClassFigures]) -> list[ClassFigures]:
    """The ranks of one training are alike, and say no more than one of them about the next training."""
    first = {JobUid.of(each.job_uid).workload: each for each in reversed(ended)}
    return [each for each in ended if first[JobUid.of(each.job_uid).workload] is each]


def _with_former(figures: ClassFigures, before: ClassFigures) -> ClassFigures:
    kept = structs.replace(
        figures if figures.line is not None else before,
        at_seconds=max(figures.at_seconds, before.at_seconds),
        work=before.work if figures.work is None else figures.work,
    )
    if before.memory_bytes is None or (figures.memory_bytes or 0.0) >= before.memory_bytes:
        return kept
    return structs.replace(kept, memory_bytes=before.memory_bytes)


def _figures_of(timed: Sequence[tuple[Job, JobMemory]], record: Sequence[ClassFigures]) -> list[ClassFigures]:
    """Of a class's jobs that the record may keep: the newest, those in it, and those that have ended."""
    newest = nlargest(JOBS_KEPT, timed, key=lambda each: (each[1].paces[-1].at_seconds, each[0].uid))
    former = {each.job_uid: each for each in record}
    kept = former.keys() | {job.uid for job, _ in newest}
    chosen = [each for each in timed if each[0].uid in kept or each[0].state == JobState.FINISHED]
    return [figures for job, known in chosen if (figures := _figures(job, known, former.get(job.uid))) is not None]


def _figures(job: Job, known: JobMemory, former: ClassFigures | None) -> ClassFigures | None:
    """What the job has shown; None before it was timed at a known CPU.

    `former`: of the record, whose line is that of the same paces where it is of the same time.
    """
    memory_bytes = None if job.usage is None else job.usage.memory_bytes
    if former is not None and former.line is not None and former.at_seconds == known.paces[-1].at_seconds:
        return structs.replace(former, steps_planned=job.steps_planned, memory_bytes=memory_bytes)
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
        memory_bytes,
    )


def _ended(uid: str, known: JobMemory, points: Points, now_seconds: float) -> ClassFigures:
    """What the end of a job has shown: its work.

    Its CPU was counted last before its end; until now it has used what it was given.
    """
    since = now_seconds - points.counted_at_seconds
    uncounted = (known.decided.wanted_cores or 0.0) * since if 0 < since <= MAX_UNCOUNTED_SECONDS else 0.0
    return ClassFigures(uid, points.sampled_at_seconds, work=_rounded(points.cpu_seconds + uncounted))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def expected(name: str, classes: Mapping[str, Sequence[ClassFigures]]) -> Expected | None:
    """What a job of this class is expected to need; None: nothing is known of it."""
    record = [each for each in classes.get(name, ()) if each.line is not None][-JOBS_KEPT:] if name else []
    if not record:
        return None
    steps = [each.steps_planned for each in record if each.steps_planned is not None]
    cpu_seconds = statistics.median(each.cpu_seconds for each in record if each.cpu_seconds is not None)
    return Expected(cpu_seconds, statistics.median(steps) if steps else None)
