"""Pace: how long one training step, or one response of a served model, takes at the CPU it was given.

Comes after `growth.measure` and before `decide` in every pass. `measure` closes a job's interval once it is long
enough and keeps the last few figures in the job's memory; `dqoes` and `deadline` read `JobMemory.paces`, and ask
`fit` and `calibrated` what the pace would be at another CPU.

Worked example: 40 steps done and 8 CPU-seconds used in an interval of 20 s: 0.5 s a step at 0.4 cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from controller.growth import EARLY_RATIO, IDLE_CORES
from controller.model import ClusterSnapshot, Job, JobMemory, JobState, MemoryState, Pace, PaceAnchor

Line = tuple[float, float]
"""`(a, b)` of seconds = a + b / cores: seconds that no CPU saves, and CPU-seconds each."""

Figure = tuple[float, float]
"""Cores used, and seconds each."""

QOE_TOLERANCE_RATIO = 0.1
"""A job is satisfied while it misses its objective by at most 10 %, as DQoES counts it."""

KEPT = 12
"""Figures kept of each job: enough for levels that were tried some time ago, little enough to store."""

SAME_LEVEL_RATIO = 0.25
"""CPU levels less apart say nothing about `a`: noise of 3 % at levels 5 % apart shifts it by 3/5 of the pace."""

NEWEST = 3
"""Figures that say where the line is now: one alone is noisy where a response takes as long as the interval."""


def measure(snapshot: ClusterSnapshot, memory: MemoryState, interval_seconds: float) -> MemoryState:
    """Bring the paces of all jobs up to this snapshot; a job without counters is left as it is."""
    changed = {}
    for job in snapshot.jobs:
        now = _counters(job, snapshot)
        if now is None:
            continue
        known = memory.jobs.get(job.uid) or JobMemory()
        before = known.pace_anchor
        if before is None or job.restarted or not _same_life(before, now):
            changed[job.uid] = known.altered(pace_anchor=now)
        elif now.at_seconds - before.at_seconds >= EARLY_RATIO * interval_seconds:
            changed[job.uid] = _closed(known, before, now)
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory


def _counters(job: Job, snapshot: ClusterSnapshot) -> PaceAnchor | None:
    """What the job has done and used so far; None when nothing counts it.

    A process that is starting exports 0 steps until it has read its checkpoint: 0, and 12,345 steps 20 s later, would
    be 617 steps a second.
    """
    used = job.usage
    cpu_seconds, cpu_at_seconds = (used.cpu_seconds_total, used.sampled_at_seconds) if used else (None, None)
    at_seconds, life = _scraped_at_seconds(job, snapshot), job.life_started_at_seconds
    if job.responses is not None:
        done, busy = job.responses.count_total, job.responses.seconds_total
        return PaceAnchor(at_seconds, done, busy, cpu_seconds, life, cpu_at_seconds)
    if job.steps_total is None or (job.state is JobState.STARTING and job.steps_total == 0):
        return None
    return PaceAnchor(at_seconds, job.steps_total, None, cpu_seconds, life, cpu_at_seconds)


def _scraped_at_seconds(job: Job, snapshot: ClusterSnapshot) -> float:
    """When the job's own counters were read: with its evaluation, else with a count of CPU that is no older than a
    scrape, else about now."""
    if job.evaluation is not None:
        return job.evaluation.sampled_at_seconds
    now = snapshot.taken_at_seconds
    if job.usage is not None and now - job.usage.sampled_at_seconds <= snapshot.scrape_interval_seconds:
        return job.usage.sampled_at_seconds
    return now


def _same_life(before: PaceAnchor, now: PaceAnchor) -> bool:
    """False after a restart, when a counter went back, or when it counts something else now."""
    lives = (before.life_started_at_seconds, now.life_started_at_seconds)
    same_counter = (before.busy_seconds_total is None) == (now.busy_seconds_total is None)
    return (None in lives or lives[0] == lives[1]) and same_counter and now.done_total >= before.done_total


def _closed(known: JobMemory, before: PaceAnchor, now: PaceAnchor) -> JobMemory:
    """The job's memory at the end of an interval.

    An interval without a finished step goes on: with steps of 30 s, intervals of 20 s that saw one would tell 20 s a
    step, and those that saw none nothing. A response tells its own duration, whenever it ends.
    """
    if now.busy_seconds_total is None and now.done_total == before.done_total:
        return known
    pace = _pace(before, now)
    paces = known.paces if pace is None else (*known.paces, pace)[-KEPT:]
    return known.with_paces(now, paces)


def _pace(before: PaceAnchor, now: PaceAnchor) -> Pace | None:
    """Seconds each over the interval; None when nothing was finished in it, which is unknown and not infinite."""
    done = now.done_total - before.done_total
    elapsed = now.at_seconds - before.at_seconds
    if not (done > 0 and elapsed > 0):
        return None
    busy = elapsed
    if now.busy_seconds_total is not None and before.busy_seconds_total is not None:
        busy = now.busy_seconds_total - before.busy_seconds_total
    seconds = busy / done
    if not (math.isfinite(seconds) and seconds > 0):
        return None
    # A server that waits for requests uses little CPU, and answers fast: what counts is what it used while it was
    # busy. The response that is under way is not in `busy` yet, so that one more is allowed for: worked example,
    # always busy, 15 s each, 20 s of which 15 are counted: 15 + 15 > 20, and all 20 s count.
    return Pace(now.at_seconds, seconds, _cores(before, now, min(1.0, (busy + seconds) / elapsed)))


def _cores(before: PaceAnchor, now: PaceAnchor, busy_ratio: float) -> float | None:
    """CPU used while at work, over the time between the two counts of CPU: with steps of one time and CPU of another, a
    count that is 19 s old first and 4 s old then would make 35 s of CPU out of an interval of 20 s."""
    if now.cpu_seconds_total is None or before.cpu_seconds_total is None:
        return None
    elapsed = _cpu_at_seconds(now) - _cpu_at_seconds(before)
    if elapsed <= 0:
        return None
    cores = max(0.0, now.cpu_seconds_total - before.cpu_seconds_total) / (elapsed * busy_ratio)
    return cores if math.isfinite(cores) else None


def _cpu_at_seconds(anchor: PaceAnchor) -> float:
    return anchor.at_seconds if anchor.cpu_sampled_at_seconds is None else anchor.cpu_sampled_at_seconds


def fit(paces: Sequence[Pace]) -> Line | None:
    """`(a, b)` of seconds = a + b / cores: non-negative least squares over the CPU levels seen; None: none seen.

    Every step or response counts the same: a figure made of 4 steps is off by a quarter where the interval ended
    within a step, one of 100 steps by a hundredth. What is compared is CPU-seconds each, `a·cores + b`. Until two
    levels are seen that differ by a quarter, `a` is 0 and b is all CPU over all that was done. Worked example: 2 s at
    0.5 cores and 1.2 s at 1 core: a = 0.4, b = 0.8. Plain Python: for twelve figures numpy takes ten times as long.
    """
    seen = _seen(paces)
    return _line(seen) if seen else None


def _line(seen: Sequence[Figure]) -> Line:
    """The free line; where its a or its b would be below 0, the better one of those without it."""
    done, cores, cpu, squares, products = _sums(seen)
    spread = squares - cores * cores / done
    slope = (products - cores * cpu / done) / spread if _differ(seen) and spread > 0 else 0.0
    if slope <= 0:
        return 0.0, cpu / done
    if slope * cores >= cpu:
        return products / squares, 0.0
    return slope, (cpu - slope * cores) / done


def _differ(seen: Sequence[Figure]) -> bool:
    levels = [cores for cores, _ in seen]
    return max(levels) > min(levels) * (1 + SAME_LEVEL_RATIO)


def _seen(paces: Sequence[Pace]) -> list[Figure]:
    return [(pace.cores, pace.seconds) for pace in paces if pace.cores is not None and pace.cores >= IDLE_CORES]


def _sums(seen: Sequence[Figure]) -> tuple[float, float, float, float, float]:
    """Over the intervals: what was done n, n·cores, n·CPU-seconds each u, n·cores² and n·cores·u.

    Intervals are about as long, so that n is 1/seconds, and n·u the cores themselves.
    """
    done = cores_done = cpu = squares = products = 0.0
    for cores, seconds in seen:
        done += 1 / seconds
        cores_done += cores / seconds
        cpu += cores
        squares += cores * cores / seconds
        products += cores * cores
    return done, cores_done, cpu, squares, products


def calibrated(paces: Sequence[Pace]) -> Line | None:
    """The fitted line, scaled to what the newest figures cost; None: no CPU level seen.

    History tells how the pace depends on CPU, the newest figures where it is now: so a line that is wrong (a hard
    quota of 0.25 cores does the work of 0.205), or no longer right, still leads to the objective within a few looks.
    Worked example: at 1 core 1 s each nine times, then 1.2 s three times: the fitted b is 1.04, the calibrated one 1.2.
    """
    seen = _seen(paces)
    if not seen:
        return None
    a, b = _line(seen)
    done, cores, cpu, _, _ = _sums(seen[-NEWEST:])
    scale = cpu / (a * cores + b * done)
    return a * scale, b * scale


def cores_for(seconds: float, line: Line) -> float | None:
    """The CPU at which one step or response takes `seconds`; None when no amount of CPU makes it that fast."""
    a, b = line
    if seconds <= a:
        return None
    return b / (seconds - a)
