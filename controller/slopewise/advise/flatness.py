"""Says whether a loss has gone flat: from when on, and what it still gained, with an interval. Pure, on arrays.

A loss is flat if it gained next to nothing in the last half of its points' time. The gain is the slope of Theil and Sen
with Kendall's interval (Source: P. K. Sen, Journal of the American Statistical Association 63, 1968), which neither
spikes nor a few points mislead. It is compared with what the loss fell after the first tenth, because the first drop is
nearly all of a fall (a translation: from 11.8 to 2.9 in 5 % of its run). A rule on 160 recorded runs, half of them for
its bounds and half as a check, is in `replication/flat-runs.md`.

A loss on held-out data can be flat or rise while the metric of the training still improves (Source: C. Guo et al., On
Calibration of Modern Neural Networks, ICML 2017). While the training loss beside it falls, what it gains is not known.

Worked example: a loss is 0.57 at a tenth of 10 h and 0.3 from a quarter on. A gain of up to 3 % of 0.27 in the last
5 h, which is 0.008, is next to nothing: it is flat since 2.5 h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from slopewise.adapters.prometheus.history import JobHistory, Points
from slopewise.simulator.curves import LAST_PART, Level, falling

MIN_POINTS = 20
"""Fewer do not tell a trend from noise."""

MIN_TAIL_POINTS = 8
"""Of fewer the interval of a slope ends at the steepest pairs."""

TAIL_PART = 0.5
"""Of the time. Asked at every tenth of 35 runs before their targets, with three measures each, a last quarter is flat 8
times, a last half twice."""

EARLY_PART = 0.1
"""The drop before it is that of the first steps, and says nothing about what is left to learn."""

GAIN_OF_FALL_RATIO = 0.03
"""Next to nothing, of the fall after the first tenth. At 5 % it is 4 times, at 10 % 13."""

MOST_OF_LEVEL_RATIO = 0.1
"""Never more than this part of the level: where a loss fell by orders of magnitude, 3 % of the fall may be half of what
is left (speech recognition: 0.07 of 0.23)."""

REST_OF_LEVEL_RATIO = 0.006
"""Of the level: a loss that gained no more since its first tenth is flat too, whatever it fell by after that. Click
prediction gains least of all recorded runs: 1.2 % or more, and that takes it to its target. This is half of it."""

TAIL_POINTS = 100
"""Means of so many runs of points bound the pairs of a slope to 4,950."""

QUANTILE = 1.645
"""Of the normal distribution: 5 % of true gains are above the interval, and 5 % below."""

PLAN_DONE_RATIO = 0.95
"""Of the planned steps: before, the rest of a learning rate's schedule may lower the loss."""

MEDIAN_POINTS = 5
NOISES = 3.0
LEAST_IMPROVEMENT_RATIO = 0.01
"""A loss that falls by less than three times its usual step, or than 1 % of its first level, has not improved."""

State = Literal["converged", "flat", "planned", "fits", "falls", "rises", "unclear", "stalled"]
"""converged: flat, and its plan is done. flat: no plan is known. planned: flat so far, within its plan. fits: flat on
held-out data, while the training loss falls. unclear: the points show neither a fall nor flatness. stalled: it never
improved."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A falling curve through points, and how far they are from it."""

    levels: Sequence[Level]
    first: float
    best: float
    """The mean of the last twentieth of the points."""
    noise: float
    """The usual step from one point to the next."""

    @property
    def improves(self) -> bool:
        """Whether it falls by more than its noise."""
        return self.first - self.best > max(NOISES * self.noise, LEAST_IMPROVEMENT_RATIO * abs(self.first))


@dataclass(frozen=True, slots=True)
class Gain:
    """What a loss fell in the last half of its time, in its unit, with the ends of the interval; below 0: it rose."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Flatness:
    """What the points of a loss say."""

    state: State
    since: float
    """In the places' unit: from where on it is flat. Of another state the last place."""
    level: float
    """The median of the last half."""
    gain: Gain

    @property
    def is_flat(self) -> bool:
        """Whether it held what it held after `since` for nothing, as far as can be known."""
        return self.state in ("flat", "converged")


def flatness(
    losses: Points, plan_done_ratio: float | None = None, training_loss: Points | None = None
) -> Flatness | None:
    """Whether a loss that is better when it is lower is flat.

    `losses` has the shape (points, 2), places (such as seconds) in order and losses, all finite; `plan_done_ratio` is
    the part of the planned steps that is done, None where no plan is known; `training_loss` is the job's in the same
    shape, where `losses` are on held-out data. None: fewer than `MIN_POINTS` points, or than `MIN_TAIL_POINTS` in the
    last half.
    """
    if len(losses) < MIN_POINTS or losses[0, 0] >= losses[-1, 0]:
        return None
    first, last = losses[0, 0], losses[-1, 0]
    part = (losses[:, 0] - first) / (last - first)
    tail = losses[part >= 1 - TAIL_PART]
    if len(tail) < MIN_TAIL_POINTS:
        return None
    found = trend(losses)
    level, gain = float(np.median(tail[:, 1])), _gain(tail)
    if not found.improves:
        return Flatness("stalled", float(first), level, gain)
    around = np.abs(part - EARLY_PART) <= EARLY_PART / 2
    early = float(np.median(losses[around, 1]) if around.any() else np.interp(EARLY_PART, part, losses[:, 1]))
    enough = max(0.0, min(GAIN_OF_FALL_RATIO * (early - level), MOST_OF_LEVEL_RATIO * abs(level)))
    of_rest = max(0.0, min(GAIN_OF_FALL_RATIO * (found.first - level), REST_OF_LEVEL_RATIO * abs(level)))
    drop = level - found.best
    if _is_within(_gain(losses[part >= EARLY_PART]), drop, of_rest):
        enough = max(enough, of_rest)
    elif not _is_within(gain, drop, enough):
        falls = gain.low > 0 or drop > max(enough, NOISES * found.noise)
        return Flatness("falls" if falls else "rises" if gain.high < 0 else "unclear", float(last), level, gain)
    since = next((each.begin for each in found.levels if each.mean <= level + enough), last)
    still_fits = training_loss is not None and (beside := flatness(training_loss)) and beside.state == "falls"
    return Flatness("fits" if still_fits else _of_plan(plan_done_ratio), float(since), level, gain)


def of_job(job: JobHistory) -> Flatness | None:
    """The flatness of a job's loss over its plan; None: too few points to say."""
    beside = job.training_loss if job.objective == "min" else None  # an accuracy is a metric itself
    return flatness(falling_loss(job), job.steps.done_ratio, beside)


def trend(places: Points) -> Trend:
    """The trend of (place, loss) in order of the places."""
    values = without_spikes(places[:, 1])
    levels = falling(zip(places[:, 0].tolist(), values.tolist(), strict=True))
    best = float(values[-max(1, round(LAST_PART * len(values))) :].mean())
    return Trend(levels, levels[0].mean, best, float(np.median(np.abs(np.diff(values)))))


def falling_loss(job: JobHistory) -> Points:
    """Its evaluations as a loss that falls: an accuracy is shown by what it lacks of 1, or of its best."""
    if job.objective == "min" or not len(job.loss):
        return job.loss
    values = job.loss[:, 1]
    top = 1.0 if values.min() >= 0 and values.max() <= 1 else float(values.max())
    found: Points = np.column_stack((job.loss[:, 0], top - values))
    return found


def without_spikes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Running medians of five points, which two far-off ones in a row do not move; the ends lean on the inside."""
    padded = np.pad(values, MEDIAN_POINTS // 2, mode="reflect")
    found: NDArray[np.float64] = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_POINTS), axis=1)
    return found


def _is_within(gain: Gain, drop: float, most: float) -> bool:
    """Whether it gained next to nothing, surely, without a drop at its end and without a rise."""
    return max(gain.high, drop, -gain.mean) <= most


def _of_plan(done_ratio: float | None) -> State:
    if done_ratio is None:
        return "flat"
    return "converged" if done_ratio >= PLAN_DONE_RATIO else "planned"


def _gain(tail: Points) -> Gain:
    """What a straight line through the tail falls over it: the median of the slopes of all pairs, with an interval.

    Worked example: 50 points, 1,225 slopes: the interval ends at the slopes that are 98 ranks from the middle.
    """
    places, values = (
        np.array([piece.mean() for piece in np.array_split(tail[:, column], min(len(tail), TAIL_POINTS))])
        for column in (0, 1)
    )
    count = len(places)
    left, right = np.triu_indices(count, 1)
    slopes = np.sort((values[right] - values[left]) / (places[right] - places[left]))
    spread = QUANTILE * float(np.sqrt(count * (count - 1) * (2 * count + 5) / 18))
    low = slopes[max(int((len(slopes) - spread) / 2), 0)]
    high = slopes[min(int((len(slopes) + spread) / 2) + 1, len(slopes) - 1)]
    span = tail[-1, 0] - tail[0, 0]
    return Gain(float(-np.median(slopes) * span), float(-high * span), float(-low * span))
