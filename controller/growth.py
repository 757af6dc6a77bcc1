"""Growth: how much better a job became, per second and per unit of resource (`algorithms`, section 0).

Comes after `observe` and before `decide` in every pass. `measure` closes a job's interval once it is long
enough, writes the figure into the job's memory and starts the next interval; policies only read
`JobMemory.growth`. The arithmetic is over arrays, one element a job; NaN means unknown.

Worked example: loss 2.3 at first, 0.8 twenty seconds ago, 0.5 now, best 0.5, one core of a two-core node used:
range = 1.8, progress = (0.8 - 0.5) / 1.8 / 20 s = 0.0083/s, growth efficiency = 0.0083 / (1/2) = 0.0167/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controller import level_range
from controller.level_range import FLOOR_RATIO, SMALLEST_RANGE
from controller.model import (
    Anchor,
    ClusterSnapshot,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    MemoryState,
    Node,
    Usage,
)

Floats = NDArray[np.float64]
Normaliser = Literal["range", "first", "none"]
Progress = Literal["signed", "absolute"]

IDLE_CORES = 0.005
"""Below this the job was paused or waited for data, and dividing by its use would invent a figure."""

EARLY_RATIO = 0.95
"""A tick may come a little early; 95 % of an interval still counts as one."""

FIRST_LOOK_SCRAPES = 3
"""A newcomer has two samples, and so a level, three scrapes after it came at the latest."""

NEWCOMER_INTERVALS = 3
"""Who has no level after so many intervals reports none; nothing is gained by looking for it between two looks."""

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
    result: Floats = change / _normaliser(first, best, how.normaliser) / seconds
    return result


def _normaliser(first: Floats, best: Floats, kind: Normaliser) -> Floats:
    """What a change of the evaluation is divided by, shape (jobs,), never zero."""
    if kind == "none":
        return np.ones_like(first)
    if kind == "first":
        return np.maximum(np.abs(first), SMALLEST_RANGE)
    return np.maximum(np.maximum(np.abs(first - best), FLOOR_RATIO * np.abs(first)), SMALLEST_RANGE)


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
    """True when the job's evaluation may be compared with an earlier one of the same life and series."""
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
        if job.restarted or _is_another_life(job, known.anchor):
            known = known.altered(anchor=None, growth=None, previous_growth=None)
        usable = not job.restarted and job.evaluation is not None and is_usable(job, snapshot)
        since = None if usable else _silent_since_seconds(job, known, snapshot)
        if since != known.silent_since_seconds:
            known = known.altered(silent_since_seconds=since)
        if usable and job.evaluation is not None:
            known = _follow(job, job.evaluation, known, snapshot)
            if not level_range.is_held_back(known) and (
                interval := _finished_interval(job, job.evaluation, known, snapshot, how)
            ):
                finished.append(interval)
        jobs[job.uid] = known
    nodes = {node.name: node for node in snapshot.nodes}
    jobs.update(_close_intervals(finished, nodes, snapshot.taken_at_seconds, how))
    return replace(memory, jobs=jobs)


def _silent_since_seconds(job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> float | None:
    """Since when a job without a usable level, which has reported before, does not any more; None: it never did.

    Of one that never had a loss, its counters count.
    """
    counts = job.steps_total is not None or job.responses is not None
    if known.first_level is None and (counts or known.pace_anchor is None):
        return None
    return snapshot.taken_at_seconds if known.silent_since_seconds is None else known.silent_since_seconds


def _is_another_life(job: Job, anchor: Anchor | None) -> bool:
    """A restart since the interval began, long before the window in which `restarted` shows it.

    Worked example: loss 0.8 at the anchor, a restart from scratch 10 s later, 1.7 at the end of 20 s. That is no
    divergence, and says nothing about growth.
    """
    before = anchor.life_started_at_seconds if anchor else None
    return None not in (before, job.life_started_at_seconds) and before != job.life_started_at_seconds


def _follow(job: Job, evaluation: Evaluation, known: JobMemory, snapshot: ClusterSnapshot) -> JobMemory:
    """The range, and an anchor for the interval, as far as this snapshot tells them."""
    if known.first_level is None or known.series != evaluation.series:
        return level_range.begin(known, evaluation.level).altered(
            series=evaluation.series,
            anchor=_anchor(job, evaluation, snapshot),
            growth=None,
            previous_growth=None,
        )
    window = stale_after_seconds(snapshot)
    known = level_range.look_at(known, evaluation.level, evaluation.objective, snapshot.taken_at_seconds, window)
    if known.anchor is not None or level_range.is_held_back(known):
        return known
    return known.altered(anchor=_anchor(job, evaluation, snapshot))


def _anchor(job: Job, evaluation: Evaluation, snapshot: ClusterSnapshot) -> Anchor:
    return Anchor(snapshot.taken_at_seconds, evaluation.level, job.usage, job.life_started_at_seconds)


@dataclass(slots=True)  # not frozen, which takes three times as long to make, and 10,000 are made in a pass
class _Interval:
    """A job whose interval has run long enough to be measured, with all that the measurement needs."""

    job: Job
    known: JobMemory
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
    anchor = known.anchor
    if anchor is None:
        return None
    elapsed = snapshot.taken_at_seconds - anchor.at_seconds
    if elapsed < _enough_seconds(job, known, snapshot, how):
        return None
    known = level_range.learn(known, evaluation.level, evaluation.objective)
    ends = level_range.ends(known, evaluation.level, evaluation.objective)
    return None if ends is None else _Interval(job, known, anchor, evaluation, *ends, elapsed)


def _enough_seconds(job: Job, known: JobMemory, snapshot: ClusterSnapshot, how: Measuring) -> float:
    """How long an interval must have run. The first lacks what passed before the job had a level.

    Worked example: interval 60 s, scrapes of 5 s: the job came at 0, has a level at 15 s, and is measured at the look
    at 60 s, over 45 s, not at 120 s. Never less than four scrapes: two windows must not overlap.
    """
    whole = EARLY_RATIO * how.interval_seconds
    if known.growth is not None or snapshot.taken_at_seconds - job.started_at_seconds < whole:
        return whole
    scrape = snapshot.scrape_interval_seconds
    return min(whole, max(SCRAPES_PER_WINDOW * scrape, whole - 2 * FIRST_LOOK_SCRAPES * scrape))


def first_look_at_seconds(snapshot: ClusterSnapshot, memory: MemoryState, how: Measuring) -> float | None:
    """When to look for the first level of newcomers that have none yet; None when there are none.

    Such a look only starts their measurement: no policy decides anything before its own look is due.
    """
    now = snapshot.taken_at_seconds
    for job in snapshot.jobs:
        if job.state.ended or memory.jobs[job.uid].anchor is not None:
            continue
        if now - job.started_at_seconds < NEWCOMER_INTERVALS * how.interval_seconds:
            return now + FIRST_LOOK_SCRAPES * snapshot.scrape_interval_seconds
    return None


def confirm_at_seconds(snapshot: ClusterSnapshot, memory: MemoryState) -> float | None:
    """When to look again at levels that were held back as outliers: a window after they were first seen.

    None when there are none. Such a look confirms or drops them, so that neither a spike nor a real jump leaves a job
    unmeasured for longer than that.
    """
    window, soonest = stale_after_seconds(snapshot), snapshot.taken_at_seconds + snapshot.scrape_interval_seconds
    held = [
        max(soonest, known.doubts.outlier.at_seconds + window)
        for job in snapshot.jobs
        if not job.state.ended and (known := memory.jobs[job.uid]).doubts and known.doubts.outlier
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
    usage = interval.job.usage
    cores, used = _average_use(interval.anchor.usage, usage, node)
    progress = max(0.0, per_second)
    growth = Growth(
        at_seconds=now_seconds,
        interval_seconds=interval.seconds,
        change_per_second=per_second,
        cpu_cores=cores,
        efficiency={resource: progress / use for resource, use in used.items()},
    )
    anchor = Anchor(now_seconds, interval.evaluation.level, usage, interval.job.life_started_at_seconds)
    return interval.known.with_growth(growth, anchor)


def _average_use(before: Usage | None, now: Usage | None, node: Node) -> tuple[float | None, dict[str, float]]:
    """Average CPU use in cores (None: unknown), and per resource the divisor of Eq. 4.2 where it is known."""
    if before is None or now is None:
        return None, {}
    used: dict[str, float] = {}
    cores = _rate(before.cpu_seconds_total, now.cpu_seconds_total, before, now)
    if cores is not None and cores >= IDLE_CORES:
        used["cpu"] = cores / node.cpu_cores
    if now.memory_bytes:
        used["memory"] = now.memory_bytes / node.memory_bytes
    block = _rate(before.block_io_bytes_total, now.block_io_bytes_total, before, now)
    if block:
        used["block_io"] = block / MEBIBYTE
    network = _rate(before.network_io_bytes_total, now.network_io_bytes_total, before, now)
    if network:
        used["network_io"] = network / MEBIBYTE
    return cores, used


def _rate(before: float | None, now: float | None, start: Usage, end: Usage) -> float | None:
    """Increase per second of a counter; None when unknown, when no time passed, or when it was reset."""
    if before is None or now is None or now < before:
        return None
    seconds = end.sampled_at_seconds - start.sampled_at_seconds
    return (now - before) / seconds if seconds > 0 else None
