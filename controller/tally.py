"""What a run has done so far, in a bounded size: counts, and of each job its evaluations, thinned out, and its changes.

`session.py` hands in each pass and what Prometheus knew in it: a run of weeks forgets its passes, and this remembers
what the live table and the table at the end say of them. Passes write from their own thread; a reader sees a value of
before or after, never half of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.adapters.prometheus import JobSeries, PrometheusReading
from controller.model import JobState, Objective, PassReport

HISTORY_KEPT = 240
"""Evaluations of a job, evenly spread over its life: twenty for each block of the curve in the live table."""


@dataclass(slots=True)
class JobTally:
    """One job so far, also after its end. None: not seen yet."""

    objective: Objective = "min"
    first_level: float | None = None
    last_level: float | None = None
    """The first and the last that were finite."""
    history: tuple[float, ...] = ()
    steps_total: float | None = None
    steps_planned: float | None = None
    reported_state: JobState | None = None
    """What it said of itself last."""
    pace_seconds: float | None = None
    """What a response, or a step, took when that was measured last."""
    resizes: int = 0
    """Changes of its CPU that were carried out."""
    missing: str | None = None
    """Why it has reported no loss, as far as that was found out."""
    _stride: int = 1
    _skipped: int = 0

    def see(self, series: JobSeries) -> None:
        """Take in what Prometheus knows of it."""
        self.steps_total = series.steps_total if series.steps_total is not None else self.steps_total
        self.steps_planned = series.steps_planned if series.steps_planned is not None else self.steps_planned
        self.reported_state = series.state or self.reported_state
        if series.evaluation is None:
            return
        level = series.evaluation.level
        self.objective = series.evaluation.objective
        self._remember(level)
        if math.isfinite(level):
            self.first_level = level if self.first_level is None else self.first_level
            self.last_level = level

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

    def count(self, report: PassReport) -> None:
        """Take in what one pass did."""
        self.resizes_applied += report.count("applied")
        self.withheld += len(report.withheld) + len(report.moves_withheld)
        self.moves_applied += sum(move.result == "applied" for move in report.moves)
        for outcome in report.outcomes:
            if outcome.result == "applied":
                self.of(outcome.resize.job_uid).resizes += 1
        for job in report.snapshot.jobs if report.snapshot else ():
            if job.missing_evaluation is not None:
                self.of(job.name).missing = job.missing_evaluation.message
        for uid, known in report.decisions.memory.jobs.items() if report.decisions else ():
            if known.paces:
                self.of(uid).pace_seconds = known.paces[-1].seconds

    def see(self, reading: PrometheusReading) -> None:
        """Take in what Prometheus knew at one moment, also of jobs that have ended in the last seconds."""
        for key, series in reading.jobs.items():
            self.of(key.pod).see(series)

    def of(self, name: str) -> JobTally:
        """One job; also one that nobody has seen."""
        return self.jobs.setdefault(name, JobTally())
