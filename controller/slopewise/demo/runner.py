"""Runs one policy after another over the same jobs, and gathers what the comparison and the report need.

Figures come from where they are really measured: completion times from the processes, CPU from their cgroups, losses
from Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from slopewise.adapters.local.job_record import JobRecord
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.demo.report.results import Curves, JobMove, JobResult, RunResult
from slopewise.demo.sampler import CpuSampler, OtherCpuSampler, Points
from slopewise.errors import DataSourceError, SlopewiseError
from slopewise.local.brought import brought
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Migrate, PassReport, Place, Resize

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
    show: Callable[[Session, str], None],
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
        sampler = CpuSampler(session)
        others = OtherCpuSampler(session.machine_cpu(frozenset().union(*(node.cpus for node in session.nodes))))

        def tick() -> None:
            sampler.sample(session.elapsed_seconds)
            others.sample(session.elapsed_seconds)
            show(session, name)

        session.run(tick)
        others.close()
        if failed:
            raise SlopewiseError(f"{failed[0]}; there is nothing to compare.")
        return _gather(session, sampler, others, name)


def _gather(session: Session, sampler: CpuSampler, others: OtherCpuSampler, policy: str) -> RunResult:
    start, end = session.supervisor.started_at_seconds, session.clock.now()
    records = session.supervisor.records
    reports = session.all_reports()
    losses, steps, note = _measured(session, start, end)
    used, tally = sampler.cpu_cores(), session.tally
    curves = {
        name: Curves(tally.of(name).objective, losses.get(name, []), used.get(name, []), sampler.allotted.get(name, []))
        for name in records
    }
    beside_fair = {name: brought(record, tally.of(name)) for name, record in records.items()}
    guards = Counter(each.guard for report in reports for each in report.results.withheld_of(Resize, Place, Migrate))
    jobs = [_job_result(record, session, curves[name], steps.get(name)) for name, record in records.items()]
    return RunResult(
        policy=policy,
        jobs=[replace(job, moves=job_moves(records[job.name], reports, start)) for job in jobs],
        curves=curves,
        passes=session.loop.passes,
        passes_held=session.loop.passes_held,
        resizes_applied=sum(report.count("applied") for report in reports),
        withheld=guards.total(),
        withheld_most=next((guard for guard, _ in guards.most_common(1)), ""),
        controller_cpu_ratio=session.loop.cpu_seconds / max(end - start, 1e-9),
        node_cores=sum(each.node.cpu_cores for each in session.nodes),
        control=session.control,
        moves_applied=sum(move.result == "applied" for report in reports for move in report.results.of(Place, Migrate)),
        other_cpu_cores=others.use.other_cores if others.use else None,
        fair_seconds={name: known.fair for name, known in beside_fair.items() if known is not None},
        note="; ".join(filter(None, [note, *map(trouble, records.values())])),
    )


def job_moves(record: JobRecord, reports: Iterable[PassReport], start_seconds: float) -> tuple[JobMove, ...]:
    """Each migration of one job, in order.

    The record has when processes ended and started, the passes when the job was seen at work again.
    """
    events = [each for report in reports for each in report.results.events if each.job_uid == record.spec.name]
    # The newest of each migration, by when it was decided: slightly before it was begun.
    known = {event.record.at_seconds: event.record for event in events}
    moves = []
    for made in record.moves:
        decided = [at for at in known if at <= made.asked_at_seconds]
        reported = known[max(decided)] if decided else None
        moves.append(
            JobMove(
                at_seconds=made.asked_at_seconds - start_seconds,
                from_node=made.from_node,
                node=made.node,
                saving_seconds=made.ended_at_seconds - made.asked_at_seconds,
                pause_seconds=reported.pause_seconds if reported else None,
                steps_lost=reported.steps_lost if reported else None,
            )
        )
    return tuple(moves)


def trouble(record: JobRecord) -> str:
    """Why a job failed: the last line of what it wrote, which for Python is the exception; empty for one that did not.

    One that left its work on the SIGTERM of a move has finished, but its figures are not comparable.
    """
    if record.state != "failed":
        return record.ended_by_move and f"{record.spec.name} {record.ended_by_move}"
    last_line = (record.last_output_lines.splitlines() or ["it wrote nothing"])[-1]
    return f"{record.spec.name} failed with status {record.exit_status}: {last_line}"


def _measured(session: Session, start: float, end: float) -> tuple[dict[str, Points], dict[str, float], str]:
    """Losses and steps of a run's jobs by name, and a note when they cannot be read.

    Completion times come from the processes: a Prometheus that died at the end must not cost the whole comparison.
    """
    step = max(session.plan.scrape_interval_seconds, (end - start) / MAX_POINTS)
    try:
        curves = session.reader.range_curve(start, end, step)
        steps = session.reader.last_values("training_steps_total", end, end - start)
    except DataSourceError as error:
        return {}, {}, f"no losses: {error}"
    return {name: [(at - start, value) for at, value in points] for name, points in curves.items()}, steps, ""


def _job_result(record: JobRecord, session: Session, curves: Curves, steps: float | None) -> JobResult:
    spec, objectives, losses = record.spec, record.spec.objectives, curves.loss
    start, tally = session.supervisor.started_at_seconds, session.tally.of(spec.name)
    arrived = (record.arrived_at_seconds or start + spec.arrive_seconds) - start
    finished = None if record.finished_at_seconds is None else record.finished_at_seconds - start
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
    sign = -1.0 if curves.objective == "max" else 1.0
    reached = (at for at, value in curves.loss if level is not None and sign * value <= sign * level)
    first = next(reached, None)
    return None if first is None else first - arrived_seconds


def with_times_to_quality(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs with each job's time to 90 % of its total improvement, from its first to its best value in any run.

    The same work gives the same losses whatever the policy, but each run is scraped at other moments: measured
    against its own first sample, a run that was first scraped a second later would have another target.
    """
    levels = {
        name: _level([run.curves[name] for run in runs if name in run.curves]) for run in runs for name in run.curves
    }

    def timed(job: JobResult, curves: Curves) -> JobResult:
        return replace(job, time_to_90_seconds=time_to_level(curves, levels[job.name], job.arrived_seconds))

    return [replace(run, jobs=[timed(job, run.curves[job.name]) for job in run.jobs]) for run in runs]


def _level(of_runs: Sequence[Curves]) -> float | None:
    """The value that is 90 % of the way; None when the job never improved."""
    curves = [curve for curve in of_runs if curve.loss]
    if not curves:
        return None
    worst, best = (min, max) if curves[0].objective == "max" else (max, min)
    first = worst(curve.loss[0][1] for curve in curves)
    last = best(value for curve in curves for _, value in curve.loss)
    return None if first == last else first - GOOD_ENOUGH_RATIO * (first - last)
