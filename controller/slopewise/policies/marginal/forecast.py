"""What `marginal` expects of each job, in core-seconds: work done and left, the milestones of its curve, its index.

A job with a plan (planned steps, and known core-seconds a step) needs what that says. One without needs what jobs of
its class have needed, else ten times the length of its curve (10 / b), and 1.25 times what it has done at least; its
guarantee is for less, because that is a guess. A job beyond its plan is one without.

Worked example: a curve that has fallen to 1/e after 40 core-seconds is expected to end at 400.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import msgspec

from slopewise.estimators import raw_points
from slopewise.estimators.workload_classes import expected
from slopewise.model import Arrival, ClassFigures, ClusterSnapshot, Job, JobMemory, MemoryState
from slopewise.policies.marginal import curve

DEFAULT_WORK = 150.0
"""Core-seconds where nothing is known of any job; only ratios to it matter."""

SIZE_EXPONENT = 0.35
"""How much jobs that need little are preferred: 0: by the value of the next piece alone; 1: nearly shortest first."""

LEAST_PIECE_RATIO = 1 / 400
"""Of the median work: a shorter piece counts as this long, so that the last step to a milestone is not worth most."""

WORK_A_LENGTH, LEAST_WORK_RATIO = 10.0, 1.25
"""Without a plan: work expected, in lengths of the curve (a plan's typical kappa), and at least, of the work done."""

SURE_RATIO, LAG_RATIO, LAG_INTERVALS = 0.7, 1.2, 4.0
"""Without a plan the guarantee is for so much of the work expected, but no more than a fifth beyond the work done and
what one core does in four intervals: a job waits no longer than that for a guess. Jobs of hours that wait until fair
sharing has given six times the work done end up to 4 times later than there, with this 1.3 times."""

CLOSE_TO_PLAN = 1.05
"""A plan is never expected to end before so many times the work done."""

SCALE_OF_DONE = 4.0
"""Without a plan, and before its curve has bent, a job is expected to need so many times the work done."""

REFIT_RATIO = 1.15
"""A curve is fitted again once it has so many times the points."""

MAX_CARRIED_SECONDS = 120.0
"""Work is carried on from the last count to now at the CPU granted, for no longer than this."""


class State(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a job (`JobMemory.state`)."""

    at_seconds: float
    served: float
    """Core-seconds that fair sharing would have given it by then."""
    work: float
    """After which it ends under fair sharing; 0: not known, so it goes on."""
    cores: float
    """What it can use."""
    done: float
    points: int = 0
    """At the last fit of its curve."""
    rate: float = 0.0
    """b of that fit, a core-second or a step; 0: not fitted."""
    over: bool = False
    """It has ended, and `work` is what it has done."""


def state_of(text: str) -> State | None:
    """What is remembered; None: nothing, or of another version, and then the job begins as if it had come now."""
    try:
        return msgspec.json.decode(text, type=State) if text else None
    except msgspec.DecodeError:
        return None


@dataclass(slots=True)
class Forecast:
    """One job that reports a loss, in core-seconds."""

    job: Job
    done: float
    planned: bool
    total: float = math.nan
    sure: float = 0.0
    """What the guarantee is for; no more than `total`."""
    kappa: float = curve.TYPICAL_KAPPA
    index: float = 0.0
    points: int = 0
    rate: float = 0.0
    unit: float = 1.0
    """Core-seconds a unit of work of its points."""

    @property
    def left(self) -> float:
        """Expected."""
        return max(0.0, self.total - self.done)

    @property
    def sure_left(self) -> float:
        """Of what the guarantee is for."""
        return max(0.0, self.sure - self.done)

    def work_to(self, improvement: float) -> float:
        """From now on until this part of its total improvement; 0 where it is behind."""
        whole = 1.0 - math.exp(-self.kappa)
        return max(0.0, -math.log(1.0 - improvement * whole) / self.kappa * self.total - self.done)


Weights = tuple[float, float, float]
"""What 90 % and 99 % of the improvement and the end of a job are worth."""


def forecasts(
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    jobs: Sequence[Job],
    states: Mapping[str, State],
    weights: Weights,
    interval_seconds: float,
) -> dict[str, Forecast]:
    """Of these jobs, by uid."""
    found = {job.uid: _begun(job, memory, states.get(job.uid), snapshot.taken_at_seconds) for job in jobs}
    _refit(list(found.values()), memory)
    for each in found.values():
        name = each.job.workload_class
        if not each.planned:
            ended = [one.work for one in memory.classes.get(name, ()) if one.work] if name else []
            each.total = fmean(ended) if ended else WORK_A_LENGTH * each.unit / each.rate if each.rate > 0 else math.nan
    usual = median_work(found.values())
    for each in found.values():
        each.sure = each.total
        if not each.planned:
            each.total = max(usual if math.isnan(each.total) else each.total, LEAST_WORK_RATIO * each.done)
            most = LAG_RATIO * each.done + LAG_INTERVALS * interval_seconds
            each.sure = max(each.done, min(SURE_RATIO * each.total, most))
        if each.rate > 0:
            each.kappa = each.rate / each.unit * each.total
        each.index = index_of(each, weights, usual)
    return found


def _begun(job: Job, memory: MemoryState, state: State | None, now_seconds: float) -> Forecast:
    """A job with its work done, its plan, and the last fit of its curve."""
    known = memory.jobs[job.uid]
    points, per_step = known.points, _cpu_per_step(job, known, memory.classes)
    done = max(_done(job, known, per_step, now_seconds), 1e-6)
    plan = (job.steps_planned or 0.0) * (per_step or 0.0) if job.steps_total is not None else 0.0
    planned = done < plan < math.inf
    each = Forecast(job, done, planned, max(plan, CLOSE_TO_PLAN * done) if planned else math.nan)
    if state is not None:
        each.points, each.rate = state.points, state.rate
    if per_step and points is not None and points.unit == "steps":
        each.unit = per_step
    return each


def _refit(found: Sequence[Forecast], memory: MemoryState) -> None:
    """Fit the curves of the jobs whose points have grown by enough, all together."""
    due = []
    for each in found:
        points = memory.jobs[each.job.uid].points
        if points is not None and points.count and (each.rate <= 0 or points.count >= REFIT_RATIO * each.points):
            due.append((each, points, (each.total if each.planned else SCALE_OF_DONE * each.done) / each.unit))
    kappas = curve.fit(
        [raw_points.unpacked(points) for _, points, _ in due],
        [_sign(each.job) for each, _, _ in due],
        [scale for _, _, scale in due],
    )
    for (each, points, scale), kappa in zip(due, kappas, strict=True):
        each.points, each.rate = points.count, kappa / scale


def median_work(found: Iterable[Forecast]) -> float:
    """Of the jobs whose work is known."""
    works = [each.total for each in found if not math.isnan(each.total)]
    return median(works) if works else DEFAULT_WORK


def index_of(each: Forecast, weights: Weights, usual: float) -> float:
    """The most value a core-second of any milestone ahead, more for a job that needs less than `usual`."""
    reached, best = 0.0, 0.0
    for work, value in zip((each.work_to(0.9), each.work_to(0.99), each.left), weights, strict=True):
        if work > 0:
            reached += value
            best = max(best, reached / max(work, LEAST_PIECE_RATIO * usual))
    return each.job.objectives.weight * math.pow(usual / max(each.total, 1e-9), SIZE_EXPONENT) * best


def _cpu_per_step(job: Job, known: JobMemory, classes: Mapping[str, Sequence[ClassFigures]]) -> float | None:
    """Core-seconds a step: its own, else those of its class."""
    if known.points is not None and (own := known.points.cpu_per_step) is not None:
        return own
    record = expected(job.workload_class, classes)
    return record.line[1] if record is not None and record.line[1] > 0 else None


def _done(job: Job, known: JobMemory, per_step: float | None, now_seconds: float) -> float:
    """Core-seconds of work done by now."""
    points, usage = known.points, job.usage
    since = 0.0 if usage is None else min(max(0.0, now_seconds - usage.sampled_at_seconds), MAX_CARRIED_SECONDS)
    carried = (known.wanted_cores or 0.0) * since
    if per_step and job.steps_total is not None:
        return job.steps_total * per_step + carried
    used = points.cpu_seconds if points is not None else None if usage is None else usage.cpu_seconds_total
    return max(0.0, used or 0.0) + carried


def _sign(job: Job) -> float:
    return -1.0 if job.evaluation is not None and job.evaluation.objective == "max" else 1.0


def expected_work(arrival: Arrival, classes: Mapping[str, Sequence[ClassFigures]], otherwise: float) -> float:
    """What an arriving job is expected to need, in core-seconds: by its class, else as much as others."""
    known = expected(arrival.workload_class, classes)
    steps = None if known is None else arrival.steps_planned or known.steps_planned
    return otherwise if known is None or not steps else max(1e-3, steps * known.line[1])
