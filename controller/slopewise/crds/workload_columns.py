"""The columns of a workload in its JobGrowth: PROGRESS, ETA, and its memory with the reason for it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from slopewise.crds.job_growth import UNKNOWN
from slopewise.estimators.pace import NEWEST
from slopewise.memory_sizing import APART_BYTES
from slopewise.model import Job, JobMemory, JobView, MemoryAllocation, MemoryControl, ResizeMemory
from slopewise.text import bounded, duration, mebibytes

MAX_REASON = 160
"""As of the reason of the CPU."""


class WorkloadMemory(NamedTuple):
    """Of a workload, in bytes, sums over its pods; None: not known, or a pod has none."""

    working_set_bytes: int | None
    request_bytes: int | None
    limit_bytes: int | None


def memory_of(jobs: Sequence[Job]) -> WorkloadMemory:
    """The sums over those that have not ended."""
    running = [job for job in jobs if not job.state.ended]
    accepted = [job.memory or MemoryAllocation() for job in running]
    used = [job.usage.memory_bytes if job.usage else None for job in running]
    return WorkloadMemory(
        _sum(None if each is None else round(each) for each in used),
        _sum(each.request_bytes for each in accepted),
        _sum(each.limit_bytes for each in accepted),
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    """The sum; None when a part is missing, or there is none."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    return sum(known) if found and len(known) == len(found) else None


def memory_reason(jobs: Sequence[Job], view_of: Callable[[Job], JobView], control: MemoryControl) -> str | None:
    """Why the memory of one of its pods was changed or not; None: it has its original, and nothing was decided."""
    views = ((job, view_of(job)) for job in jobs)
    reasons = (view.message_of(ResizeMemory) or _changed(job, view) for job, view in views)
    found = next((reason for reason in reasons if reason), None)
    if found is None and control != "Ignore":
        found = next((job.memory_ineligible_reason for job in jobs if job.memory_ineligible_reason), None)
    return None if found is None else bounded(found, MAX_REASON)


def _changed(job: Job, view: JobView) -> str:
    """Which part of its memory is another than its original; empty: none is."""
    original, has = None if view.known is None else view.known.original_memory, job.memory
    if original is None or has is None:
        return ""
    for name, before, now in (
        ("request", original.request_bytes, has.request_bytes),
        ("limit", original.limit_bytes, has.limit_bytes),
    ):
        if before is not None and now is not None and abs(before - now) > APART_BYTES:
            return f"{name} {'lowered' if now < before else 'raised'} from its original {mebibytes(before)}"
    return ""


def progress_ratio(jobs: Sequence[Job]) -> float | None:
    """From the first pod that reports its steps: the pods of a workload train one model."""
    for job in jobs:
        if job.steps_total is not None and job.steps_planned:
            return min(1.0, max(0.0, job.steps_total / job.steps_planned))
    return None


def eta(job: Job, known: JobMemory, now_seconds: float, *, carried_out: bool) -> str:
    """Time until its end as its policy expects it, from when (served alone) to when (fair sharing), where it does.

    Else until the planned steps are done, at the mean pace of the last measurements; `-` when not known. What a policy
    expects assumes its order of the jobs, so it counts only where all its decisions are carried out (`carried_out`); a
    job that is still there at the time at which it was expected to end refutes it.

    Worked example: 400 of 1,000 steps, 0.5 s a step: 600 × 0.5 s = 5m.
    """
    if job.state.ended or job.responses is not None:
        return UNKNOWN
    if carried_out and (ends := known.decided.ends) is not None and ends.at_seconds > now_seconds:
        at, earliest, latest = (
            duration(max(0.0, each - now_seconds))
            for each in (ends.at_seconds, ends.earliest_seconds, ends.latest_seconds)
        )
        return f"{at} ({earliest}-{latest})"
    if not known.paces:
        return UNKNOWN
    if job.steps_total is None or not job.steps_planned:
        return UNKNOWN
    pace = fmean(pace.seconds for pace in known.paces[-NEWEST:])
    left = max(0.0, job.steps_planned - job.steps_total) * pace
    return duration(left) if math.isfinite(left) else UNKNOWN
