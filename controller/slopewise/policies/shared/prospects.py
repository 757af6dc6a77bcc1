"""What `marginal` expects of jobs: work done and left, in core-seconds, and the shape of their curves.

A job with a plan (planned steps, and known core-seconds a step) has a posterior around it. Of one without, the work is
a guess over decades (`marginal_unplanned.py`). Work is carried on from the last sample to now at the CPU granted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slopewise.estimators import curves, raw_points
from slopewise.estimators.curves import Floats
from slopewise.estimators.workload_classes import expected
from slopewise.model import Arrival, ClassFigures, ClusterSnapshot, CurveFit, Job, JobMemory, MemoryState

DEFAULT_WORK = 150.0
"""Core-seconds of a job where nothing at all is known, of no job. Only ratios to it matter."""

PLAN_SIGMA, TIMED_PLAN_SIGMA = 0.3, 0.15
"""In log W: of a plan, and of one whose steps were timed."""

TIMED_STEPS = 20.0

SCALE_OF_DONE = 4.0
"""The grid of rates of a job without a plan is laid by so much of the work it has done."""

SAME_SCALE_RATIO = 1.6
"""That grid is laid again once the work has grown by so much."""


@dataclass(slots=True)
class Prospect:
    """One job, in core-seconds."""

    job: Job
    done: float
    """Carried on to now."""
    fit: CurveFit
    unit: float
    """Core-seconds a unit of work of its points."""
    planned: bool
    sigma: float = PLAN_SIGMA
    total: float = math.inf
    """The posterior mean of its work; of a job without a plan, what is expected."""
    low: float = math.inf
    """It needs more with 90 % probability."""
    high: float = math.inf
    rate: float = 0.0
    """b, a core-second."""
    index: float = 0.0
    growth_per_cpu_second: float | None = None
    """Measured, of the range, where its curve predicts poorly."""
    quantiles: Sequence[float] = field(default_factory=tuple)

    @property
    def left(self) -> float:
        """Expected."""
        return max(0.0, self.total - self.done)

    @property
    def low_left(self) -> float:
        """More is left with 90 % probability."""
        return max(0.0, self.low - self.done)

    @property
    def high_left(self) -> float:
        """Less is left with 90 % probability."""
        return max(0.0, self.high - self.done)

    @property
    def most_left(self) -> float:
        """What may be left: what is expected by a plan, else with the 90 % of `high_left`."""
        return self.left if self.planned else self.high_left

    def work_to(self, improvement: float) -> float:
        """Core-seconds from now on until this part of its total improvement; 0 where it is behind."""
        if not math.isfinite(self.total) or self.rate <= 0:
            return self.left
        x = self.rate * self.total
        falling = (math.exp(-min(x, 700.0)), (1 + x) ** -0.5, 1 / (1 + x))[self.fit.family]
        whole = 1.0 - falling
        remaining = max(1e-12, 1.0 - improvement * whole)
        at = (-math.log(remaining), remaining**-2 - 1, 1 / remaining - 1)[self.fit.family] / self.rate
        return max(0.0, min(at, self.total) - self.done)


@dataclass(frozen=True, slots=True)
class Prospects:
    """All jobs that run, by uid, and what they have in common."""

    by_uid: Mapping[str, Prospect]
    median_work: float
    """W-bar, of the jobs with a plan; a default without any."""


def prospects(
    snapshot: ClusterSnapshot, memory: MemoryState, jobs: Sequence[Job], granted: Mapping[str, float]
) -> Prospects:
    """Of these jobs, which run; `granted`: the cores that each was given last."""
    found = [_prospect(job, memory.jobs[job.uid], snapshot, memory.classes, granted.get(job.uid, 0.0)) for job in jobs]
    _refit(found, memory)
    _look_ahead([each for each in found if each.planned])
    works = [each.total for each in found if each.planned]
    median = float(np.median(works)) if works else DEFAULT_WORK
    return Prospects({each.job.uid: each for each in found}, median)


def _prospect(
    job: Job, known: JobMemory, snapshot: ClusterSnapshot, classes: Mapping[str, Sequence[ClassFigures]], cores: float
) -> Prospect:
    per_step, timed = _cpu_per_step(job, known, classes)
    done = _done(job, known, per_step, snapshot.taken_at_seconds, cores)
    growth = known.growth
    measured = None
    if growth is not None and growth.cpu_cores:
        measured = growth.progress_per_second / growth.cpu_cores
    steps = known.points is not None and known.points.unit == "steps"
    plan = job.steps_planned
    if per_step and plan is not None and math.isfinite(plan) and plan > 0 and job.steps_total is not None:
        unit = per_step if steps else 1.0
        scale = plan if steps else plan * per_step
        return Prospect(
            job, done, _fit_of(known, scale), unit, planned=True,
            sigma=TIMED_PLAN_SIGMA if timed else PLAN_SIGMA, growth_per_cpu_second=measured,
        )  # fmt: skip
    unit = per_step if steps and per_step else 1.0
    scale = SCALE_OF_DONE * max(done, snapshot.scrape_interval_seconds) / unit
    before = known.curve
    if before is not None and 1 / SAME_SCALE_RATIO < scale / before.scale < SAME_SCALE_RATIO:
        scale = before.scale
    return Prospect(job, done, _fit_of(known, scale), unit, planned=False, growth_per_cpu_second=measured)


def _fit_of(known: JobMemory, scale: float) -> CurveFit:
    """The stored fit where it is of this grid, else one that says nothing, until it is fitted."""
    fit = known.curve
    return fit if fit is not None and not curves.is_due(fit, fit.points, scale) else curves.unknown(scale)


def _cpu_per_step(
    job: Job, known: JobMemory, classes: Mapping[str, Sequence[ClassFigures]]
) -> tuple[float | None, bool]:
    """Core-seconds a step, and whether enough of its own steps were timed."""
    points = known.points
    if points is not None and (own := points.cpu_per_step) is not None:
        return own, (points.steps or 0.0) - (points.steps_first or 0.0) >= TIMED_STEPS
    record = expected(job.workload_class, classes)
    if record is not None and record.line[1] > 0:
        return record.line[1], False
    return None, False


def _done(job: Job, known: JobMemory, per_step: float | None, now_seconds: float, cores: float) -> float:
    """Core-seconds of work done by now."""
    points, usage = known.points, job.usage
    counted_at = usage.sampled_at_seconds if usage is not None else now_seconds
    since = min(max(0.0, now_seconds - counted_at), 120.0)
    if per_step and job.steps_total is not None:
        return job.steps_total * per_step + cores * since
    used = points.cpu_seconds if points is not None else (usage.cpu_seconds_total if usage is not None else None)
    return max(0.0, used or 0.0) + cores * since


def _refit(found: Sequence[Prospect], memory: MemoryState) -> None:
    """Fit the jobs whose points have grown by enough, all together."""
    due = []
    for each in found:
        points = memory.jobs[each.job.uid].points
        if points is not None and points.count and curves.is_due(each.fit, points.count, each.fit.scale):
            due.append((each, points))
    fits = curves.fit(
        [raw_points.unpacked(points) for _, points in due],
        [_sign(each.job) for each, _ in due],
        [each.fit.scale for each, _ in due],
    )
    for (each, _), fit in zip(due, fits, strict=True):
        each.fit = fit


def _sign(job: Job) -> float:
    return -1.0 if job.evaluation is not None and job.evaluation.objective == "max" else 1.0


def _look_ahead(planned: Sequence[Prospect]) -> None:
    if not planned:
        return
    scores, family, scale = curves.unpacked([each.fit for each in planned])
    units, done = _array([each.unit for each in planned]), _array([each.done for each in planned])
    ahead = curves.outlook(scores, family, scale, _array([each.sigma for each in planned]), done / units)
    for at, each in enumerate(planned):
        each.total, each.low, each.high = (
            float(figure[at] * units[at]) for figure in (ahead.total, ahead.low, ahead.high)
        )
        each.rate = float(ahead.rate[at] / units[at])


def _array(figures: Sequence[float]) -> Floats:
    return np.array(figures, np.float64)


def expected_work(arrival: Arrival, classes: Mapping[str, Sequence[ClassFigures]], median_work: float) -> float:
    """What an arriving job is expected to need, in core-seconds: by its class, else as much as others."""
    known = expected(arrival.workload_class, classes)
    steps = None if known is None else (arrival.steps_planned or known.steps_planned)
    return median_work if known is None or not steps else max(1e-3, steps * known.line[1])
