"""Figures of runs that several settings share: winners, moves, jitter, targets; each is taken from one run or a `Pair`.

`claims.py` holds those that compare completion times.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from replication.claims import Pair, ended_in_both
from slopewise.simulator.results import measures
from slopewise.simulator.world.model import JobOutcome, MoveKind, RunOutcome, SimJob, Stay

# --- winners ---------------------------------------------------------------------------------------------------


def winners_mean_reduction_seconds(pair: Pair) -> float | None:
    """By how many seconds the jobs that ended sooner did so, on average; None when there were none."""
    won = [before - after for before, after in ended_in_both(pair) if after < before]
    return fmean(won) if won else None


def winners_mean_reduction(pair: Pair) -> float | None:
    """The same as the mean of each winner's reduction, in per cent."""
    won = [100 * (1 - after / before) for before, after in ended_in_both(pair) if after < before]
    return fmean(won) if won else None


# --- moves -----------------------------------------------------------------------------------------------------


def moves_of(kind: MoveKind) -> Callable[[RunOutcome], float]:
    """How many moves of this kind there were."""
    return lambda run: float(len(_moved(run, kind)))


def first_move_seconds(kind: MoveKind) -> Callable[[RunOutcome], float | None]:
    """When the first move of this kind was, from the first arrival; None when there was none."""

    def figure(run: RunOutcome) -> float | None:
        first = min((stay.from_seconds for stay in _moved(run, kind)), default=None)
        return None if first is None else first - min(job.arrived_seconds for job in run.jobs)

    return figure


def rebalanced_to_idle(run: RunOutcome) -> float:
    """How many rebalancing moves went to a node on which no job was at that moment, save others moved there too."""
    stays = [stay for job in run.jobs for stay in job.stays]
    return float(sum(_was_idle(stay, stays) for stay in _moved(run, "rebalanced")))


def idle_received_percent(run: RunOutcome) -> float:
    """100 where an idle node received jobs, else 0: its mean over seeds is a per cent of the runs."""
    return 100.0 if rebalanced_to_idle(run) else 0.0


def _moved(run: RunOutcome, kind: MoveKind) -> list[Stay]:
    return [stay for job in run.jobs for stay in job.stays if stay.came == kind]


def _was_idle(moved: Stay, stays: list[Stay]) -> bool:
    at = moved.from_seconds
    return not any(stay.node == moved.node and stay.from_seconds < at < stay.to_seconds for stay in stays)


def most_on_a_node(run: RunOutcome) -> float:
    """The most jobs that one node had at the same time."""
    stays = [stay for job in run.jobs for stay in job.stays]
    # As a stay begins, so does the largest number there; one that ends at that moment is over.
    return float(
        max(
            (
                sum(
                    other.node == stay.node and other.from_seconds <= stay.from_seconds < other.to_seconds
                    for other in stays
                )
                for stay in stays
            ),
            default=0,
        )
    )


def migrations(run: RunOutcome) -> float:
    """All moves of running jobs."""
    return float(run.migrations_total)


def resizes(run: RunOutcome) -> float:
    """All changes of a job's CPU."""
    return float(run.resizes_total)


# --- CPU -------------------------------------------------------------------------------------------------------


def cpu_jitter_percent(run: RunOutcome) -> float | None:
    """Standard deviation over mean of a job's CPU, mean over jobs, in per cent; None without jobs."""
    ratio = measures.cpu_jitter_ratio(run)
    return None if ratio is None else 100 * ratio


def growth_efficiency_sum(run: RunOutcome) -> float:
    """Eq. 4.3: the jobs' growth efficiencies together, mean over time."""
    return run.growth_efficiency_sum


def allocated_cpu_used_percent(run: RunOutcome) -> float | None:
    """Of the CPU that the jobs were allocated, the part that they used, in per cent."""
    ratio = measures.allocated_cpu_used_ratio(run)
    return None if ratio is None else 100 * ratio


# --- quality and promises --------------------------------------------------------------------------------------


time_to_90_seconds = measures.over_jobs("time_to_90_seconds")
time_to_target_seconds = measures.over_jobs("time_to_target_seconds")
time_to_deliverable_seconds = measures.over_jobs("time_to_deliverable_seconds")


def best_target_reduction(pair: Pair) -> float | None:
    """The largest reduction of any job's time to its target, in per cent; None where no job reached one twice."""
    before = {job.name: job.target_seconds for job in pair.base.jobs}
    changes = [
        100 * (1 - (job.target_seconds - job.arrived_seconds) / (base - job.arrived_seconds))
        for job in pair.ours.jobs
        if job.target_seconds is not None and (base := before[job.name]) is not None and base > job.arrived_seconds
    ]
    return max(changes, default=None)


def of_jobs(
    wanted: Callable[[SimJob], bool], figure: Callable[[JobOutcome], float | None]
) -> Callable[[Pair], float | None]:
    """By how many per cent the mean over these jobs of a figure is less than the baseline's."""

    def value(pair: Pair) -> float | None:
        names = {job.name for job in pair.instance.jobs if wanted(job)}
        before, after = (
            [known for job in run.jobs if job.name in names and (known := figure(job)) is not None]
            for run in (pair.base, pair.ours)
        )
        return 100 * (1 - fmean(after) / fmean(before)) if before and after else None

    return value


def within_an_even_share(pair: Pair) -> float:
    """How many objectives of served models could be met with an even share of the CPU and without contention."""
    cores = sum(node.cpu_cores for node in pair.instance.nodes) / len(pair.instance.jobs)
    needed = [
        job.request_cpu_seconds / job.qoe_seconds
        for job in pair.instance.jobs
        if job.request_cpu_seconds is not None and job.qoe_seconds is not None
    ]
    return float(sum(each <= cores for each in needed))
