"""Pace: how long one training step, or one response of a served model, takes at the CPU it was given.

`measure` runs between `growth.measure` and `decide`. It closes a job's interval once it is long
enough and keeps the last few figures in the job's memory; `dqoes` and `deadline` read `JobMemory.paces`; `calibrated`
estimates the pace at another CPU.

Worked example: 40 steps done and 8 CPU-seconds used in an interval of 20 s: 0.5 s a step at 0.4 cores.

The paces of a job with accelerators also say how long its steps waited for their batches, and whether it was short of
CPU, in the same interval (`gpu_need.py` reads it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from slopewise.estimators.growth import EARLY_RATIO, IDLE_CORES
from slopewise.model import (
    Answering,
    ClusterSnapshot,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Pace,
    PaceAnchor,
    Responses,
)

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

MAX_UNANSWERED_INTERVALS = 3
"""A served model that has answered nothing for so many intervals, and for as many of its own response times, is no
longer timed: its last figures say nothing about a server that hangs."""

CPU_COUNT_AGE_SECONDS = 19.0
"""A kubelet counts CPU every 10 to 15 s, and is scraped a few seconds later: an interval that begins 19 s after a
change of CPU, or later, is of the new CPU alone."""

SHORT_RATIO = 0.1
"""Throttled in fewer periods, or under pressure for less of the time, a job has had the CPU that it wanted. Rollbacks
call 0.5 throttled; a loader under its quota is in nearly all periods."""

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
        before = known.timing.anchor
        if before is None or job.restarted or not _same_process(before, now):
            after = known.altered(timing=known.timing.altered(anchor=now, answering=_begun(job, known, now)))
        elif now.at_seconds - before.at_seconds >= EARLY_RATIO * interval_seconds:
            after = _closed(known, before, now)
            answering = _answering(job, known, before, now)
            if answering is not after.timing.answering:
                after = after.altered(timing=after.timing.altered(answering=answering))
        else:
            after = known
        after = _without_outdated_paces(after, interval_seconds, now.at_seconds)
        if after is not known:
            changed[job.uid] = after
    return memory.with_jobs(changed)


def with_arrivals(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """The memory with that of waiting jobs which have run before, whose paces are known; `remembered` is as stored."""
    arriving = {
        arrival.uid: remembered.jobs[arrival.uid] for arrival in snapshot.waiting if arrival.uid in remembered.jobs
    }
    return replace(memory, arriving=arriving) if arriving or memory.arriving else memory


def _counters(job: Job, snapshot: ClusterSnapshot) -> PaceAnchor | None:
    """What the job has done and used so far; None: no counters.

    A process that is starting exports 0 steps until it has read its checkpoint: 0, and 12,345 steps 20 s later, would
    be 617 steps a second.
    """
    used = job.usage
    cpu_seconds, cpu_at_seconds = (used.cpu_seconds_total, used.sampled_at_seconds) if used else (None, None)
    at_seconds, process = _scraped_at_seconds(job, snapshot), job.process_started_at_seconds
    if job.responses is not None:
        of = job.responses
        failed = of.failed_total, of.failed_seconds_total
        return PaceAnchor(at_seconds, of.count_total, of.seconds_total, cpu_seconds, process, cpu_at_seconds, *failed)
    if job.steps_total is None or (job.state is JobState.STARTING and job.steps_total == 0):
        return None
    anchor = PaceAnchor(at_seconds, job.steps_total, None, cpu_seconds, process, cpu_at_seconds)
    if not job.accelerators:
        return anchor
    return structs.replace(
        anchor, waited_seconds_total=job.waited_seconds_total, health=job.container_health, gpu_use=job.gpu_use
    )


def _scraped_at_seconds(job: Job, snapshot: ClusterSnapshot) -> float:
    """When the job's own counters were read.

    That is with its evaluation, else with a count of CPU that is no older than a scrape, else about now.
    """
    if job.evaluation is not None:
        return job.evaluation.sampled_at_seconds
    now = snapshot.taken_at_seconds
    if job.usage is not None and now - job.usage.sampled_at_seconds <= snapshot.scrape_interval_seconds:
        return job.usage.sampled_at_seconds
    return now


def _same_process(before: PaceAnchor, now: PaceAnchor) -> bool:
    """False after a restart, when a counter went back, or when it counts something else now."""
    processes = (before.process_started_at_seconds, now.process_started_at_seconds)
    same_counter = (before.busy_seconds_total is None) == (now.busy_seconds_total is None)
    return (None in processes or processes[0] == processes[1]) and same_counter and now.done_total >= before.done_total


def _closed(known: JobMemory, before: PaceAnchor, now: PaceAnchor) -> JobMemory:
    """The job's memory at the end of an interval.

    An interval without a finished step goes on: with steps of 30 s, intervals of 20 s that saw one would give 20 s a
    step, and those that saw none nothing. A response has its own duration, whenever it ends.
    """
    if now.busy_seconds_total is None and now.done_total == before.done_total:
        return known
    pace = _pace(before, now)
    paces = known.paces if pace is None else (*known.paces, pace)[-KEPT:]
    return known.altered(timing=known.timing.altered(anchor=now), paces=paces)


def _begun(job: Job, known: JobMemory, now: PaceAnchor) -> Answering | None:
    """Of a served model whose counters begin again: unanswered since then, or since before, if it keeps restarting."""
    if job.responses is None or known.timing.answering is None:
        return None
    return known.timing.answering if _unanswered_since(known) is not None else Answering(0.0, now.at_seconds)


def _answering(job: Job, known: JobMemory, before: PaceAnchor, now: PaceAnchor) -> Answering | None:
    """Whether the served model answered in the interval; None for a training.

    Without `in_flight` a server that hangs and one that no client uses look the same, and both count as unanswered.
    """
    if job.responses is None:
        return None
    done = now.done_total - before.done_total
    failed = max(0.0, now.failed_total - before.failed_total)
    in_flight_since = _in_flight_since(job.responses, known, now, succeeded=done > 0)
    if done > 0:
        return Answering(failed / (done + failed), None, in_flight_since)
    if failed == 0 and job.responses.in_flight == 0:
        return Answering()
    since = _unanswered_since(known)
    failed_ratio = 1.0 if failed > 0 else 0.0
    return Answering(failed_ratio, before.at_seconds if since is None else since, in_flight_since)


def _in_flight_since(responses: Responses, known: JobMemory, now: PaceAnchor, *, succeeded: bool) -> float | None:
    """Since when requests are in flight and none succeeds; since now, where one has `succeeded` in the interval.

    A server that hangs refuses requests beyond those that it keeps: such failures end nothing. Worked example: 3 in
    flight at 20, 40 and 60 s, the last success at 15 s: since 20 s, which are 40 s at 60 s.
    """
    if not (responses.in_flight or 0.0) > 0:
        return None
    since = None if known.timing.answering is None else known.timing.answering.in_flight_since_seconds
    return now.at_seconds if succeeded or since is None else since


def _unanswered_since(known: JobMemory) -> float | None:
    return None if known.timing.answering is None else known.timing.answering.unanswered_since_seconds


def _without_outdated_paces(known: JobMemory, interval_seconds: float, now_seconds: float) -> JobMemory:
    """Without its figures, once a served model has answered nothing for so long that they count for nothing.

    Worked example: intervals of 20 s, the last responses of 30 s each, none for 90 s.
    """
    since = _unanswered_since(known)
    if since is None or not known.paces:
        return known
    bound = MAX_UNANSWERED_INTERVALS * max(interval_seconds, known.paces[-1].seconds)
    return known.altered(paces=()) if now_seconds - since >= bound else known


def _pace(before: PaceAnchor, now: PaceAnchor) -> Pace | None:
    """Seconds each over the interval; None when nothing was finished in it, which is unknown and not infinite."""
    done = now.done_total - before.done_total
    elapsed = now.at_seconds - before.at_seconds
    if not (done > 0 and elapsed > 0):
        return None
    busy, failing = elapsed, 0.0
    if now.busy_seconds_total is not None and before.busy_seconds_total is not None:
        busy = now.busy_seconds_total - before.busy_seconds_total
        failing = max(0.0, now.failed_seconds_total - before.failed_seconds_total)
    seconds = busy / done
    if not (math.isfinite(seconds) and seconds > 0 and math.isfinite(failing)):
        return None
    # A server that waits for requests uses little CPU, and answers fast: what counts is what it used while it was
    # busy, with responses that failed too. The response that is under way is not in `busy` yet, so that one more is
    # allowed for: worked example, always busy, 15 s each, 20 s of which 15 are counted: 15 + 15 > 20, and all 20 s
    # count.
    busy_ratio = min(1.0, (busy + failing + seconds) / elapsed)
    waited = increase(before.waited_seconds_total, now.waited_seconds_total)
    wait_ratio = None if waited is None else min(1.0, waited / elapsed)
    cores = _cores(before, now, busy_ratio)
    return Pace(now.at_seconds, seconds, cores, busy_ratio, wait_ratio, _short_ratio(before, now), now.gpu_use)


def _cores(before: PaceAnchor, now: PaceAnchor, busy_ratio: float) -> float | None:
    """CPU used while at work, over the time between the two counts of CPU.

    With steps of one time and CPU of another, a count that is 19 s old first and 4 s old then would make 35 s of CPU
    out of an interval of 20 s.
    """
    if now.cpu_seconds_total is None or before.cpu_seconds_total is None:
        return None
    elapsed = _cpu_at_seconds(now) - _cpu_at_seconds(before)
    if elapsed <= 0:
        return None
    cores = max(0.0, now.cpu_seconds_total - before.cpu_seconds_total) / (elapsed * busy_ratio)
    return cores if math.isfinite(cores) else None


def _short_ratio(before: PaceAnchor, now: PaceAnchor) -> float | None:
    """The larger one of the part of its quota's periods that throttled it, and of the time under CPU pressure.

    None: not known. Without the pressure few throttled periods say nothing, since neighbours may have had its CPU.
    """
    had, has = before.health, now.health
    if had is None or has is None:
        return None
    periods = increase(had.cpu_periods_total, has.cpu_periods_total)
    throttled = increase(had.cpu_throttled_periods_total, has.cpu_throttled_periods_total)
    elapsed = _cpu_at_seconds(now) - _cpu_at_seconds(before)
    waiting = increase(had.cpu_waiting_seconds_total, has.cpu_waiting_seconds_total)
    of_periods = min(1.0, throttled / periods) if throttled is not None and periods else 0.0
    if waiting is None or elapsed <= 0:
        return of_periods if of_periods >= SHORT_RATIO else None
    return max(of_periods, min(1.0, waiting / elapsed))


def increase(before: float | None, now: float | None) -> float | None:
    """Of a counter; None: not known, or reset."""
    return None if before is None or now is None or now < before else now - before


def _cpu_at_seconds(anchor: PaceAnchor) -> float:
    return anchor.at_seconds if anchor.cpu_sampled_at_seconds is None else anchor.cpu_sampled_at_seconds


def fit(seen: Sequence[Figure]) -> Line:
    """`(a, b)` of seconds = a + b / cores: non-negative least squares over the CPU levels seen, one at least.

    Every step or response counts the same: a figure made of 4 steps is off by a quarter where the interval ended
    within a step, one of 100 steps by a hundredth. What is compared is CPU-seconds each, `a·cores + b`. Until two
    levels are seen that differ by a quarter, `a` is 0 and b is all CPU over all that was done; where one of the two
    would be below 0, it is the better line without it. Worked example: 2 s at 0.5 cores and 1.2 s at 1 core: a = 0.4,
    b = 0.8. Plain Python: for twelve figures numpy takes ten times as long.
    """
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

    History shows how the pace depends on CPU, the newest figures where it is now: so a line that is wrong (a hard quota
    of 0.25 cores does the work of 0.205), or no longer right, still leads to the objective within a few evaluations.
    Worked example: at 1 core 1 s each nine times, then 1.2 s three times: the fitted b is 1.04, the calibrated one 1.2.
    """
    seen = _seen(paces)
    if not seen:
        return None
    a, b = fit(seen)
    done, cores, cpu, _, _ = _sums(seen[-NEWEST:])
    scale = cpu / (a * cores + b * done)
    return a * scale, b * scale


def cores_for(seconds: float, line: Line) -> float | None:
    """The CPU at which one step or response takes `seconds`; None when no amount of CPU makes it that fast."""
    a, b = line
    if seconds <= a:
        return None
    return b / (seconds - a)
