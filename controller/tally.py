"""What a run has done so far, in a bounded size: counts, and of each job its evaluations, thinned out, and its changes.

A sink of `session.py`: a run of weeks forgets its passes, and this remembers what the live table and the table at the
end say of them. Passes write from their own thread; a reader sees a value of before or after, never half of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import Job, Objective, PassReport

HISTORY_KEPT = 240
"""Evaluations of a job, evenly spread over its life: twenty for each block of the curve in the live table."""


@dataclass(slots=True)
class JobTally:
    """One job so far. None: not seen yet."""

    objective: Objective = "min"
    first_level: float | None = None
    last_level: float | None = None
    history: tuple[float, ...] = ()
    steps_total: float | None = None
    steps_planned: float | None = None
    resizes: int = 0
    """Changes of its CPU that were carried out."""
    _stride: int = 1
    _skipped: int = 0

    def see(self, job: Job) -> None:
        """Take in what a pass saw of it."""
        self.steps_total = job.steps_total if job.steps_total is not None else self.steps_total
        self.steps_planned = job.steps_planned if job.steps_planned is not None else self.steps_planned
        if job.evaluation is None:
            return
        level = job.evaluation.level
        self.objective = job.evaluation.objective
        self.first_level = level if self.first_level is None else self.first_level
        self.last_level = level
        self._remember(level)

    def _remember(self, level: float) -> None:
        """Every `_stride`-th level; when that is too many, every second of them is forgotten."""
        self._skipped += 1
        if self.history and self._skipped < self._stride:
            return
        self._skipped = 0
        self.history = (*self.history, level)
        if len(self.history) > HISTORY_KEPT:
            self.history, self._stride = self.history[::2], 2 * self._stride


class RunTally:
    """All of a run, by the name of the job."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobTally] = {}
        self.resizes_applied = 0
        self.withheld = 0
        self.moves_applied = 0

    def __call__(self, report: PassReport) -> None:
        """Take in one pass."""
        self.resizes_applied += report.count("applied")
        self.withheld += len(report.withheld) + len(report.moves_withheld)
        self.moves_applied += sum(move.result == "applied" for move in report.moves)
        for job in report.snapshot.jobs if report.snapshot else ():
            self.of(job.name).see(job)
        for outcome in report.outcomes:
            if outcome.result == "applied":
                self.of(outcome.resize.job_uid).resizes += 1

    def of(self, name: str) -> JobTally:
        """One job; also one that no pass has seen."""
        return self.jobs.setdefault(name, JobTally())
