"""`jobs`, `status`, `explain` and `history` of the session on this machine, in the words of those of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins
from rich.console import RenderableType
from rich.text import Text

from slopewise.adapters.local.session_requests import JobAnswer, SessionAnswer, session_and_jobs
from slopewise.crds.history import Line, in_order
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import UsageError
from slopewise.operate.explanation import Explanation, explain
from slopewise.reports.columns import Column, fitting, named, sized, table_of
from slopewise.reports.live_table import STATE_STYLES
from slopewise.reports.ranking import Ranking
from slopewise.reports.wording import UNKNOWN, counted, loss_change, plain, steps_done
from slopewise.text import bounded, duration, unknown_name

NAMESPACE = "local"
"""Of all jobs of a machine."""

MAX_JOBS = 10
"""Jobs of which `status` says what they do; `slopewise jobs` has all."""

_ORDER = ("JOB", "STATE", "TIME", "LOSS", "STEPS", "CPU", "REASON")
_MIN_REASON_WIDTH = 36
"""Two lines of it hold what a job waits for and when it ends."""

MAX_REASON = 240
"""Characters; `--output json` has all of them."""

_TROUBLES = ("no loss", "failed", "ended")


def status_lines(session: SessionAnswer, jobs: Sequence[JobAnswer]) -> list[str]:
    """Who decides, what the jobs do, what the session has brought, and what somebody should look at."""
    listed = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in jobs).items()) or "none"
    troubles = [f"{job.name}: {job.reason}" for job in jobs if job.state in _TROUBLES]
    going_on = [job for job in jobs if job.finished_at_seconds is None and job.state not in _TROUBLES and job.reason]
    more = len(going_on) - MAX_JOBS
    lines = [
        f"session: {session.holder} (process {session.pid}), {session.way}",
        f"policy: {session.policy}, mode {session.mode}; {counted(session.passes, 'pass', 'passes')}",
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
    """Jobs as trials."""
    return Ranking(study, [job.trial for job in jobs if job.trial is not None])


def explained(name: str) -> Explanation:
    """One job; UsageError where there is none of this name."""
    (job,) = _named(session_and_jobs()[1], name, "explain")
    status = status_of(job)
    decided = (job.status or {}).get("reason")
    if job.finished_at_seconds is not None or decided in (None, job.reason):
        return explain(f"{NAMESPACE}/{job.name}", status, _lines(job))
    status = status.model_copy(update={"reason": decided})
    return explain(f"{NAMESPACE}/{job.name}", status, _lines(job), next_step=job.reason)


def history(name: str | None) -> list[Line]:
    """What was done to the jobs, or to one of them, oldest first."""
    return in_order(line for job in _named(session_and_jobs()[1], name, "history") for line in _lines(job))


def status_of(job: JobAnswer) -> JobGrowthStatus:
    """As of the last pass that saw it, with the state that its process has now; one that has ended has no CPU."""
    status = JobGrowthStatus.model_validate(job.status or {})
    gone = {} if job.finished_at_seconds is None else dict.fromkeys(("cpu", "cpu_millicores", "eta"))
    return status.model_copy(update={"state": job.state, "reason": job.reason, **gone})


def _lines(job: JobAnswer) -> list[Line]:
    return [Line(NAMESPACE, job.name, action) for action in status_of(job).history]


def _named(jobs: Sequence[JobAnswer], name: str | None, command: str) -> list[JobAnswer]:
    wanted = None if name is None else name.removeprefix(f"{NAMESPACE}/")
    found = [job for job in jobs if wanted in (None, job.name)]
    if wanted is not None and not found:
        raise UsageError(f"{command}: {unknown_name('job', wanted, [job.name for job in jobs])}")
    return found


def jobs_table(jobs: Sequence[JobAnswer], width: int) -> RenderableType:
    """A row for each job, as wide as the terminal."""
    return table_of(fitting(_columns(jobs), _ORDER, width), jobs)


def _columns(jobs: Sequence[JobAnswer]) -> Iterator[Column[JobAnswer]]:
    """By importance."""
    yield named("JOB", jobs, lambda job: job.name)
    yield sized("STATE", jobs, lambda job: Text(plain(job.state), style=STATE_STYLES.get(job.state, "")))
    yield sized("TIME", jobs, _time, "right")
    yield Column(
        "REASON", _MIN_REASON_WIDTH, lambda job: Text(bounded(plain(job.reason), MAX_REASON)), fills=True, wraps=True
    )
    yield sized("LOSS", jobs, lambda job: Text(loss_change(job.loss_first, job.loss_last)))
    yield sized("STEPS", jobs, lambda job: Text(steps_done(job.steps, job.steps_planned)), "right")
    yield sized("CPU", jobs, lambda job: Text(status_of(job).cpu or UNKNOWN), "right")


def _time(job: JobAnswer) -> Text:
    if job.started_at_seconds is None:
        return Text(UNKNOWN)
    until = time.time() if job.finished_at_seconds is None else job.finished_at_seconds
    return Text(duration(max(0.0, until - job.started_at_seconds)))


def jobs_json(jobs: Sequence[JobAnswer]) -> list[dict[str, Any]]:
    """For `--output json`: every key of each job."""
    keys = JobAnswer.__struct_fields__
    return [{key: to_builtins(getattr(job, key)) for key in keys} for job in jobs]
