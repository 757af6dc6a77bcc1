"""Growth: how much better a job became, per second and per unit of resource.

`measure` runs between `observe` and `decide`. It closes a job's interval once it is long
enough, writes the figure into the job's memory and starts the next interval; policies only read
`JobMemory.growth`. The arithmetic is over arrays, one element a job; NaN means unknown.

Worked example: loss 2.3 at first, 0.8 twenty seconds ago, 0.5 now, best 0.5, one core of a two-core node used:
range = 1.8 (at least 2.3 / 2), progress = (0.8 - 0.5) / 1.8 / 20 s = 0.0083/s, and growth efficiency =
0.0083 / (1/2) = 0.0167/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from slopewise.estimators import level_range, memory_use
from slopewise.model import (
    Anchor,
    ClusterSnapshot,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    Levels,
    MemoryState,
    Node,
    Usage,
)

Floats = NDArray[np.float64]
Normaliser = Literal["range", "first", "none"]
Progress = Literal["signed", "absolute"]

MIN_RANGE_RATIO = 0.5
"""The range is never smaller than this part of what the evaluation could improve by, from its first value to 0, or to 1
where it rises and began between 0 and 1. Without it a job's first change is divided by itself: 2.3 to 0.3 and 2.3 to
2.2 would both be the whole range. Over FlowCon's ten jobs, with losses that end at half of their first value, mean
completion is 2.2 % above even sharing's with it and 4.3 % without; a quarter gives 3.6 %, three quarters 2.1 %."""

IDLE_CORES = 0.005
"""Below this the job was paused or waited for data, and dividing by its use would invent a figure."""

EARLY_RATIO = 0.95
"""A tick may come a little early; 95 % of an interval still counts as one."""

FIRST_EVALUATION_SCRAPES = 2
"""A new job has two samples, and so a level, after two scrapes; after three where samples take a while to be seen."""

FIRST_INTERVAL_SCRAPES = 2
"""The least that a first interval runs for, in scrapes. The windows of its two levels overlap; they are measured over
the time between their middles."""

LATE_SCRAPES = 6
"""So much of an interval may have passed before a job had a level; one that comes later is measured an interval on."""

NEWCOMER_INTERVALS = 3
"""A job without a level after so many intervals reports none, and gets no extra passes."""

SCRAPES_PER_WINDOW = 4
"""A level is the median of so many scrapes: with fewer, one that is missed leaves one or two samples.

An evaluation that is older than a window is stale, and no interval is shorter: two windows must not overlap.
"""

MEBIBYTE = 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class Measuring:
    """How growth is measured; part of the user's settings."""

    interval_seconds: float
    normaliser: Normaliser = "range"
    progress: Progress = "signed"
    min_range_ratio: float = MIN_RANGE_RATIO
    """The range is never smaller than this part of what the evaluation could improve by."""
    target_hits: int = 3
    """Measurements in a row that must reach a target, or miss it (`targets.count`)."""
    reads_points: bool = False
    """The policy reads raw points, so an evaluation without them is one (`raw_points.measure`)."""


def change_per_second(
    before: Floats, now: Floats, first: Floats, best: Floats, seconds: Floats, sign: Floats, how: Measuring
) -> Floats:
    """Normalised improvement per second, shape (jobs,), in 1/s; below 0 where a job got worse.

    Progress (thesis Eq. 4.1) is what of it is above 0: signed is our reading. `sign` is +1 where smaller is better and
    -1 where larger is. The papers print the absolute difference, which counts divergence as progress;
    `progress="absolute"` does that.
    """
    change = (before - now) * sign
    if how.progress == "absolute":
        change = np.abs(change)
    result: Floats = change / _normaliser(first, best, sign, how) / seconds
    return result


def _normaliser(first: Floats, best: Floats, sign: Floats, how: Measuring) -> Floats:
    """What a change of the evaluation is divided by, shape (jobs,), never zero."""
    if how.normaliser == "none":
        return np.ones_like(first)
    if how.normaliser == "first":
        return np.maximum(np.abs(first), level_range.SMALLEST_RANGE)
    rises_to_one = (sign < 0) & (first >= 0) & (first <= 1)
    possible = np.where(rises_to_one, 1 - first, np.abs(first))
    least = np.maximum(how.min_range_ratio * possible, level_range.FLOOR_RATIO * np.abs(first))
    return np.maximum(np.maximum(np.abs(first - best), least), level_range.SMALLEST_RANGE)


def is_fresh(evaluation: Evaluation, snapshot: ClusterSnapshot) -> bool:
    """True when the newest sample is at most four scrapes old."""
    return snapshot.taken_at_seconds - evaluation.sampled_at_seconds <= stale_after_seconds(snapshot)


def age_seconds(evaluation: Evaluation, snapshot: ClusterSnapshot) -> float:
    """Age of the newest sample at the time of the snapshot, in seconds; never negative (clocks differ)."""
    return max(0.0, snapshot.taken_at_seconds - evaluation.sampled_at_seconds)


def stale_after_seconds(snapshot: ClusterSnapshot) -> float:
    """The age beyond which an evaluation is stale, in seconds."""
    return SCRAPES_PER_WINDOW * snapshot.scrape_interval_seconds


def is_usable(job: Job, snapshot: ClusterSnapshot) -> bool:
    """True when the job's evaluation may be compared with an earlier one of the same process and series."""
    evaluation = job.evaluation
    return (
        evaluation is not None
        and not job.restarted
        and evaluation.finite
        and math.isfinite(evaluation.level)
        and evaluation.sample_count >= 2
        and is_fresh(evaluation, snapshot)
    )


def measure(snapshot: ClusterSnapshot, memory: MemoryState, how: Measuring) -> MemoryState:
    """Bring each job's memory up to this snapshot; jobs that are gone are forgotten.

    An interval is closed when at least `how.interval_seconds` have passed since its anchor; a pass that an
    event triggered in between changes nothing here. The first interval of a job counts from its arrival: it
    lacks the scrapes before its first level.
    """
    jobs: dict[str, JobMemory] = {}
    finished: list[_Interval] = []
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid) or JobMemory()
        if job.restarted or _is_another_process(job, known.levels.anchor):
            known = known.altered(levels=known.levels.altered(anchor=None), growth=None, previous_growth=None)
        known = memory_use.follow(job, known)
        usable = is_usable(job, snapshot)
        finite = known.levels.finite if job.evaluation is None else job.evaluation.finite
        reports = usable or (job.evaluation is not None and not finite)
        since = None if reports else _silent_since_seconds(job, known, snapshot)
        if since != known.levels.silent_since_seconds or finite != known.levels.finite:
            known = known.altered(levels=known.levels.altered(silent_since_seconds=since, finite=finite))
        if usable and job.evaluation is not None:
            known = _follow(job, job.evaluation, known, snapshot)
            if not level_range.is_held_back(known.levels) and (
                interval := _finished_interval(job, job.evaluation, known, snapshot, how)
            ):
                finished.append(interval)
        jobs[job.uid] = known
    nodes = {node.name: node for node in snapshot.nodes}
    jobs.update(_close_intervals(finished, nodes, snapshot.taken_at_seconds, how))
    return replace(memory, jobs=jobs)


def _silent_since_seconds(job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> float | None:
    """Since when a job has reported neither a usable level nor NaN, which has reported before; None: it never has.

    Of one that never had a loss, its counters count.
    """
    counts = job.steps_total is not None or job.responses is not None
    if known.levels.first is None and (counts or known.timing.anchor is None):
        return None
    since = known.levels.silent_since_seconds
    return snapshot.taken_at_seconds if since is None else since


def _is_another_process(job: Job, anchor: Anchor | None) -> bool:
    """A restart since the interval began, long before the window in which `restarted` shows it.

    Worked example: loss 0.8 at the anchor, a restart from scratch 10 s later, 1.7 at the end of 20 s. That is no
    divergence, and says nothing about growth.
    """
    before = anchor.process_started_at_seconds if anchor else None
    return None not in (before, job.process_started_at_seconds) and before != job.process_started_at_seconds


def _follow(job: Job, evaluation: Evaluation, known: JobMemory, snapshot: ClusterSnapshot) -> JobMemory:
    """The range, and an anchor for the interval, as far as this snapshot has them."""
    levels = known.levels
    if levels.first is None or levels.series != evaluation.series:
        anchor = _anchor(job, evaluation, known, snapshot)
        begun = level_range.begin(levels, evaluation.level).altered(series=evaluation.series, anchor=anchor)
        return known.altered(levels=begun, growth=None, previous_growth=None)
    now, window = snapshot.taken_at_seconds, stale_after_seconds(snapshot)
    levels = level_range.check_outlier(levels, evaluation.level, evaluation.objective, now, window)
    if levels.anchor is None and not level_range.is_held_back(levels):
        levels = levels.altered(anchor=_anchor(job, evaluation, known, snapshot))
    return known if levels is known.levels else known.altered(levels=levels)


def _anchor(job: Job, evaluation: Evaluation, known: JobMemory, snapshot: ClusterSnapshot) -> Anchor:
    """The start of a first interval; of a level whose window is not full yet it has the time that the level is of."""
    full = evaluation.sample_count >= SCRAPES_PER_WINDOW
    level_at = None if full else _level_at_seconds(evaluation, snapshot)
    return Anchor(
        snapshot.taken_at_seconds,
        evaluation.level,
        job.usage,
        job.process_started_at_seconds,
        level_at,
        _memory_byte_seconds(known),
    )


def _memory_byte_seconds(known: JobMemory) -> float | None:
    return None if known.memory_use is None else known.memory_use.byte_seconds_total


def _level_at_seconds(evaluation: Evaluation, snapshot: ClusterSnapshot) -> float:
    """The middle of the samples whose median the level is."""
    return evaluation.sampled_at_seconds - (evaluation.sample_count - 1) / 2 * snapshot.scrape_interval_seconds


class _Interval(msgspec.Struct, frozen=True, gc=False):
    """A job whose interval has run long enough to be measured, with all that the measurement needs."""

    job: Job
    known: JobMemory
    levels: Levels
    anchor: Anchor
    evaluation: Evaluation
    first: float
    best: float
    seconds: float

    def row(self) -> tuple[float, ...]:
        sign = -1.0 if self.evaluation.objective == "max" else 1.0
        return (self.anchor.level, self.evaluation.level, self.first, self.best, self.seconds, sign)


def _finished_interval(
    job: Job, evaluation: Evaluation, known: JobMemory, snapshot: ClusterSnapshot, how: Measuring
) -> _Interval | None:
    anchor = known.levels.anchor
    if anchor is None:
        return None
    elapsed = snapshot.taken_at_seconds - anchor.at_seconds
    if elapsed < _enough_seconds(job, known, snapshot, how):
        return None
    if anchor.level_at_seconds is not None:
        elapsed = _level_at_seconds(evaluation, snapshot) - anchor.level_at_seconds
        if elapsed < EARLY_RATIO * snapshot.scrape_interval_seconds:
            return None
    levels = level_range.learn(known.levels, evaluation.level, evaluation.objective)
    ends = level_range.ends(levels, evaluation.level, evaluation.objective)
    return None if ends is None else _Interval(job, known, levels, anchor, evaluation, *ends, elapsed)


def _enough_seconds(job: Job, known: JobMemory, snapshot: ClusterSnapshot, how: Measuring) -> float:
    """How long an interval must have run. The first lacks what passed before the job had a level.

    Worked example: interval 60 s, scrapes of 5 s: the job came at 0, has a level at 15 s, and is measured at the
    evaluation at 60 s, over 45 s, not at 120 s. Never less than two scrapes: with 20 s and scrapes of 5 s it has a
    level of two samples at 10 s, of four at 20 s, and their middles are 5 s apart.
    """
    whole = EARLY_RATIO * how.interval_seconds
    if known.growth is not None or snapshot.taken_at_seconds - job.started_at_seconds < whole:
        return whole
    scrape = snapshot.scrape_interval_seconds
    return min(whole, max(EARLY_RATIO * FIRST_INTERVAL_SCRAPES * scrape, whole - LATE_SCRAPES * scrape))


def first_evaluation_at_seconds(snapshot: ClusterSnapshot, memory: MemoryState, how: Measuring) -> float | None:
    """When to run for the first level of new jobs that have none; None when there are none.

    Such a pass only starts their measurement: policies decide when their evaluation is due.
    """
    now = snapshot.taken_at_seconds
    scrape, window = snapshot.scrape_interval_seconds, stale_after_seconds(snapshot)
    due_at = []
    for job in snapshot.jobs:
        age = now - job.started_at_seconds
        if (
            job.state.ended
            or memory.jobs[job.uid].levels.anchor is not None
            or age >= NEWCOMER_INTERVALS * how.interval_seconds
        ):
            continue
        due_at.append(now + max(FIRST_EVALUATION_SCRAPES * scrape - age, scrape if age < window else window))
    return min(due_at, default=None)


def confirm_at_seconds(snapshot: ClusterSnapshot, memory: MemoryState) -> float | None:
    """When to run for levels that were held back as outliers: a window after they were first seen.

    None when there are none. Such a pass confirms or drops them, so that neither a spike nor a real jump leaves a job
    unmeasured for longer than that.
    """
    window, soonest = stale_after_seconds(snapshot), snapshot.taken_at_seconds + snapshot.scrape_interval_seconds
    held = [
        max(soonest, doubts.outlier.at_seconds + window)
        for job in snapshot.jobs
        if not job.state.ended and (doubts := memory.jobs[job.uid].levels.doubts) and doubts.outlier
    ]
    return min(held, default=None)


def _close_intervals(
    intervals: Sequence[_Interval], nodes: Mapping[str, Node], now_seconds: float, how: Measuring
) -> dict[str, JobMemory]:
    """Turn finished intervals into `Growth`, vectorised over the jobs, and start the next ones."""
    if not intervals:
        return {}
    rows = np.asarray([interval.row() for interval in intervals], dtype=np.float64)
    before, now, first, best, seconds, sign = rows.T
    change = change_per_second(before, now, first, best, seconds, sign, how)
    return {
        interval.job.uid: _closed(interval, per_second, nodes[interval.job.node], now_seconds)
        for interval, per_second in zip(intervals, change.tolist(), strict=True)
    }


def _closed(interval: _Interval, per_second: float, node: Node, now_seconds: float) -> JobMemory:
    usage, known = interval.job.usage, interval.known
    cores, used = _average_use(interval.anchor, usage, known, node)
    progress = max(0.0, per_second)
    growth = Growth(
        at_seconds=now_seconds,
        interval_seconds=interval.seconds,
        change_per_second=per_second,
        cpu_cores=cores,
        efficiency={resource: progress / use for resource, use in used.items()},
    )
    anchor = Anchor(
        now_seconds,
        interval.evaluation.level,
        usage,
        interval.job.process_started_at_seconds,
        memory_byte_seconds=_memory_byte_seconds(known),
    )
    return known.altered(levels=interval.levels.altered(anchor=anchor), growth=growth, previous_growth=known.growth)


def _average_use(
    anchor: Anchor, now: Usage | None, known: JobMemory, node: Node
) -> tuple[float | None, dict[str, float]]:
    """Average CPU use in cores (None: unknown), and per resource the divisor of Eq. 4.2 where it is known."""
    before = anchor.usage
    if before is None or now is None:
        return None, {}
    used: dict[str, float] = {}
    cores = _rate(before.cpu_seconds_total, now.cpu_seconds_total, before, now)
    if cores is not None and cores >= IDLE_CORES:
        used["cpu"] = cores / node.cpu_cores
    memory_bytes = memory_use.average_bytes(anchor, now, known.memory_use)
    if memory_bytes:
        used["memory"] = memory_bytes / node.memory_bytes
    if block := _rate(before.block_io_bytes_total, now.block_io_bytes_total, before, now):
        used["block_io"] = block / MEBIBYTE
    if network := _rate(before.network_io_bytes_total, now.network_io_bytes_total, before, now):
        used["network_io"] = network / MEBIBYTE
    return cores, used


def _rate(before: float | None, now: float | None, start: Usage, end: Usage) -> float | None:
    """Increase per second of a counter; None when unknown, when no time passed, or when it was reset."""
    if before is None or now is None or now < before:
        return None
    seconds = end.sampled_at_seconds - start.sampled_at_seconds
    return (now - before) / seconds if seconds > 0 else None
