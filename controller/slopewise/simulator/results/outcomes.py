"""Builds the `RunOutcome` of a simulated run that has ended.

`engine.py` calls it at the end; `measures.py` turns it into figures.
"""

from __future__ import annotations

import math

from slopewise.simulator.world.model import JobOutcome, RunOutcome, Stay
from slopewise.simulator.world.observer import responses
from slopewise.simulator.world.running import AT_90, AT_99, DELIVERABLE, TARGET, Moment, RunningJob
from slopewise.simulator.world.world import World


def run_outcome(world: World, policy: str) -> RunOutcome:
    """The outcome of a run without a controller, whose figures are 0."""
    return RunOutcome(
        scenario=world.instance.scenario,
        policy=policy,
        seed=world.instance.seed,
        jobs=tuple(_job_outcome(running, world.now_seconds) for running in world.jobs),
        ended_seconds=world.now_seconds,
        overlap_seconds=dict(sorted(world.tally.overlap_seconds.items())),
        growth_efficiency_sum=0.0,
        load_imbalance_ratio=world.tally.load_imbalance_ratio,
        cpu_utilisation_ratio=_utilisation(world),
        cpu_short_ratio=world.tally.short.until(world.now_seconds),
        resizes_total=0,
        migrations_total=0,
        passes_total=0,
        withheld_total=0,
        events=tuple(world.events),
    )


def _job_outcome(running: RunningJob, ended_seconds: float) -> JobOutcome:
    job, reached = running.job, running.reached_seconds
    devices = 0 if job.accelerator is None else job.accelerator.count
    return JobOutcome(
        name=job.name,
        model=job.model,
        arrived_seconds=job.arrive_seconds,
        finished_seconds=running.finished_seconds,
        at_90_seconds=reached.get(AT_90),
        at_99_seconds=reached.get(AT_99),
        work_cpu_seconds=job.work_cpu_seconds,
        served_cpu_seconds=running.now.cpu_seconds,
        stays=_stays(running, ended_seconds),
        cpu_jitter_ratio=running.intervals.jitter_ratio,
        deadline_seconds=job.deadline_seconds,
        qoe_seconds=job.qoe_seconds,
        response_seconds=_response_seconds(running),
        target_seconds=reached.get(TARGET),
        deliverable_seconds=reached.get(DELIVERABLE),
        stopped=running.is_stopped,
        allocated_cpu_seconds=running.allocated.cpu_seconds,
        allocated_used_cpu_seconds=running.allocated.used_cpu_seconds,
        device_seconds=devices * running.now.active_seconds,
        device_waited_seconds=devices * running.now.waited_seconds,
    )


def _stays(running: RunningJob, ended_seconds: float) -> tuple[Stay, ...]:
    """Where it was; a job that still runs is where it is until the end of the run."""
    if running.node is None:
        return tuple(running.stays)
    return (*running.stays, running.present_stay(ended_seconds))


def _response_seconds(running: RunningJob) -> float | None:
    """Mean response time of a served model since half time; None when it answered nothing."""
    since = running.half_time or Moment(0.0, 0.0, 0.0, 0.0)
    before, after = responses(since, running.job), responses(running.now, running.job)
    if before is None or after is None or after.count_total <= before.count_total:
        return None
    return (after.seconds_total - before.seconds_total) / (after.count_total - before.count_total)


def _utilisation(world: World) -> float:
    """CPU used over CPU there was, from the first arrival to the end."""
    first = min((running.job.arrive_seconds for running in world.jobs), default=0.0)
    there_was = math.fsum(node.cpu_cores for node in world.nodes) * (world.now_seconds - first)
    used = math.fsum(running.now.cpu_seconds for running in world.jobs)
    return used / there_was if there_was > 0 else 0.0
