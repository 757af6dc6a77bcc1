"""What `marginal` expects of each job, in core-seconds: work done and left, the milestones of its curve, its index.

A job with a plan (planned steps, and known core-seconds a step) needs what that says. One without needs what jobs of
its class have needed, else ten times the length of its curve (10 / b), and 1.25 times what it has done at least; its
guarantee is for less, because that is a guess. A job beyond its plan is one without.

Worked example: a curve that has fallen to 1/e after 40 core-seconds is expected to end at 400.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

import msgspec

from slopewise.estimators import raw_points
from slopewise.estimators.workload_classes import MAX_UNCOUNTED_SECONDS, expected
from slopewise.model import ClusterSnapshot, Job, MemoryState, Points
from slopewise.policies.marginal import curve

Weights = tuple[float, float, float]
"""What 90 % and 99 % of the improvement and the end of a job are worth."""

DEFAULT_WORK = 150.0
"""Core-seconds where nothing is known of any job; only ratios to it matter."""

SIZE_EXPONENT = 0.35
"""How much jobs that need little are preferred: 0: by the value of the next piece alone; 1: nearly shortest first."""

LEAST_PIECE_RATIO = 1 / 400
"""Of the median work: a shorter piece counts as this long, so that the last step to a milestone is not worth most."""

LEAST_WORK_RATIO = 1.25
"""Without a plan: the work expected at least, of the work done."""

SURE_RATIO, LAG_RATIO, LAG_INTERVALS = 0.7, 1.2, 4.0
"""Without a plan the guarantee is for so much of the work expected, but no more than a fifth beyond the work done and
what one core does in four intervals: a job waits no longer than that for a guess. Jobs of hours that wait until fair
sharing has given six times the work done end up to 4 times later than there, with this 1.3 times."""

CLOSE_TO_PLAN = 1.05
"""A plan is never expected to end before so many times the work done."""

SCALE_OF_DONE = 4.0
"""Without a plan, and before its curve has bent, a job is expected to need so many times the work done."""

REFIT_RATIO = 1.15
"""A curve is fitted again once it has so many times the points, and whenever it has fewer than at the last fit."""


class State(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of a job (`PolicyMemory.state`)."""

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


_STATE = msgspec.json.Decoder(State)


def state_of(text: str) -> State | None:
    """What is remembered; None: nothing, or of another version, and then the job begins as if it had come now."""
    try:
        return _STATE.decode(text) if text else None
    except msgspec.DecodeError:
        return None


class Forecast(msgspec.Struct, gc=False):
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

    def next_milestone(self) -> tuple[str, float]:
        """The nearest one that is not behind, and the work to it; its end where all others are."""
        for percent in (90, 99):
            if (work := self.work_to(percent / 100)) > 0:
                return f"{percent} % of its improvement", work
        return "its end", self.left


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
    _refit(found.values(), memory)
    for each in found.values():
        if not each.planned:
            record = memory.classes.get(each.job.workload_class, ()) if each.job.workload_class else ()
            ended = [one.work for one in record if one.work]
            length = curve.TYPICAL_KAPPA * each.unit / each.rate if each.rate > 0 else math.nan
            each.total = fmean(ended) if ended else length
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
    """A job with its work done, its plan, and the last fit of its curve.

    Core-seconds a step are its own, else those of its class; of a trial those of its class as long as its own have its
    start in them: they said 66 core-seconds of one of 22. Work is carried on from the last count to now.
    """
    known = memory.jobs[job.uid]
    points, usage, plan = known.points, job.usage, 0.0
    own = points.cpu_per_step if points else None
    if own is None or points is None or (job.objectives.study and not points.without_start):
        record = expected(job.workload_class, memory.classes)
        own = record.step_cpu_seconds if record else own
    per_step = own or 0.0
    if per_step > 0 and job.steps_total is not None:
        done, plan = job.steps_total * per_step, (job.steps_planned or 0.0) * per_step
    else:
        done = max(0.0, (points.cpu_seconds if points else usage.cpu_seconds_total if usage else None) or 0.0)
    since = now_seconds - usage.sampled_at_seconds if usage else 0.0
    done = max(done + (known.decided.wanted_cores or 0.0) * min(max(0.0, since), MAX_UNCOUNTED_SECONDS), 1e-6)
    planned = done < plan < math.inf
    each = Forecast(job, done, planned, max(plan, CLOSE_TO_PLAN * done) if planned else math.nan)
    if state is not None:
        each.points, each.rate = state.points, state.rate
    if per_step > 0 and points is not None and points.unit == "steps":
        each.unit = per_step
    return each


def _is_another(each: Forecast, points: Points) -> bool:
    """Whether there are that many more points, or fewer: they were averaged, or have begun again in another unit."""
    return not each.points <= points.count < REFIT_RATIO * each.points


def _refit(found: Iterable[Forecast], memory: MemoryState) -> None:
    """Fit the curves of the jobs whose points have grown by enough, all together."""
    known = [(each, points) for each in found if (points := memory.jobs[each.job.uid].points) and points.count]
    due = [(each, points) for each, points in known if each.rate <= 0 or _is_another(each, points)]
    scales = [(each.total if each.planned else SCALE_OF_DONE * each.done) / each.unit for each, _ in due]
    rises = [each.job.evaluation is not None and each.job.evaluation.objective == "max" for each, _ in due]
    kappas = curve.fit(
        [raw_points.unpacked(points) for _, points in due], [-1.0 if up else 1.0 for up in rises], scales
    )
    for (each, points), scale, kappa in zip(due, scales, kappas, strict=True):
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
