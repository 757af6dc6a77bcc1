"""Rows of deadlines and response-time objectives: how many were met, and for each job that has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from slopewise.demo.report.comparability import comparable
from slopewise.demo.report.results import DemoResult, JobResult, RunResult
from slopewise.model import JobState
from slopewise.reports.cells import Block, Cell, Row, bounded, count, verdict_of_difference
from slopewise.reports.estimates import Verdict, estimate
from slopewise.reports.wording import listed, plain


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of objective: its texts, and its attributes of a job."""

    name: str
    counted: str
    heading: str
    met: str
    seconds: str
    bound_seconds: str
    newly_met: str
    newly_missed: str

    def is_met(self, job: JobResult) -> bool:
        """False also where it has none."""
        return getattr(job, self.met) is True

    def bound(self, job: JobResult) -> float | None:
        """Seconds; None: it has none."""
        seconds: float | None = getattr(job, self.bound_seconds)
        return seconds

    def kept(self, run: RunResult) -> int:
        """By how many jobs."""
        return sum(map(self.is_met, run.jobs))


_KINDS = (
    Kind(
        "qoe_satisfied", "Objectives satisfied", "Response (or step) time of each job, and its objective",
        "qoe_satisfied", "pace_seconds", "qoe_seconds",
        "objective satisfied that was missed", "objective missed that was satisfied",
    ),
    Kind(
        "deadlines_met", "Deadlines met", "JCT of each job, and its deadline",
        "deadline_met", "jct_seconds", "deadline_seconds",
        "deadline met that was missed", "deadline missed that was met",
    ),
)  # fmt: skip


def kinds(result: DemoResult) -> list[Kind]:
    """Those that any job has."""
    return [kind for kind in _KINDS if any(kind.bound(job) is not None for job in result.jobs)]


def objective_counts(result: DemoResult) -> list[Row]:
    """How many objectives of each kind were met."""
    return [
        Row(kind.counted, tuple(_count(kind, result, place) for place in range(len(result.runs))), kind.name)
        for kind in kinds(result)
    ]


def objective_blocks(result: DemoResult) -> list[Block]:
    """For each kind of objective, one row for each job that has one."""
    return [Block(kind.heading, tuple(_rows(kind, result)), kind.name) for kind in kinds(result)]


def met_phrases(result: DemoResult, place: int, verdict: Verdict) -> Iterator[str]:
    """E.g. `deadline met that was missed: a, b`: which jobs gained or lost, whatever the counts add up to."""
    for kind in kinds(result):
        if names := [row.label for row in _rows(kind, result) if row.cells[place].verdict == verdict]:
            yield f"{kind.newly_met if verdict == 'better' else kind.newly_missed}: {listed(names)}"


def _count(kind: Kind, result: DemoResult, place: int) -> Cell:
    runs = result.runs_of(place)
    made = sum(kind.bound(job) is not None for job in runs[0].jobs)
    more = [kind.kept(pair.run) - kind.kept(pair.base) for pair in comparable(result, place)]
    return count(estimate([kind.kept(run) for run in runs]), made, estimate(more) if more else None)


def _rows(kind: Kind, result: DemoResult) -> Iterator[Row]:
    bounds = {job.name: bound for job in reversed(result.jobs) if (bound := kind.bound(job)) is not None}
    for name in result.job_names:
        if name in bounds:
            places = range(len(result.runs))
            yield Row(plain(name), tuple(_cell(kind, result, place, name, bounds[name]) for place in places), name)


def _cell(kind: Kind, result: DemoResult, place: int, name: str, bound_seconds: float) -> Cell:
    """Its verdict: whether the objective was met more often than under the baseline."""
    jobs = [job for run in result.runs_of(place) if (job := run.job(name)) is not None]
    if not jobs:
        return bounded(None, bound_seconds, 0, 1, note="did not run")
    measured = [seconds for job in jobs if (seconds := getattr(job, kind.seconds)) is not None]
    states = dict.fromkeys(plain(job.state) for job in jobs if job.state != JobState.FINISHED)
    both = [(pair.base.job(name), pair.run.job(name)) for pair in comparable(result, place)]
    gained = [kind.is_met(after) - kind.is_met(before) for before, after in both if before and after]
    return bounded(
        fmean(measured) if measured else None,
        bound_seconds,
        sum(map(kind.is_met, jobs)),
        len(jobs),
        verdict_of_difference(estimate(gained), 1) if gained else None,
        ", ".join(states) or ("" if measured else "no response or step"),
    )
