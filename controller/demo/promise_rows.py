"""What became of what was promised: deadlines and objectives, counted, and for each job that has one.

Before it: `results.py`. After it: `comparison.py`, which puts these rows before those of durations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from controller.demo.cells import Block, Count, Promise, Row, Verdict
from controller.demo.results import DemoResult, JobResult, RunResult
from controller.demo.wording import listed, plain
from controller.model import JobState


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of promise: how it is named, and what of a job belongs to it."""

    counted: str
    heading: str
    kept: Callable[[JobResult], bool | None]
    seconds: Callable[[JobResult], float | None]
    bound_seconds: Callable[[JobResult], float | None]
    newly_kept: str
    newly_missed: str


_KINDS = (
    _Kind(
        "Objectives satisfied",
        "Response (or step) time of each job, and its objective",
        kept=lambda job: job.qoe_satisfied,
        seconds=lambda job: job.pace_seconds,
        bound_seconds=lambda job: job.qoe_seconds,
        newly_kept="objective satisfied that was missed",
        newly_missed="objective missed that was satisfied",
    ),
    _Kind(
        "Deadlines met",
        "JCT of each job, and its deadline",
        kept=lambda job: job.deadline_met,
        seconds=lambda job: job.jct_seconds,
        bound_seconds=lambda job: job.deadline_seconds,
        newly_kept="deadline met that was missed",
        newly_missed="deadline missed that was met",
    ),
)


def promise_counts(result: DemoResult) -> list[Row]:
    """How many promises of each kind were kept, one row for each kind that any job has."""
    return [
        Row(kind.counted, tuple(_count(kind, result.runs[0], run) for run in result.runs)) for kind in _kinds(result)
    ]


def promise_blocks(result: DemoResult) -> list[Block]:
    """For each kind of promise, one row for each job that has one."""
    return [Block(kind.heading, tuple(_rows(kind, result))) for kind in _kinds(result)]


def kept_phrases(result: DemoResult, place: int, verdict: Verdict) -> Iterator[str]:
    """E.g. `deadline met that was missed: a, b`: which jobs gained or lost, whatever the counts add up to."""
    for kind in _kinds(result):
        names = [row.label for row in _rows(kind, result) if row.cells[place].verdict == verdict]
        if names and verdict != "same":
            yield f"{kind.newly_kept if verdict == 'better' else kind.newly_missed}: {listed(names)}"


def _kinds(result: DemoResult) -> list[_Kind]:
    jobs = [job for run in result.runs for job in run.jobs]
    return [kind for kind in _KINDS if any(kind.bound_seconds(job) is not None for job in jobs)]


def _count(kind: _Kind, baseline: RunResult, run: RunResult) -> Count:
    made = [kept for job in run.jobs if (kept := kind.kept(job)) is not None]
    before = sum(kind.kept(job) is True for job in baseline.jobs)
    return Count(sum(made), len(made), None if run is baseline else sum(made) - before)


def _rows(kind: _Kind, result: DemoResult) -> Iterator[Row]:
    for name in result.job_names:
        bounds = [kind.bound_seconds(job) for run in result.runs if (job := run.job(name)) is not None]
        bound = next((each for each in bounds if each is not None), None)
        if bound is not None:
            yield Row(plain(name), tuple(_promise(kind, result.runs[0], run, name, bound) for run in result.runs))


def _promise(kind: _Kind, baseline: RunResult, run: RunResult, name: str, bound_seconds: float) -> Promise:
    job, before = run.job(name), baseline.job(name)
    if job is None:
        return Promise(None, bound_seconds, kept=False, note="did not run")
    kept = kind.kept(job) is True
    note = "" if job.state == JobState.FINISHED else plain(job.state)
    verdict = None if run is baseline or before is None else _verdict(kept, kind.kept(before) is True)
    return Promise(kind.seconds(job), bound_seconds, kept, verdict, note)


def _verdict(kept: bool, kept_before: bool) -> Verdict:
    if kept == kept_before:
        return "same"
    return "better" if kept else "worse"
