"""Accumulates a run's counts and each job's evaluations and changes in bounded memory.

A run of weeks drops its passes; the live table and the result read this tally instead. Passes write from their own
thread, and each value is replaced atomically.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slopewise.adapters.local.crashed_runs import EarlierJob
from slopewise.adapters.local.job_processes import last_losses
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.prometheus.evaluations import STAGE_PREFERENCE
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading
from slopewise.allocation import capacity_cores
from slopewise.estimators.raw_points import unpacked
from slopewise.model import JobMemory, JobState, Migrate, Node, Objective, PassReport, Place, Resize
from slopewise.reports.ranking import at_rungs
from slopewise.reports.trials import Rungs, metric_of

MAX_HISTORY = 240
"""Evaluations of a job, evenly spread over its run: twenty for each block of the curve in the live table."""

KEPT_PASSES = 1000
"""Of which the CPU is averaged: hours."""


@dataclass(slots=True)
class JobTally:
    """One job so far, also after its end. None: not seen yet."""

    objective: Objective = "min"
    first_level: float | None = None
    last_level: float | None = None
    """The first and the last that were finite."""
    finite: bool = True
    """False: what was reported after them was NaN or infinite."""
    history: tuple[float, ...] = ()
    steps_total: float | None = None
    steps_planned: float | None = None
    reported_state: JobState | None = None
    """Its last reported state."""
    pace_seconds: float | None = None
    """The last measured time of a response or a step."""
    cpu_seconds: float = 0.0
    """Used so far, as of the last pass."""
    most_cores: float = 0.0
    """Used in any interval; 0: not measured."""
    resizes: int = 0
    """Resizes that were applied."""
    fair_seconds: tuple[float, float, float] | None = None
    """When it would have ended under fair sharing: expected, at the earliest, at the latest; Unix seconds."""
    missing: str | None = None
    """Why it has reported no loss, if that is known."""
    rungs: Rungs = field(default_factory=dict)
    """Of a trial of a study: its losses at the rungs of ASHA, under policies that read raw points."""
    metric: str = ""
    """Of its losses; empty: not seen yet."""
    ended_at_seconds: float = 0.0
    ended_series: str = ""
    """Of the last loss, which it has handed over at its end."""
    _stride: int = 1
    _skipped: int = 0

    def see(self, series: JobSeries) -> None:
        """Add the job's series of one reading."""
        self.steps_total = series.steps_total if series.steps_total is not None else self.steps_total
        self.steps_planned = series.steps_planned if series.steps_planned is not None else self.steps_planned
        self.reported_state = series.state or self.reported_state
        if (seen := series.evaluation) is None:
            return
        is_over = seen.sampled_at_seconds <= self.ended_at_seconds
        # The window of a job that is over gets shorter, until it holds nothing of what was not finite.
        self.objective, self.finite = seen.objective, seen.finite and (self.finite or not is_over)
        if is_over and self.ended_series and seen.series.startswith("training_loss{"):
            self.metric = metric_of(self.ended_series, seen.objective)  # what was handed over says no direction
            return
        level, self.metric = seen.level, metric_of(seen.series, seen.objective)
        self._remember(level)
        if math.isfinite(level):
            self.first_level = level if self.first_level is None else self.first_level
            self.last_level = level

    def end(self, losses: Mapping[str, float], at_seconds: float) -> None:
        """The losses by stage that it has handed over at its end: a reading has the median of the last scrapes."""
        self.ended_at_seconds, self.ended_series = at_seconds, ""
        for stage in STAGE_PREFERENCE:
            series = f'training_loss{{stage="{stage}"}}'
            if stage in losses and self.metric in ("", metric := metric_of(series, self.objective)):
                self.metric, self.last_level = metric, losses[stage]
                self.ended_series = series
                self.first_level = self.last_level if self.first_level is None else self.first_level
                return

    def _remember(self, level: float) -> None:
        """Keep every `_stride`-th level; beyond `MAX_HISTORY`, drop every second of them."""
        self._skipped += 1
        if self.history and self._skipped < self._stride:
            return
        self._skipped = 0
        self.history = (*self.history, level)
        if len(self.history) > MAX_HISTORY:
            self.history, self._stride = self.history[::2], 2 * self._stride


class RunTally:
    """All of a run, by the name of the job."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobTally] = {}
        self.capacity_cores = 0.0
        """Mean over the last passes with jobs."""
        self._passes = 0
        self.resizes_applied = 0
        self.withheld = 0
        self.moves_applied = 0

    def count(self, report: PassReport) -> None:
        """Add the outcomes of one pass."""
        self.resizes_applied += report.count("applied")
        self.withheld += len(report.results.withheld_of(Resize, Place, Migrate))
        self.moves_applied += sum(move.result == "applied" for move in report.results.of(Place, Migrate))
        for outcome in report.results.of(Resize):
            if outcome.result == "applied":
                self.of(outcome.decision.job_uid).resizes += 1
        trials = {job.uid: job for job in report.snapshot.jobs if job.objectives.study} if report.snapshot else {}
        if report.snapshot is not None and report.snapshot.jobs:
            self._count_capacity(report.snapshot.nodes)
        for job in report.snapshot.jobs if report.snapshot else ():
            if job.usage is not None and job.usage.cpu_seconds_total is not None:
                self.of(job.name).cpu_seconds = job.usage.cpu_seconds_total
            if job.missing_evaluation is not None:
                self.of(job.name).missing = job.missing_evaluation.message
        for uid, known in report.decisions.memory.jobs.items() if report.decisions else ():
            if known.paces:
                self.of(uid).pace_seconds = known.paces[-1].seconds
                self.of(uid).most_cores = max(self.of(uid).most_cores, known.paces[-1].cores or 0.0)
            points = known.points if uid in trials else None
            if points and points.unit == "steps" and (plan := self.of(uid).steps_planned or trials[uid].steps_planned):
                self.of(uid).rungs = {**self.of(uid).rungs, **at_rungs(unpacked(points), plan)}

    def _count_capacity(self, nodes: Sequence[Node]) -> None:
        """What others use is not known in the first seconds: such a pass counts only until there is another one."""
        known, capacity = all(node.available_cores is not None for node in nodes), math.fsum(map(capacity_cores, nodes))
        if known or not self._passes:
            self._passes = min(self._passes + known, KEPT_PASSES)
            self.capacity_cores += (capacity - self.capacity_cores) / max(1, self._passes)

    def see(self, reading: PrometheusReading) -> None:
        """Add one reading, also of jobs that have ended in the last seconds."""
        for key, series in reading.jobs.items():
            self.of(key.pod).see(series)

    def recall(
        self,
        earlier: Mapping[str, EarlierJob],
        records: Mapping[str, JobRecord],
        known: Mapping[str, JobMemory],
        now_seconds: float,
    ) -> None:
        """Take in the first losses of an earlier session's jobs, and the last of those that ended while none ran."""
        for name, job in earlier.items():
            record, command = records.get(name), job.started.command
            if record is None or command is None or record.started_at_seconds is None:
                continue  # another job of this name
            if name in known and (record.finished_at_seconds is None or record.ended_unseen):
                self.of(name).first_level = known[name].levels.first
            if record.ended_unseen:
                self.of(name).end(last_losses(command.log_path), now_seconds)

    def of(self, name: str) -> JobTally:
        """The tally of one job, created if missing."""
        return self.jobs.setdefault(name, JobTally())
