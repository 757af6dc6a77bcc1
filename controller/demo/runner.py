"""Runs one policy after another over the same jobs, and gathers what the comparison and the report need.

Comes after `jobs.py` (what to run) and before `table.py` and `report.py` (how to show it). Figures come from where they
are really measured: completion times from the processes, CPU from their cgroups, losses from Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from controller.adapters.supervisor import JobRecord
from controller.control import allotted_cores
from controller.demo.results import Curves, DecisionRow, JobResult, RunResult
from controller.errors import ActuationError, DataSourceError
from controller.jobs import JobSpec
from controller.model import CpuControl, Objective, PassReport, Resize
from controller.session import Session, SessionPlan, Workshop
from controller.settings import TrainingPolicy

SAMPLE_SECONDS = 1.0
"""CPU curves have one point a second; fewer would hide what a five-second interval does."""

MOST_POINTS = 2000
"""Of a loss curve: a run of a day would have 86,400, and no screen shows them."""

GOOD_ENOUGH_RATIO = 0.9
"""Time to 90 %: nine tenths of a job's total improvement."""

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Progress:
    """The run at this moment, for whoever shows it."""

    session: Session
    policy: str
    elapsed_seconds: float


@dataclass(slots=True)
class CpuSampler:
    """Reads each running job's CPU counter and allotment once a second."""

    session: Session
    control: CpuControl
    rows: list[tuple[float, str, float, float]] = field(default_factory=list)
    _next_seconds: float = 0.0

    def sample(self, elapsed_seconds: float) -> None:
        """Take a sample when a second has passed since the last one."""
        if elapsed_seconds < self._next_seconds:
            return
        self._next_seconds = elapsed_seconds + SAMPLE_SECONDS
        limiter = self.session.workshop.limiter
        jobs = [job.name for job in self.session.supervisor.running()]
        try:
            used = {name: limiter.usage(name).cpu_seconds_total for name in jobs}
            allotted = self._allotted_cores(jobs)
        except ActuationError:  # one of them ended in between: the next second has the rest
            return
        self.rows += [(elapsed_seconds, name, used[name] or 0.0, allotted[name]) for name in jobs]

    def _allotted_cores(self, jobs: Sequence[str]) -> dict[str, float]:
        """A limit is cores already; a request is a share of the node among the jobs that run."""
        node, limiter = self.session.node, self.session.workshop.limiter
        held = {name: limiter.read(name) for name in jobs}
        if self.control == "limits":
            whole = round(node.cpu_cores * 1000)
            return {name: (each.limit_millicores or whole) / 1000 for name, each in held.items()}
        total = sum(each.request_millicores for each in held.values()) or 1
        return {name: each.request_millicores / total * node.cpu_cores for name, each in held.items()}

    def cpu_cores(self) -> dict[str, Points]:
        """CPU used per job in cores, each point the mean since the one before."""
        frame = self._frame()
        by_job = frame.groupby("job")
        frame["cores"] = by_job["cpu"].diff() / by_job["at"].diff()
        return _points(frame.dropna(subset="cores"), "cores")

    def allotted_cores(self) -> dict[str, Points]:
        """CPU allotted per job in cores."""
        return _points(self._frame(), "allotted")

    def _frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=["at", "job", "cpu", "allotted"])


def _points(frame: pd.DataFrame, column: str) -> dict[str, Points]:
    return {
        str(job): list(zip(rows["at"].tolist(), rows[column].tolist(), strict=True))
        for job, rows in frame.groupby("job")
    }


def run_policy(
    workshop: Workshop,
    policy: TrainingPolicy,
    jobs: Sequence[JobSpec],
    *,
    ours: bool,
    show: Callable[[Progress], None],
) -> RunResult:
    """Run all jobs under one policy to their ends; DataSourceError when Prometheus cannot tell their losses."""
    name = policy.spec.policy.name
    with Session(workshop, SessionPlan(policy, jobs, namespace=name, ours=ours)) as session:
        sampler = CpuSampler(session, session.control)

        def tick() -> None:
            elapsed = session.clock.now() - session.supervisor.started_at_seconds
            sampler.sample(elapsed)
            show(Progress(session, name, elapsed))

        session.run(tick)
        return _gather(session, sampler, name)


def _gather(session: Session, sampler: CpuSampler, policy: str) -> RunResult:
    start, end = session.supervisor.started_at_seconds, session.clock.now()
    losses, steps, note = _losses_and_steps(session, start, end)
    reports = session.all_reports()
    objectives = _objectives(reports)
    used, allotted = sampler.cpu_cores(), sampler.allotted_cores()
    records = session.supervisor.records
    return RunResult(
        policy=policy,
        jobs=[_job_result(record, start, losses.get(name, []), steps.get(name)) for name, record in records.items()],
        curves={
            name: Curves(objectives.get(name, "min"), losses.get(name, []), used.get(name, []), allotted.get(name, []))
            for name in records
        },
        decisions=decision_rows(reports, start, session.control),
        passes=session.loop.passes,
        passes_held=session.loop.passes_held,
        resizes_applied=sum(report.count("applied") for report in reports),
        withheld=sum(len(report.withheld) for report in reports),
        controller_cpu_ratio=session.loop.cpu_seconds / max(end - start, 1e-9),
        node_cores=session.node.cpu_cores,
        control=session.control,
        note="; ".join([note] * bool(note) + [_failure(each) for each in records.values() if each.state == "failed"]),
    )


def _failure(record: JobRecord) -> str:
    """Why a job failed: the last line of what it wrote, which for Python is the exception."""
    last_line = (record.last_words.splitlines() or ["it wrote nothing"])[-1]
    return f"{record.spec.name} failed with status {record.exit_status}: {last_line}"


def _losses_and_steps(session: Session, start: float, end: float) -> tuple[dict[str, Points], dict[str, float], str]:
    """Loss curves and steps of all jobs, and what to say when Prometheus cannot tell them.

    Completion times come from the processes: a Prometheus that died at the end must not cost the whole comparison.
    """
    step = max(session.plan.scrape_interval_seconds, (end - start) / MOST_POINTS)
    try:
        losses = _relative(session.reader.range_curve(start, end, step), start)
        return losses, session.reader.last_values("training_steps_total", end, end - start), ""
    except DataSourceError as error:
        return {}, {}, f"no losses: {error}"


def _relative(curves: dict[str, Points], start_seconds: float) -> dict[str, Points]:
    return {name: [(at - start_seconds, value) for at, value in points] for name, points in curves.items()}


def _objectives(reports: Sequence[PassReport]) -> dict[str, Objective]:
    """Which way each job's evaluation improves, as the last pass that saw it knew."""
    found: dict[str, Objective] = {}
    for report in reports:
        for job in report.snapshot.jobs if report.snapshot else ():
            if job.evaluation is not None:
                found[job.name] = job.evaluation.objective
    return found


def _job_result(record: JobRecord, start: float, losses: Points, steps: float | None) -> JobResult:
    arrived = (record.arrived_at_seconds or start + record.spec.arrive_seconds) - start
    finished = None if record.finished_at_seconds is None else record.finished_at_seconds - start
    return JobResult(
        name=record.spec.name,
        arrived_seconds=arrived,
        finished_seconds=finished,
        jct_seconds=None if finished is None else finished - arrived,
        time_to_90_seconds=None,  # known once every policy has run: see with_times_to_quality
        steps=None if steps is None else round(steps),
        loss_first=losses[0][1] if losses else None,
        loss_last=losses[-1][1] if losses else None,
        cpu_seconds=record.cpu_seconds,
        state=record.state,
    )


def with_times_to_quality(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs with each job's time to 90 % of its total improvement, from its first to its best value in any run.

    The same work gives the same losses whatever the policy, but each run is scraped at other moments: measured
    against its own first sample, a run that was first scraped a second later would have another target.
    """
    targets = {name: _target(name, runs) for run in runs for name in run.curves}
    return [
        replace(run, jobs=[_with_time(job, run.curves[job.name], targets[job.name]) for job in run.jobs])
        for run in runs
    ]


def _target(name: str, runs: Sequence[RunResult]) -> float | None:
    """The value that is 90 % of the way, counted downwards; None when the job never improved."""
    curves = [falling for run in runs if name in run.curves and (falling := _falling(run.curves[name]))]
    if not curves:
        return None
    first = max(points[0][1] for points in curves)
    best = min(value for points in curves for _, value in points)
    return first - GOOD_ENOUGH_RATIO * (first - best) if best < first else None


def _falling(curves: Curves) -> Points:
    """The evaluation over time, turned over where it is to rise."""
    sign = -1.0 if curves.objective == "max" else 1.0
    return [(at, sign * value) for at, value in curves.loss]


def _with_time(job: JobResult, curves: Curves, target: float | None) -> JobResult:
    reached = next((at for at, value in _falling(curves) if target is not None and value <= target), None)
    return job if reached is None else replace(job, time_to_90_seconds=reached - job.arrived_seconds)


def decision_rows(reports: Sequence[PassReport], start_seconds: float, control: CpuControl) -> list[DecisionRow]:
    """Resizes with what became of them, and changes of class without one, in the order in which they happened.

    Figures are what a job may use: of a weight, the share of the node that it gives once all of the pass is done.
    """
    rows: list[DecisionRow] = []
    classes: dict[str, str | None] = {}
    for report in reports:
        if report.decisions is None or report.snapshot is None:
            continue
        before = allotted_cores(report.snapshot, control)
        changes = [*(each.resize for each in report.outcomes), *(each.resize for each in report.withheld)]
        wanted = {resize.job_uid: resize.to_millicores for resize in changes}
        after = allotted_cores(report.snapshot, control, wanted)
        at = report.taken_at_seconds - start_seconds
        outcomes: dict[str, tuple[Resize | None, str]]
        outcomes = {each.resize.job_uid: (each.resize, each.result) for each in report.outcomes}
        outcomes |= {each.resize.job_uid: (each.resize, f"withheld: {each.guard}") for each in report.withheld}
        for uid, known in report.decisions.memory.jobs.items():
            resize, outcome = outcomes.get(uid, (None, ""))
            if resize is None and known.job_class == classes.get(uid):
                continue
            classes[uid] = known.job_class
            rows.append(
                DecisionRow(
                    at,
                    uid,
                    known.job_class,
                    round(1000 * before[uid]) if resize else None,
                    round(1000 * after[uid]) if resize else None,
                    outcome,
                    _why(uid, resize, report),
                )
            )
    return rows


def _why(uid: str, resize: Resize | None, report: PassReport) -> str:
    """The guard's reason for what was withheld, else the policy's."""
    for withheld in report.withheld:
        if withheld.resize.job_uid == uid:
            return withheld.reason
    if resize is not None:
        return resize.reason
    return report.decisions.reasons.get(uid, "") if report.decisions else ""
