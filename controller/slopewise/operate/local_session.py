"""`status`, `explain` and `history` of the session on this machine, in the words of those of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from slopewise.adapters.local.session_requests import JobAnswer, SessionAnswer, session_and_jobs
from slopewise.crds.history import Line, in_order
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import UsageError
from slopewise.operate.explanation import Explanation, explain
from slopewise.reports.ranking import Ranking
from slopewise.reports.trials import Trial
from slopewise.reports.wording import plain
from slopewise.text import unknown_name

NAMESPACE = "local"
"""Of all jobs of a machine."""

MAX_JOBS = 10
"""Jobs of which `status` says what they do; `slopewise jobs` has all."""

_TROUBLES = ("no loss", "failed", "ended")


def status_lines(session: SessionAnswer, jobs: Sequence[JobAnswer]) -> list[str]:
    """Who decides, what the jobs do, what the session has brought, and what somebody should look at."""
    states = Counter(job.state for job in jobs)
    listed = ", ".join(f"{count} {state}" for state, count in states.items()) or "none"
    troubles = [f"{job.name}: {job.reason}" for job in jobs if job.state in _TROUBLES]
    going_on = [job for job in jobs if job.finished_at_seconds is None and job.state not in _TROUBLES and job.reason]
    more = len(going_on) - MAX_JOBS
    lines = [
        f"session: {session.holder} (process {session.pid}), {session.way}",
        f"policy: {session.policy}, mode {session.mode}; {session.passes} passes",
        *([f"held, nothing is changed: {session.held}"] if session.held else []),
        f"jobs: {listed}",
        *(f"{job.name}: {job.reason}" for job in going_on[:MAX_JOBS]),
        *([f"{more} more: slopewise jobs"] if more > 0 else []),
        *([f"brought: {session.brought}"] if session.brought else []),
        *troubles,
    ]
    return [plain(line) for line in lines]


def status_json(session: SessionAnswer, jobs: Sequence[JobAnswer]) -> dict[str, Any]:
    """For `--output json`."""
    return {"session": to_builtins(session), "jobs": dict(Counter(job.state for job in jobs))}


def study_here(study: str) -> Ranking:
    """A study of the session; UsageError where it has none of this name."""
    return ranking_of(study, jobs_of(study, session_and_jobs()[1]))


def jobs_of(study: str, jobs: Sequence[JobAnswer]) -> list[JobAnswer]:
    """Those of the study; UsageError where there are none."""
    if of_study := [job for job in jobs if job.study == study]:
        return of_study
    studies = sorted({job.study for job in jobs} - {""})
    raise UsageError(unknown_name("study", study, studies))


def ranking_of(study: str, jobs: Sequence[JobAnswer]) -> Ranking:
    """Jobs as trials; a session of an earlier version says less of them."""
    return Ranking(study, [job.trial or Trial(job.name, job.state, job.loss_last, job.cpu_seconds) for job in jobs])


def explained(name: str) -> Explanation:
    """One job; UsageError where there is none of this name."""
    (job,) = _named(session_and_jobs()[1], name, "explain")
    status = status_of(job)
    decided = (job.status or {}).get("reason")
    if job.finished_at_seconds is not None or decided in (None, job.reason):
        return explain(f"{NAMESPACE}/{job.name}", status, _lines(job))
    in_full = status.model_copy(update={"reason": decided})
    return explain(f"{NAMESPACE}/{job.name}", in_full, _lines(job), next_step=job.reason)


def history(name: str | None) -> list[Line]:
    """What was done to the jobs, or to one of them, oldest first."""
    return in_order(line for job in _named(session_and_jobs()[1], name, "history") for line in _lines(job))


def status_of(job: JobAnswer) -> JobGrowthStatus:
    """As of the last pass that saw it, with the state that its process has now."""
    status = JobGrowthStatus.model_validate(job.status or {})
    return status.model_copy(update={"state": job.state, "reason": job.reason})


def _lines(job: JobAnswer) -> list[Line]:
    return [Line(NAMESPACE, job.name, action) for action in status_of(job).history]


def _named(jobs: Sequence[JobAnswer], name: str | None, command: str) -> list[JobAnswer]:
    wanted = None if name is None else name.removeprefix(f"{NAMESPACE}/")
    found = [job for job in jobs if wanted in (None, job.name)]
    if wanted is not None and not found:
        raise UsageError(f"{command}: {unknown_name('job', wanted, [job.name for job in jobs])}")
    return found
