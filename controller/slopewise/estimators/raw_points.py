"""Raw points: a job's losses as they were scraped, each with the work that was done at its own time.

`measure` runs between `observe` and `decide`. Only policies with `READS_POINTS` get `Job.points`; under them, a job
without any has its evaluation as a point, as a TrainJob that reports by its status. Work is counted in steps where the
scrapes of the losses have them; else in CPU-seconds, interpolated between the counts of two passes. A point is kept
once the work has grown by 1 %, because a starved job would otherwise weigh one moment with hundreds of samples; of more
than `KEPT` points, neighbours are averaged. Spikes are left out and counted.

Worked example: samples at 10, 15 and 20 s with 0.8, 0.7 and 0.65, of a job that had used 4 CPU-seconds at 10 s and 9 at
20 s: the points (4, 0.8), (6.5, 0.7) and (9, 0.65).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Points, RawPoint
from slopewise.model.learning import WorkUnit
from slopewise.model.reported import LARGEST_LEVEL, is_level

KEPT = 200
"""Points of a job at most."""

MIN_SPACING_RATIO = 0.01
"""The work between two points, at least, as a part of the work done."""

STEPS_GONE_AFTER = 12
"""So many samples in a row without steps, a minute of scrapes, end the count in steps; fewer are failed scrapes."""

SPIKE_NEIGHBOURS = 7
"""A sample is compared with the median of so many points before it."""

SPIKE_DEVIATIONS = 8.0
"""A spike is more than so many mean absolute deviations of its neighbours away from their median."""

SPIKE_RANGE_RATIO = 0.3
"""Of the range seen so far: smaller jumps are no spikes, whatever the noise."""

CONFIRMED_AFTER = 3
"""So many samples in a row that lie off are a new level, and no spikes."""

_PAIR = np.dtype("<f4")


def unpacked(points: Points) -> NDArray[np.float32]:
    """Work and level of each point, shape (points, 2)."""
    return np.frombuffer(points.packed, _PAIR).reshape(-1, 2)


def measure(snapshot: ClusterSnapshot, memory: MemoryState, *, from_evaluations: bool = False) -> MemoryState:
    """Append the samples of this snapshot that are newer than the last ones kept.

    `from_evaluations`: the policy reads points, so a job without any has its evaluation as one.
    """
    changed = {}
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid)
        if known is None:
            continue
        sampled = job if job.points or not from_evaluations else _with_evaluation_as_point(job, known)
        if sampled.points:
            changed[job.uid] = known.altered(points=_followed(sampled, known, snapshot.taken_at_seconds))
    return memory.with_jobs(changed)


def _with_evaluation_as_point(job: Job, known: JobMemory) -> Job:
    """The job with its evaluation as a raw point, if that is newer than the last sample.

    Its steps may be of another target, so they do not end a count in CPU.
    """
    evaluation, before = job.evaluation, known.points
    if evaluation is None or not evaluation.finite:
        return job
    steps = job.steps_total if before is None or before.unit == "steps" else None
    sample = RawPoint(evaluation.sampled_at_seconds, evaluation.level, steps)
    return job.altered(points=tuple(_newer((sample,), before)))


def _newer(points: Sequence[RawPoint], before: Points | None) -> Sequence[RawPoint]:
    """Those after the last sample that was seen."""
    return [point for point in points if before is None or point.at_seconds > before.sampled_at_seconds]


def _unit(points: Sequence[RawPoint], before: Points | None) -> tuple[WorkUnit, int]:
    """What these samples are counted in, after those before; and how many in a row, to the last, have no steps."""
    if before is None or before.unit == "cpu":
        return ("steps" if any(point.steps is not None for point in points) else "cpu"), 0
    without_steps = before.without_steps
    for point in points:
        without_steps = without_steps + 1 if point.steps is None else 0
    return ("steps", without_steps) if without_steps < STEPS_GONE_AFTER else ("cpu", 0)


def _followed(job: Job, known: JobMemory, now_seconds: float) -> Points:
    """The points with those of this snapshot; they begin again with another series or unit."""
    before, series = known.points, known.levels.series or ""
    if before is not None and before.workload_class != job.workload_class:
        before = structs.replace(before, workload_class=job.workload_class)
    same_series = before if before is not None and before.series == series else None
    fresh = _newer(job.points, same_series)
    unit, without_steps = _unit(fresh, same_series)
    if before is None or before.series != series or before.unit != unit:
        counted = before or Points(unit, series)
        before = Points(
            unit,
            series,
            cpu_seconds=counted.cpu_seconds,
            counter=counted.counter,
            counted_at_seconds=counted.counted_at_seconds,
            workload_class=job.workload_class,
            process_started_at_seconds=counted.process_started_at_seconds,
        )
        fresh = _newer(job.points, before)
    after = _with_cpu(before, job)
    if not fresh:
        return after
    works = _works(fresh, before, after, now_seconds)
    return _appended(after, fresh, works, without_steps)


def _with_cpu(before: Points, job: Job) -> Points:
    """CPU and steps brought up to now. A process that begins at 0 adds to what the former ones used.

    A count that has grown although the process is another one goes on: its cgroup outlived the process.
    """
    usage = job.usage
    if usage is None or usage.cpu_seconds_total is None or not math.isfinite(usage.cpu_seconds_total):
        return before
    count = usage.cpu_seconds_total
    more = count - before.counter if count >= before.counter else count
    cpu_seconds, steps_first = before.cpu_seconds + max(0.0, more), before.steps_first
    cpu_first = before.cpu_first_seconds
    of_steps = _cpu_at_steps(before, job, cpu_seconds)
    if job.steps_total is not None and (steps_first is None or job.steps_total < (before.steps or 0.0)):
        steps_first, cpu_first = job.steps_total, of_steps
    return structs.replace(
        before,
        cpu_seconds=cpu_seconds,
        counter=count,
        counted_at_seconds=usage.sampled_at_seconds,
        process_started_at_seconds=job.process_started_at_seconds,
        steps_first=steps_first,
        cpu_first_seconds=cpu_first,
        steps=before.steps if job.steps_total is None else job.steps_total,
        steps_cpu_seconds=before.steps_cpu_seconds if job.steps_total is None else of_steps,
    )


def _cpu_at_steps(before: Points, job: Job, cpu_seconds: float) -> float:
    """CPU used at the scrape of the newest steps: steps and CPU are read at different times, seconds apart.

    It is taken for even since the last count, or since the start of a job that was not counted before.
    """
    usage, counted_at = job.usage, before.counted_at_seconds or job.started_at_seconds
    scraped_at = next((point.at_seconds for point in reversed(job.points) if point.steps is not None), None)
    if usage is None or scraped_at is None or not counted_at or usage.sampled_at_seconds <= counted_at:
        return cpu_seconds
    ratio = (scraped_at - counted_at) / (usage.sampled_at_seconds - counted_at)
    return before.cpu_seconds + min(2.0, max(0.0, ratio)) * (cpu_seconds - before.cpu_seconds)


def _works(fresh: Sequence[RawPoint], before: Points, after: Points, now_seconds: float) -> list[float]:
    """The work done at each sample, in the unit of the points."""
    if after.unit == "steps":
        return [math.nan if point.steps is None else point.steps for point in fresh]
    since, until = before.counted_at_seconds or fresh[0].at_seconds, after.counted_at_seconds or now_seconds
    span, used = until - since, after.cpu_seconds - before.cpu_seconds
    return [
        before.cpu_seconds + used * (min(1.0, max(0.0, (point.at_seconds - since) / span)) if span > 0 else 1.0)
        for point in fresh
    ]


def _appended(points: Points, fresh: Sequence[RawPoint], works: Sequence[float], without_steps: int) -> Points:
    done, levels = unpacked(points).T.tolist()
    packed, kept = points.packed, len(done)  # what is packed already is not packed again
    spikes, doubted, dropped, last_work = points.spikes, points.doubted, points.dropped, points.work
    for point, work in zip(fresh, works, strict=True):
        if not (is_level(point.level) and 0 <= work < LARGEST_LEVEL):
            continue
        if work < last_work * (1 - MIN_SPACING_RATIO):  # back to its last checkpoint: what follows is repeated
            before = [place for place, each in enumerate(done) if each < work]
            done, levels = [done[place] for place in before], [levels[place] for place in before]
            packed, kept = b"", 0
        last_work = work
        if done and work < done[-1] + max(MIN_SPACING_RATIO * work, 1e-9):
            continue
        if _is_off(levels, point.level):
            spikes, doubted = spikes + 1, doubted + 1
            if doubted < CONFIRMED_AFTER:
                continue
            dropped = dropped or len(done) > SPIKE_NEIGHBOURS
            spikes -= doubted
        doubted = 0
        done.append(work)
        levels.append(point.level)
        if len(done) > KEPT:
            done, levels = _thinned(done), _thinned(levels)
            packed, kept = b"", 0
    if kept < len(done):
        packed += np.array([done[kept:], levels[kept:]], _PAIR).T.tobytes()
    return structs.replace(
        points,
        packed=packed,
        without_steps=without_steps,
        sampled_at_seconds=fresh[-1].at_seconds,
        work=last_work,
        spikes=spikes,
        doubted=doubted,
        dropped=dropped,
    )


def _is_off(levels: Sequence[float], level: float) -> bool:
    """Whether a sample lies so far from its neighbours that it is a spike, or the first of a new level."""
    if len(levels) < SPIKE_NEIGHBOURS:
        return False
    near = sorted(levels[-SPIKE_NEIGHBOURS:])
    middle = near[SPIKE_NEIGHBOURS // 2]
    off = abs(level - middle)
    deviation = math.fsum([abs(each - middle) for each in near]) / SPIKE_NEIGHBOURS
    if off <= max(SPIKE_DEVIATIONS * deviation, 1e-9 * abs(middle)):
        return False  # as nearly always, and the range takes longest
    return off > SPIKE_RANGE_RATIO * (max(levels) - min(levels))


def shortened(points: Points, most: int) -> Points:
    """At most so many of the points, evenly over their order, the first and the last among them; 0: none."""
    count = points.count
    if count <= most:
        return points
    chosen = np.linspace(0, count - 1, most).round().astype(np.int64)
    return structs.replace(points, packed=unpacked(points)[chosen].tobytes())


def _thinned(values: Sequence[float]) -> list[float]:
    """Half as many: neighbours are averaged, the first and the last stay."""
    inner = np.array(values[1 : 1 + 2 * ((len(values) - 2) // 2)]).reshape(-1, 2).mean(axis=1).tolist()
    return [values[0], *inner, *values[1 + 2 * len(inner) :]]
