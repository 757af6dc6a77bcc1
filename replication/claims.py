"""What a paper printed, as data: settings, the runs they compare, and how each figure is taken from two runs.

A figure is computed from a `Pair`, the baseline and a candidate over the same drawn instance. Percentages are
reductions: positive is better than the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from slopewise.config.training_policy import PlacementChoice
from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.model import CpuControl
from slopewise.simulator.world.model import Instance, RunOutcome

Unit = Literal["s", "%", "jobs", ""]


@dataclass(frozen=True, slots=True)
class Pair:
    """One seed: what was drawn, and what it gave under the baseline and under a candidate."""

    instance: Instance
    base: RunOutcome
    ours: RunOutcome


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy as the paper ran it."""

    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    interval_seconds: float = 20.0
    control: CpuControl = "requests"
    placement: PlacementChoice | None = None
    """A second policy, which chooses nodes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A column: a reading of what the paper leaves open, or a cause that is tried. Laid over every candidate."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    control: CpuControl | None = None
    interval_seconds: float | None = None
    scenario: Mapping[str, object] = field(default_factory=dict)
    """Keys of the scenario's `spec` as its file has them, which replace the file's: another world for both runs. The
    baseline then has figures of its own in this column."""


AS_READ = Variant("ours")

NOT_PRINTED: tuple[str, None] = ("not printed", None)
"""For a figure that is ours alone: its text and its number."""

Printed = float | tuple[float, float] | Literal["a gain"] | None
"""What ours is judged by: a figure, a range, or `a gain` where the paper says so in words alone. None: it is only
shown beside ours."""

AGAIN = " (printed a second time)"
"""Marks the second of two different figures that a paper prints for one setting; the pictures leave it out."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One printed figure, and how ours is taken. `candidate=None`: it is about the baseline alone."""

    what: str
    printed: str
    """As the page shows it, with its unit."""
    printed_value: Printed
    """None for completion times and makespans too: a scenario's speed is chosen for its baseline to come near the
    printed one, and then any policy that changes little agrees as well."""
    unit: Unit
    value: Callable[[Pair], float | None]
    candidate: Candidate | None = None
    neutral: float | None = None
    """The value at which nothing would be gained (0 %, half of the jobs), where more is better; None where the figure
    is no gain, or where chance alone makes it one: of many jobs the best always gains something."""


def gain(
    what: str,
    printed: str,
    printed_value: Printed,
    unit: Unit,
    value: Callable[[Pair], float | None],
    candidate: Candidate,
    neutral: float = 0.0,
) -> Claim:
    """A claim of which more is better; at `neutral` nothing is gained."""
    return Claim(what, printed, printed_value, unit, value, candidate, neutral)


@dataclass(frozen=True, slots=True)
class Setting:
    """One published experiment."""

    name: str
    title: str
    scenario: str
    baseline: Candidate
    claims: tuple[Claim, ...]
    variants: tuple[Variant, ...] = (AS_READ,)
    trace: bool = False
    """Its claims read the events of a run."""


# --- figures ---------------------------------------------------------------------------------------------------


def makespan_seconds(run: RunOutcome) -> float | None:
    """From the first arrival to the last end; None when a job did not end."""
    ends = [job.finished_seconds for job in run.jobs]
    if None in ends:
        return None
    return max(end for end in ends if end is not None) - min(job.arrived_seconds for job in run.jobs)


def jct_seconds(run: RunOutcome, name: str) -> float | None:
    """Completion time of one job."""
    return next(job.jct_seconds for job in run.jobs if job.name == name)


def jct_mean_seconds(run: RunOutcome) -> float | None:
    """Mean completion time."""
    times = [job.jct_seconds for job in run.jobs if job.jct_seconds is not None]
    return sum(times) / len(times) if times else None


def overlap_seconds(run: RunOutcome, jobs: int) -> float:
    """For how long at least this many jobs ran at the same time."""
    return sum(seconds for count, seconds in run.overlap_seconds.items() if count >= jobs)


def of_base(figure: Callable[[RunOutcome], float | None]) -> Callable[[Pair], float | None]:
    """A figure of the baseline's run."""
    return lambda pair: figure(pair.base)


def of_ours(figure: Callable[[RunOutcome], float | None]) -> Callable[[Pair], float | None]:
    """A figure of the candidate's run."""
    return lambda pair: figure(pair.ours)


def reduction(figure: Callable[[RunOutcome], float | None]) -> Callable[[Pair], float | None]:
    """By how many per cent the candidate has less than the baseline."""

    def value(pair: Pair) -> float | None:
        before, after = figure(pair.base), figure(pair.ours)
        return None if before is None or after is None or before == 0 else 100 * (1 - after / before)

    return value


def ended_in_both(pair: Pair) -> list[tuple[float, float]]:
    """Completion times in seconds, (baseline, candidate), of jobs that ended in both runs."""
    before = {job.name: job.jct_seconds for job in pair.base.jobs}
    pairs = [(before[job.name], job.jct_seconds) for job in pair.ours.jobs]
    return [(base, ours) for base, ours in pairs if base is not None and ours is not None]


def job_reductions(pair: Pair) -> list[float]:
    """By how many per cent each job's completion time fell, of jobs that ended in both runs."""
    return [100 * (1 - after / before) for before, after in ended_in_both(pair)]


def jobs_faster(pair: Pair) -> float:
    """How many jobs ended sooner, by any amount, which is how the papers count."""
    return float(sum(change > 0 for change in job_reductions(pair)))


def jobs_slower(pair: Pair) -> float:
    """How many jobs ended later, by any amount; a job that nothing happened to is neither faster nor slower."""
    return float(sum(change < 0 for change in job_reductions(pair)))


def best_reduction(pair: Pair) -> float | None:
    """The largest reduction of any job's completion time, in per cent; None when no job ended in both runs."""
    return max(job_reductions(pair), default=None)


def worst_increase(pair: Pair) -> float | None:
    """The largest increase of any job's completion time, in per cent; 0 when none grew, None when none can be told."""
    return max((max(-change, 0.0) for change in job_reductions(pair)), default=None)


def losers_mean_increase_seconds(pair: Pair) -> float | None:
    """By how many seconds the jobs that ended later did so, on average; None when there were none."""
    later = [after - before for before, after in ended_in_both(pair) if after > before]
    return sum(later) / len(later) if later else None


def qoe_satisfied(run: RunOutcome) -> float:
    """How many jobs answered within their objective, tolerance included, over the second half of the run."""
    return float(
        sum(
            job.response_seconds <= job.qoe_seconds * (1 + QOE_TOLERANCE_RATIO)
            for job in run.jobs
            if job.qoe_seconds is not None and job.response_seconds is not None
        )
    )


def qoe_best_subset(pair: Pair) -> float:
    """How many jobs an omniscient choice could satisfy: the cheapest first, until the node's CPU is used up.

    A response takes `request_cpu_seconds / cores`, slowed by contention; the cheapest are those that need least
    cores to be just within the tolerance.
    """
    others = len(pair.instance.jobs) - 1
    speed = 1 - pair.instance.physics.contention_ratio * others
    needs = sorted(
        job.request_cpu_seconds / (job.qoe_seconds * (1 + QOE_TOLERANCE_RATIO)) / speed
        for job in pair.instance.jobs
        if job.request_cpu_seconds is not None and job.qoe_seconds is not None
    )
    left, satisfied = sum(node.cpu_cores for node in pair.instance.nodes), 0
    for cores in needs:
        left -= cores
        satisfied += left >= 0
    return float(satisfied)


def deadlines_met(run: RunOutcome) -> float:
    """How many jobs ended by their deadlines."""
    return float(
        sum(
            job.finished_seconds is not None and job.finished_seconds <= job.deadline_seconds
            for job in run.jobs
            if job.deadline_seconds is not None
        )
    )


def more(figure: Callable[[RunOutcome], float]) -> Callable[[Pair], float | None]:
    """By how many per cent the candidate has more than the baseline; None when the baseline has none."""

    def value(pair: Pair) -> float | None:
        before = figure(pair.base)
        return None if before == 0 else 100 * (figure(pair.ours) / before - 1)

    return value
