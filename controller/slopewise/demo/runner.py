"""Runs one policy after another over the same jobs, and gathers what the comparison and the report need.

Figures come from where they are really measured: completion times from the processes, CPU from their cgroups, losses
from Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slopewise.adapters.local.job_record import JobRecord
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.demo.report.decisions import decision_rows
from slopewise.demo.report.job_moves import job_moves
from slopewise.demo.report.results import Curves, JobMove, JobResult, RunResult
from slopewise.demo.sampler import CpuSampler, OtherCpuSampler, Points
from slopewise.errors import DataSourceError, SlopewiseError
from slopewise.local.live import Progress
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.tally import JobTally
from slopewise.local.workshop import Workshop
from slopewise.model import Migrate, Objective, PassReport, Place, Resize

MAX_POINTS = 2000
"""Of a loss curve: a run of a day would have 86,400, and no screen shows them."""

GOOD_ENOUGH_RATIO = 0.9
"""Time to 90 %: nine tenths of a job's total improvement."""


def run_policy(
    workshop: Workshop,
    policy: TrainingPolicy,
    jobs: Sequence[JobSpec],
    *,
    ours: bool,
    nodes: int = 1,
    show: Callable[[Progress], None],
    namespace: str = "",
) -> RunResult:
    """Run all jobs under one policy to their ends, on this machine as so many nodes; SlopewiseError if it fails.

    `namespace`: names the folder of the jobs' output, and must differ among the runs of one workshop; else the policy.
    """
    name = policy.spec.policy_name
    failed: list[str] = []

    def end_when_it_fails(report: PassReport) -> None:
        if report.policy_failed:
            failed.append(report.held or name)
            session.stop()

    plan = SessionPlan(policy, jobs, namespace=namespace or name, ours=ours, nodes=nodes)
    with Session(workshop, plan, [end_when_it_fails]) as session:
        sampler, others = (
            CpuSampler(session, session.control),
            OtherCpuSampler(session.machine_cpu(frozenset().union(*(node.cpus for node in session.nodes)))),
        )

        def elapsed_seconds() -> float:
            return session.clock.now() - session.supervisor.started_at_seconds

        def tick() -> None:
            elapsed = elapsed_seconds()
            sampler.sample(elapsed)
            others.sample(elapsed)
            show(Progress(session, name, elapsed))

        session.run(tick)
        others.close(elapsed_seconds())
        if failed:
            raise SlopewiseError(f"{failed[0]}; there is nothing to compare.")
        return _gather(session, sampler, others, name)


def _gather(session: Session, sampler: CpuSampler, others: OtherCpuSampler, policy: str) -> RunResult:
    start, end = session.supervisor.started_at_seconds, session.clock.now()
    records = session.supervisor.records
    reports = session.all_reports()
    measured, note = _measured(session, start, end)
    objectives = _objectives(reports)
    used, allotted = sampler.cpu_cores(), sampler.allotted()
    curves = {
        name: Curves(
            objectives.get(name, "min"), measured.losses.get(name, []), used.get(name, []), allotted.get(name, [])
        )
        for name in records
    }
    return RunResult(
        policy=policy,
        jobs=[
            _job_result(
                record, start, curves[name], measured, job_moves(record, reports, start), session.tally.of(name)
            )
            for name, record in records.items()
        ],
        curves=curves,
        decisions=decision_rows(reports, start, session.control),
        passes=session.loop.passes,
        passes_held=session.loop.passes_held,
        resizes_applied=sum(report.count("applied") for report in reports),
        withheld=sum(len(report.results.withheld_of(Resize, Place, Migrate)) for report in reports),
        controller_cpu_ratio=session.loop.cpu_seconds / max(end - start, 1e-9),
        node_cores=sum(session.node_cores.values()),
        control=session.control,
        moves_applied=sum(move.result == "applied" for report in reports for move in report.results.of(Place, Migrate)),
        other_cpu_cores=others.use.other_cores if others.use else None,
        stolen_cpu_cores=others.use.stolen_cores if others.use else None,
        other_cpu_curve=others.curve,
        note="; ".join([note] * bool(note) + [message for each in records.values() if (message := trouble(each))]),
    )


def trouble(record: JobRecord) -> str:
    """Why a job failed: the last line of what it wrote, which for Python is the exception; empty for one that did not.

    One that left its work on the SIGTERM of a move has finished, but its figures are not comparable.
    """
    if record.state != "failed":
        return record.ended_by_move and f"{record.spec.name} {record.ended_by_move}"
    last_line = (record.last_output_lines.splitlines() or ["it wrote nothing"])[-1]
    return f"{record.spec.name} failed with status {record.exit_status}: {last_line}"


@dataclass(frozen=True, slots=True)
class _Measured:
    """The series of a run's jobs, by name; empty where Prometheus has none."""

    losses: dict[str, Points]
    steps: dict[str, float]


def _measured(session: Session, start: float, end: float) -> tuple[_Measured, str]:
    """The series at the end of a run, and a note when they cannot be read.

    Completion times come from the processes: a Prometheus that died at the end must not cost the whole comparison.
    """
    step = max(session.plan.scrape_interval_seconds, (end - start) / MAX_POINTS)
    try:
        losses = _relative(session.reader.range_curve(start, end, step), start)
        steps = session.reader.last_values("training_steps_total", end, end - start)
        return _Measured(losses, steps), ""
    except DataSourceError as error:
        return _Measured({}, {}), f"no losses: {error}"


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


def _job_result(
    record: JobRecord,
    start: float,
    curves: Curves,
    measured: _Measured,
    moves: tuple[JobMove, ...],
    tally: JobTally,
) -> JobResult:
    spec, objectives, losses = record.spec, record.spec.objectives, curves.loss
    arrived = (record.arrived_at_seconds or start + spec.arrive_seconds) - start
    finished = None if record.finished_at_seconds is None else record.finished_at_seconds - start
    steps = measured.steps.get(spec.name)
    return JobResult(
        name=spec.name,
        arrived_seconds=arrived,
        finished_seconds=finished,
        jct_seconds=None if finished is None else finished - arrived,
        time_to_90_seconds=None,  # known once every policy has run: see with_times_to_quality
        steps=None if steps is None else round(steps),
        loss_first=losses[0][1] if losses else None,
        loss_last=losses[-1][1] if losses else None,
        cpu_seconds=record.cpu_seconds,
        state=record.state,
        node=record.node,
        moves=moves,
        deadline_seconds=spec.deadline_seconds,
        qoe_seconds=objectives.qoe_seconds,
        pace_seconds=tally.pace_seconds,
        deliverable_level=objectives.deliverable_level,
        target_level=objectives.target_level,
        time_to_deliverable_seconds=time_to_level(curves, objectives.deliverable_level, arrived),
        time_to_target_seconds=time_to_level(curves, objectives.target_level, arrived),
        no_loss=tally.missing or "" if not losses else "",
    )


def time_to_level(curves: Curves, level: float | None, arrived_seconds: float) -> float | None:
    """Seconds from a job's arrival until its evaluation was first seen at the level or better; None: never."""
    if level is None:
        return None
    sign = _sign(curves)
    reached = next((at for at, value in curves.loss if sign * value <= sign * level), None)
    return None if reached is None else reached - arrived_seconds


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


def with_times_to_quality_over(rounds: Sequence[Sequence[RunResult]]) -> list[list[RunResult]]:
    """The same for the runs of several rounds: one target for each job in all of them."""
    every = iter(with_times_to_quality([run for of_round in rounds for run in of_round]))
    return [[next(every) for _ in of_round] for of_round in rounds]


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
    return [(at, _sign(curves) * value) for at, value in curves.loss]


def _sign(curves: Curves) -> float:
    return -1.0 if curves.objective == "max" else 1.0


def _with_time(job: JobResult, curves: Curves, target: float | None) -> JobResult:
    reached = next((at for at, value in _falling(curves) if target is not None and value <= target), None)
    return job if reached is None else replace(job, time_to_90_seconds=reached - job.arrived_seconds)
