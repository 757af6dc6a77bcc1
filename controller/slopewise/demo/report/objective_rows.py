"""Rows of deadlines and response-time objectives: how many were met, and for each job that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from slopewise.demo.report.comparability import Pair, comparable
from slopewise.demo.report.results import DemoResult, JobResult, RunResult
from slopewise.model import JobState
from slopewise.reports.cells import Block, Cell, Row, bounded, count, verdict_of_difference
from slopewise.reports.estimates import Verdict, estimate
from slopewise.reports.wording import listed, plain


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of objective: its texts and its fields of a job."""

    name: str
    counted: str
    heading: str
    met: Callable[[JobResult], bool | None]
    seconds: Callable[[JobResult], float | None]
    bound_seconds: Callable[[JobResult], float | None]
    newly_met: str
    newly_missed: str


_KINDS = (
    _Kind(
        "qoe_satisfied",
        "Objectives satisfied",
        "Response (or step) time of each job, and its objective",
        met=lambda job: job.qoe_satisfied,
        seconds=lambda job: job.pace_seconds,
        bound_seconds=lambda job: job.qoe_seconds,
        newly_met="objective satisfied that was missed",
        newly_missed="objective missed that was satisfied",
    ),
    _Kind(
        "deadlines_met",
        "Deadlines met",
        "JCT of each job, and its deadline",
        met=lambda job: job.deadline_met,
        seconds=lambda job: job.jct_seconds,
        bound_seconds=lambda job: job.deadline_seconds,
        newly_met="deadline met that was missed",
        newly_missed="deadline missed that was met",
    ),
)


def objective_counts(result: DemoResult) -> list[Row]:
    """How many objectives of each kind were met, one row for each kind that any job has."""
    return [
        Row(kind.counted, tuple(_count(kind, result, place) for place in range(len(result.runs))), kind.name)
        for kind in _kinds(result)
    ]


def objective_blocks(result: DemoResult) -> list[Block]:
    """For each kind of objective, one row for each job that has one."""
    return [Block(kind.heading, tuple(_rows(kind, result)), kind.name) for kind in _kinds(result)]


def met_phrases(result: DemoResult, place: int, verdict: Verdict) -> Iterator[str]:
    """E.g. `deadline met that was missed: a, b`: which jobs gained or lost, whatever the counts add up to."""
    for kind in _kinds(result):
        names = [row.label for row in _rows(kind, result) if row.cells[place].verdict == verdict]
        if names and verdict in ("better", "worse"):
            yield f"{kind.newly_met if verdict == 'better' else kind.newly_missed}: {listed(names)}"


def _kinds(result: DemoResult) -> list[_Kind]:
    jobs = [job for run in result.runs for job in run.jobs]
    return [kind for kind in _KINDS if any(kind.bound_seconds(job) is not None for job in jobs)]


def _count(kind: _Kind, result: DemoResult, place: int) -> Cell:
    runs = result.runs_of(place)
    made = sum(kind.met(job) is not None for job in runs[0].jobs)
    more = [_kept(kind, pair.run) - _kept(kind, pair.base) for pair in comparable(result, place)]
    return count(estimate([_kept(kind, run) for run in runs]), made, estimate(more) if more else None)


def _kept(kind: _Kind, run: RunResult) -> int:
    return sum(kind.met(job) is True for job in run.jobs)


def _rows(kind: _Kind, result: DemoResult) -> Iterator[Row]:
    for name in result.job_names:
        bounds = [kind.bound_seconds(job) for run in result.runs if (job := run.job(name)) is not None]
        bound = next((each for each in bounds if each is not None), None)
        if bound is not None:
            cells = tuple(_objective(kind, result, place, name, bound) for place in range(len(result.runs)))
            yield Row(plain(name), cells, name)


def _objective(kind: _Kind, result: DemoResult, place: int, name: str, bound_seconds: float) -> Cell:
    jobs = [job for run in result.runs_of(place) if (job := run.job(name)) is not None]
    if not jobs:
        return bounded(None, bound_seconds, 0, 1, note="did not run")
    measured = [seconds for job in jobs if (seconds := kind.seconds(job)) is not None]
    states = dict.fromkeys(plain(job.state) for job in jobs if job.state != JobState.FINISHED)
    return bounded(
        fmean(measured) if measured else None,
        bound_seconds,
        sum(kind.met(job) is True for job in jobs),
        len(jobs),
        _verdict(kind, comparable(result, place), name),
        ", ".join(states) or ("" if measured else "no response or step"),
    )


def _verdict(kind: _Kind, compared: Sequence[Pair], name: str) -> Verdict | None:
    """Whether the job's objective was met more often than under the baseline; None where nothing is compared."""
    both = [(before, after) for pair in compared if (before := pair.base.job(name)) and (after := pair.run.job(name))]
    gained = [(kind.met(after) is True) - (kind.met(before) is True) for before, after in both]
    return verdict_of_difference(estimate(gained), 1) if gained else None
