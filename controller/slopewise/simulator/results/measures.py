"""Measures of a simulated run, and their means over many seeds.

Each policy is set against `fair` over the same drawn jobs, seed by seed, because two seeds differ by more than two
policies do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.reports import estimates
from slopewise.reports.estimates import SAME_RATIO, Direction, Estimate, Verdict
from slopewise.simulator.world.model import JobOutcome, RunOutcome


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run: its name in JSON and CSV, and how a person reads it."""

    name: str
    label: str
    unit: Literal["s", ""]
    better: Direction | None
    """None: neither more nor less of it is good in itself."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy over one seed. A figure is None where it means nothing: no job got there, or none has a deadline."""

    values: Mapping[str, float | None]
    ratios_to_fair: Mapping[str, float | None]
    """None where the baseline has 0 or nothing."""
    jobs: int
    not_ended: int
    """Trainings that had not ended when the run did: they are in no mean of completion times."""

    def value(self, name: str) -> float | None:
        """The figure; so many jobs as never ran at the same time did so for 0 s."""
        return self.values.get(name, 0.0 if is_overlap(name) else None)


_OVERLAP = "overlap_seconds_"

MEASURES: tuple[Measure, ...] = (
    Measure("jct_mean_seconds", "Mean completion time", "s", "less"),
    Measure("jct_p99_seconds", "Completion time, 99th percentile", "s", "less"),
    Measure("makespan_seconds", "Makespan", "s", "less"),
    Measure("time_to_90_seconds", "Mean time to 90 % of improvement", "s", "less"),
    Measure("time_to_99_seconds", "Mean time to 99 % of improvement", "s", "less"),
    Measure("time_to_target_seconds", "Mean time to the target", "s", "less"),
    Measure("time_to_deliverable_seconds", "Mean time to the deliverable level", "s", "less"),
    Measure("worst_job_ratio", "Worst job, against fair runs", "", "less"),
    Measure("jobs_faster_ratio", "Part of jobs sooner than fair", "", "more"),
    Measure("jobs_later_ratio", "Part of jobs 5 % later than fair runs", "", "less"),
    Measure("qoe_satisfied_ratio", "Part of response objectives met", "", "more"),
    Measure("deadlines_met_ratio", "Part of deadlines met", "", "more"),
    Measure("tardiness_seconds", "Mean lateness past deadlines", "s", "less"),
    Measure("growth_efficiency_sum", "Sum of growth efficiencies", "", "more"),
    Measure("load_imbalance_ratio", "Imbalance of the nodes", "", "less"),
    Measure("cpu_jitter_ratio", "Jitter of a job's CPU", "", "less"),
    Measure("cpu_utilisation_ratio", "CPU used of all there was", "", "more"),
    Measure("allocated_cpu_used_ratio", "Part of the allocated CPU used", "", "more"),
    Measure("cpu_short_ratio", "Part of the time with CPU short", "", None),
    Measure("device_waited_ratio", "Part of the accelerators' time without a batch", "", "less"),
    Measure("migrations_total", "Migrations", "", None),
    Measure("resizes_total", "Resizes", "", None),
)


MATTERING = (
    "qoe_satisfied_ratio", "deadlines_met_ratio", "jct_mean_seconds", "time_to_90_seconds", "worst_job_ratio",
    "jct_p99_seconds", "makespan_seconds", "jobs_faster_ratio", "tardiness_seconds", "cpu_utilisation_ratio",
)  # fmt: skip
"""What one reads first: what owners asked for, when jobs end and become good, and who pays for it."""

LATE_RATIO = 0.05
"""A job is later that takes this much more than its mean in fair runs: 3 minutes an hour, which an owner notices."""

SHOWN = 6
"""Of these, where they are not 0."""


def is_overlap(name: str) -> bool:
    """`overlap_seconds_3` is the time in which exactly three jobs ran; a run of many jobs has dozens of these."""
    return name.startswith(_OVERLAP)


def measure(name: str) -> Measure:
    """The measure of this name."""
    if is_overlap(name):
        return Measure(name, f"Time with {name.removeprefix(_OVERLAP)} running", "s", None)
    return next(each for each in MEASURES if each.name == name)


def in_order(names: Iterable[str]) -> list[str]:
    """Names of measures in the order of `MEASURES`, the overlaps last and by their number of jobs."""
    place = {each.name: number for number, each in enumerate(MEASURES)}
    return sorted(names, key=lambda name: place[name] if name in place else _overlap_place(name))


def figures(run: RunOutcome, fair: RunOutcome, fair_jct_seconds: Mapping[str, float]) -> Figures:
    """Every measure of `run`, and its ratio to `fair`, the baseline's run over the same instance.

    `fair_jct_seconds`: each job's mean completion time over several fair runs that break ties otherwise. One fair run
    alone says little of a single job: which node it is put on changes its time by a factor of 1.3 to 1.7.
    """
    ours, base = _of_run(run, fair, fair_jct_seconds), _of_run(fair, fair, fair_jct_seconds)
    for name in base:
        ours.setdefault(name, 0.0)  # only a number of overlapping jobs can be missing
    ratios = {name: _ratio(value, base.get(name)) for name, value in ours.items()}
    ratios |= {name: _ratio(*_over_common_jobs(run, fair, each)) for name, each in _JOB_MEASURES.items()}
    ratios["jobs_later_ratio"] = None  # 0 under fair sharing in some seeds and not in others: each policy's own is read
    not_ended = sum(job.finished_seconds is None for job in _trainings(run))
    return Figures(ours, ratios, len(run.jobs), not_ended)


def over_jobs(name: str) -> Callable[[RunOutcome], float | None]:
    """The measure of this name that is taken of each job, over the jobs that got there; None when none did."""
    each = _JOB_MEASURES[name]
    return lambda run: _together(each, _known(run, each).values())


def cpu_jitter_ratio(run: RunOutcome) -> float | None:
    """Mean over jobs of the standard deviation over mean of a job's CPU; None without jobs."""
    return _mean(job.cpu_jitter_ratio for job in run.jobs)


def allocated_cpu_used_ratio(run: RunOutcome) -> float | None:
    """Of the CPU that all jobs together were allocated, the part that they used; None where nothing was allocated."""
    allocated = math.fsum(job.allocated_cpu_seconds for job in run.jobs)
    return _ratio(math.fsum(job.allocated_used_cpu_seconds for job in run.jobs), allocated)


def device_waited_ratio(run: RunOutcome) -> float | None:
    """Of the time in which jobs had accelerators and were at work, the part in which these waited for batches."""
    seconds = math.fsum(job.device_seconds for job in run.jobs)
    return _ratio(math.fsum(job.device_waited_seconds for job in run.jobs), seconds)


def verdict(of: Measure, ratio: Estimate) -> Verdict | None:
    """The verdict of a ratio to the baseline on this measure; None where there is none."""
    return None if of.better is None else estimates.verdict(of.better, ratio)


@dataclass(frozen=True, slots=True)
class _JobMeasure:
    """A figure of each job, and how the figures of all jobs become one."""

    of: Callable[[JobOutcome], float | None]
    together: Callable[[Sequence[float]], float] = fmean


def _since_arrival(job: JobOutcome, at_seconds: float | None) -> float | None:
    return None if at_seconds is None else at_seconds - job.arrived_seconds


def _percentile_99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))


_JOB_MEASURES: Mapping[str, _JobMeasure] = {
    "jct_mean_seconds": _JobMeasure(lambda job: job.jct_seconds),
    "jct_p99_seconds": _JobMeasure(lambda job: job.jct_seconds, _percentile_99),
    "time_to_90_seconds": _JobMeasure(lambda job: _since_arrival(job, job.at_90_seconds)),
    "time_to_99_seconds": _JobMeasure(lambda job: _since_arrival(job, job.at_99_seconds)),
    "time_to_target_seconds": _JobMeasure(lambda job: _since_arrival(job, job.target_seconds)),
    "time_to_deliverable_seconds": _JobMeasure(lambda job: _since_arrival(job, job.deliverable_seconds)),
}


def _of_run(run: RunOutcome, fair: RunOutcome, fair_jct_seconds: Mapping[str, float]) -> dict[str, float | None]:
    """All measures of one run, by name."""
    values: dict[str, float | None] = {name: over_jobs(name)(run) for name in _JOB_MEASURES}
    values |= {
        "makespan_seconds": _makespan_seconds(run),
        "worst_job_ratio": _worst_job_ratio(run, fair_jct_seconds),
        "jobs_faster_ratio": _jobs_faster_ratio(run, fair),
        "jobs_later_ratio": _mean(
            _is_later(job, fair_jct_seconds[job.name]) for job in run.jobs if job.name in fair_jct_seconds
        ),
        "qoe_satisfied_ratio": _mean(_satisfied(job) for job in run.jobs if job.qoe_seconds is not None),
        "deadlines_met_ratio": _mean(late == 0 for late in _lateness_seconds(run)),
        "tardiness_seconds": _mean(_lateness_seconds(run)),
        "growth_efficiency_sum": run.growth_efficiency_sum,
        "load_imbalance_ratio": run.load_imbalance_ratio,
        "cpu_jitter_ratio": cpu_jitter_ratio(run),
        "cpu_utilisation_ratio": run.cpu_utilisation_ratio,
        "allocated_cpu_used_ratio": allocated_cpu_used_ratio(run),
        "cpu_short_ratio": run.cpu_short_ratio,
        "device_waited_ratio": device_waited_ratio(run),
        "migrations_total": float(run.migrations_total),
        "resizes_total": float(run.resizes_total),
    }
    return values | {f"{_OVERLAP}{jobs}": seconds for jobs, seconds in sorted(run.overlap_seconds.items()) if jobs > 0}


def _trainings(run: RunOutcome) -> list[JobOutcome]:
    """The jobs that can end: a served model goes on for as long as the run does."""
    return [job for job in run.jobs if math.isfinite(job.work_cpu_seconds)]


def _known(run: RunOutcome, each: _JobMeasure) -> dict[str, float]:
    return {job.name: value for job in run.jobs if (value := each.of(job)) is not None}


def _together(each: _JobMeasure, values: Iterable[float]) -> float | None:
    known = list(values)
    return each.together(known) if known else None


def _over_common_jobs(run: RunOutcome, fair: RunOutcome, each: _JobMeasure) -> tuple[float | None, float | None]:
    """One figure of both runs over the jobs that got there in both.

    A policy under which the slowest job never ends has the better mean of those that did: that is no gain.
    """
    ours, base = _known(run, each), _known(fair, each)
    both = [name for name in ours if name in base]
    return _together(each, (ours[name] for name in both)), _together(each, (base[name] for name in both))


def _makespan_seconds(run: RunOutcome) -> float | None:
    """From the first arrival to the last end; None while a training had not ended."""
    trainings = _trainings(run)
    ends = [job.finished_seconds for job in trainings if job.finished_seconds is not None]
    if not ends or len(ends) < len(trainings):
        return None
    return max(ends) - min(job.arrived_seconds for job in trainings)


def _worst_job_ratio(run: RunOutcome, fair_jct_seconds: Mapping[str, float]) -> float | None:
    ratios = (_ratio(job.jct_seconds, fair_jct_seconds.get(job.name)) for job in run.jobs)
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _jobs_faster_ratio(run: RunOutcome, fair: RunOutcome) -> float | None:
    """Of the jobs that ended in either run, those that ended sooner in `run`, by 1 % or more of their time."""
    base = {job.name: job.jct_seconds for job in fair.jobs}
    pairs = [(job.jct_seconds, base.get(job.name)) for job in run.jobs]
    return _mean(_is_sooner(ours, fair_seconds) for ours, fair_seconds in pairs if (ours, fair_seconds) != (None, None))


def _is_later(job: JobOutcome, fair_seconds: float) -> bool:
    return job.jct_seconds is None or job.jct_seconds > fair_seconds * (1 + LATE_RATIO)


def _is_sooner(ours_seconds: float | None, fair_seconds: float | None) -> bool:
    if ours_seconds is None or fair_seconds is None:
        return fair_seconds is None
    return ours_seconds <= fair_seconds * (1 - SAME_RATIO)


def _satisfied(job: JobOutcome) -> bool:
    if job.qoe_seconds is None or job.response_seconds is None:
        return False
    return job.response_seconds <= job.qoe_seconds * (1 + QOE_TOLERANCE_RATIO)


def _lateness_seconds(run: RunOutcome) -> list[float]:
    """By how much each job with a deadline missed it, 0 if it did not.

    A job that had not ended when the run did counts as if it ended then: to leave it out would reward a policy that
    lets late jobs starve. It is left out only while its deadline is still to come.
    """
    ends = [(job.deadline_seconds, job.finished_seconds) for job in run.jobs]
    return [
        max(0.0, (run.ended_seconds if finished is None else finished) - deadline)
        for deadline, finished in ends
        if deadline is not None and (finished is not None or run.ended_seconds > deadline)
    ]


def _mean(values: Iterable[float]) -> float | None:
    known = [float(value) for value in values]
    return fmean(known) if known else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _overlap_place(name: str) -> int:
    return len(MEASURES) + int(name.removeprefix(_OVERLAP))
