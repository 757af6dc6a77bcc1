"""The columns PROGRESS and ETA of a workload that a pass has seen. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from slopewise.crds.job_growth import UNKNOWN
from slopewise.estimators.pace import NEWEST
from slopewise.model import Job, JobMemory
from slopewise.text import duration


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
    if carried_out and (ends := known.ends) is not None and ends.at_seconds > now_seconds:
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
