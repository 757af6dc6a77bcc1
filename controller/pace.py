"""Pace: how long one training step, or one response of a served model, takes at the CPU it was given.

Comes after `growth.measure` and before `decide` in every pass. `measure` closes a job's interval once it is long
enough and keeps the last few figures in the job's memory; `dqoes` and `deadline` read `JobMemory.paces`.

Worked example: 40 steps done and 8 CPU-seconds used in an interval of 20 s: 0.5 s a step at 0.4 cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.growth import EARLY_RATIO
from controller.model import ClusterSnapshot, Job, JobMemory, MemoryState, Pace, PaceAnchor

Floats = NDArray[np.float64]

KEPT = 12
"""Figures kept of each job: enough for levels that were tried some time ago, little enough to store."""

SAME_LEVEL_RATIO = 0.05
"""Two CPU levels less apart than this say nothing about how the pace depends on CPU."""


def measure(snapshot: ClusterSnapshot, memory: MemoryState, interval_seconds: float) -> MemoryState:
    """Bring the paces of all jobs up to this snapshot; a job without counters is left as it is."""
    changed = {}
    for job in snapshot.jobs:
        now = _counters(job, snapshot.taken_at_seconds)
        if now is None:
            continue
        known = memory.jobs.get(job.uid) or JobMemory()
        before = known.pace_anchor
        if before is None or job.restarted or not _same_life(before, now):
            changed[job.uid] = replace(known, pace_anchor=now)
        elif now.at_seconds - before.at_seconds >= EARLY_RATIO * interval_seconds:
            pace = _pace(before, now)
            paces = known.paces if pace is None else (*known.paces, pace)[-KEPT:]
            changed[job.uid] = replace(known, pace_anchor=now, paces=paces)
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory


def _counters(job: Job, now_seconds: float) -> PaceAnchor | None:
    """What the job has done and used so far; None when nothing counts it."""
    used = job.usage
    at_seconds = used.sampled_at_seconds if used else now_seconds
    cpu_seconds = used.cpu_seconds_total if used else None
    life = job.life_started_at_seconds
    if job.responses is not None:
        return PaceAnchor(at_seconds, job.responses.count_total, job.responses.seconds_total, cpu_seconds, life)
    if job.steps_total is not None:
        return PaceAnchor(at_seconds, job.steps_total, None, cpu_seconds, life)
    return None


def _same_life(before: PaceAnchor, now: PaceAnchor) -> bool:
    """False after a restart, or when a counter went back."""
    lives = (before.life_started_at_seconds, now.life_started_at_seconds)
    return (None in lives or lives[0] == lives[1]) and now.done_total >= before.done_total


def _pace(before: PaceAnchor, now: PaceAnchor) -> Pace | None:
    """Seconds each over the interval; None when nothing was finished in it, which is unknown and not infinite."""
    done = now.done_total - before.done_total
    elapsed = now.at_seconds - before.at_seconds
    if done <= 0 or elapsed <= 0:
        return None
    busy = elapsed
    if now.busy_seconds_total is not None and before.busy_seconds_total is not None:
        busy = now.busy_seconds_total - before.busy_seconds_total
    cores = None
    if now.cpu_seconds_total is not None and before.cpu_seconds_total is not None:
        cores = max(0.0, now.cpu_seconds_total - before.cpu_seconds_total) / elapsed
    return Pace(now.at_seconds, busy / done, cores)


def fit(paces: Sequence[Pace]) -> tuple[float, float] | None:
    """`(a, b)` of seconds = a + b / cores: non-negative least squares over the CPU levels seen; None: none seen.

    Until two different levels are seen, `a` is 0. Worked example: 2 s at 0.5 cores and 1.2 s at 1 core: a = 0.4,
    b = 0.8.
    """
    seen = [(pace.cores, pace.seconds) for pace in paces if pace.cores is not None and pace.cores > 0]
    if not seen:
        return None
    cores, seconds = np.asarray(seen, dtype=np.float64).T
    if cores.max() <= cores.min() * (1 + SAME_LEVEL_RATIO):
        return 0.0, float(np.mean(seconds * cores))
    return _non_negative_line(1.0 / cores, seconds)


def _non_negative_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Least squares of y = a + b·x with a, b ≥ 0: the free line, or the better of its two edges."""
    spread = x - x.mean()
    b = float(spread @ y / (spread @ spread))
    a = float(y.mean() - b * x.mean())
    if b < 0:
        return float(y.mean()), 0.0
    if a < 0:
        return 0.0, float(x @ y / (x @ x))
    return a, b


def cores_for(seconds: float, line: tuple[float, float]) -> float | None:
    """The CPU at which one step or response takes `seconds`; None when no amount of CPU makes it that fast."""
    a, b = line
    if seconds <= a:
        return None
    return b / (seconds - a)
