"""Loss curves of simulated jobs: how the evaluation falls over the work, for each kind of `Curve`.

A user writes the figures of a shape (`curve: {exponential: {k: 8}}`), the world asks it while it runs. Each is scaled
to fall from 1 at the start to 0 at its best, so that one number means the same for every job; a `Recorded` one does so
on average.
`at` is asked for every observation (millions of times in a day of 1,000 jobs): plain floats, no numpy. `reached` is its
exact inverse, in closed form, and takes the first place where a curve passes a value more than once. Both take ratios
from 0 to 1.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from slopewise.config.validation import Document
from slopewise.simulator.world.model import Curve

FLATTEST = 1e-6
"""A power law or a sigmoid that is flatter has no fall left in a float that could be scaled to 1."""

STEEPEST = 30.0
"""Above it a float hardly distinguishes the end of an exponential from its limit."""

MAX_POWER, MAX_INVERSE = 10.0, 1e6

Rate = Annotated[float, Field(ge=FLATTEST, le=STEEPEST)]
"""Steepness over the whole work."""

Inner = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A fraction that is neither the start nor the end."""

POWER_SCALE = 100.0
"""A power law needs a unit: its first hundredth of the work is one unit, so that it neither starts at infinity nor is
flat."""

SMOOTH_PART = 0.5
"""Between two drops, half of the way down is gone smoothly; the drop does the rest."""

SMOOTH_RATE = 5.0
"""How steep the smooth part is: 63 % of it in the first fifth of its length, as a training that meets a plateau."""


LAST_PART = 0.05
"""A recorded loss ends at the mean of so much of its points: the last of them alone is noise."""

ROUNDING = 1e-12
"""1 - 0.9 is a little less than 0.1: a recorded part that is flat at 0.1 must count as 90 % all the same."""


def _fallen(x: float, rate: float) -> float:
    """The part, 0 to 1, that an exponential of this rate has fallen at x of its length."""
    return math.expm1(-rate * x) / math.expm1(-rate)


def _when_fallen(part: float, rate: float) -> float:
    """The inverse of `_fallen`."""
    return _ratio(-math.log1p(part * math.expm1(-rate)) / rate)


def _ratio(x: float) -> float:
    """Logarithms and powers round: an inverse that is 1.0000000000000067 is 1, no inverse leads out of 0 to 1."""
    return min(max(x, 0.0), 1.0)


class Exponential(Document):
    """`e^(-kx)`, scaled."""

    k: Rate

    def at(self, done_ratio: float) -> float:
        """The evaluation, 1 to 0."""
        return 1.0 - _fallen(done_ratio, self.k)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact."""
        return _when_fallen(improvement_ratio, self.k)


class Power(Document):
    """`(1 + 100x)^(-b)`, scaled: a long tail."""

    b: float = Field(ge=FLATTEST, le=MAX_POWER)

    def at(self, done_ratio: float) -> float:
        """The evaluation, 1 to 0."""
        last = (1.0 + POWER_SCALE) ** -self.b
        return float(((1.0 + POWER_SCALE * done_ratio) ** -self.b - last) / (1.0 - last))

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact."""
        last = (1.0 + POWER_SCALE) ** -self.b
        raw = last + (1.0 - improvement_ratio) * (1.0 - last)  # never 0, however small the last value is
        return _ratio(float((raw ** (-1.0 / self.b) - 1.0) / POWER_SCALE))


class Inverse(Document):
    """`1 / (1 + ax)`, scaled."""

    a: float = Field(gt=0.0, le=MAX_INVERSE)

    def at(self, done_ratio: float) -> float:
        """The evaluation, 1 to 0."""
        return 1.0 - done_ratio * (1.0 + self.a) / (1.0 + self.a * done_ratio)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact."""
        return improvement_ratio / (1.0 + self.a * (1.0 - improvement_ratio))


class Sigmoid(Document):
    """`1 / (1 + e^(k(x - center)))`, scaled: a plateau, then a late drop."""

    center: Inner
    k: Rate

    def _raw(self, x: float) -> float:
        return 1.0 / (1.0 + math.exp(self.k * (x - self.center)))

    def at(self, done_ratio: float) -> float:
        """The evaluation, 1 to 0."""
        first, last = self._raw(0.0), self._raw(1.0)
        return (self._raw(done_ratio) - last) / (first - last)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact."""
        first, last = self._raw(0.0), self._raw(1.0)
        raw = first - improvement_ratio * (first - last)
        return _ratio(self.center + math.log(1.0 / raw - 1.0) / self.k)


class Steps(Document):
    """Drops to `to_levels` at the fractions `at_ratios`, as when the learning rate is cut; falls smoothly in between.

    Worked example: at 0.33 to 0.5 and at 0.66 to 0.2 it falls smoothly from 1 to 0.75, drops to 0.5, falls to 0.35,
    drops to 0.2, and falls smoothly to 0.
    """

    at_ratios: tuple[Inner, ...] = Field(alias="at")
    to_levels: tuple[Inner, ...] = Field(alias="to")

    @model_validator(mode="after")
    def _only_falls(self) -> Steps:
        at, to = self.at_ratios, self.to_levels
        if len(at) != len(to) or not at:
            raise ValueError(f"at has {len(at)} values and to has {len(to)}; give one level for each drop")
        if tuple(sorted(set(at))) != at or tuple(sorted(set(to), reverse=True)) != to:
            raise ValueError("at must increase and to must decrease from drop to drop; sort them")
        return self

    def _piece(self, number: int) -> tuple[float, float, float, float]:
        """Where a smooth piece begins and ends, and from which level it falls to which before the next drop."""
        last = number == len(self.at_ratios)
        begin = self.at_ratios[number - 1] if number else 0.0
        end = 1.0 if last else self.at_ratios[number]
        high = self.to_levels[number - 1] if number else 1.0
        low = 0.0 if last else high - SMOOTH_PART * (high - self.to_levels[number])
        return begin, end, high, low

    def at(self, done_ratio: float) -> float:
        """The evaluation, 1 to 0."""
        begin, end, high, low = self._piece(bisect_right(self.at_ratios, done_ratio))
        return high - (high - low) * _fallen((done_ratio - begin) / (end - begin), SMOOTH_RATE)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact; a level that a drop jumps over is reached at the drop."""
        level = 1.0 - improvement_ratio
        # How many drops lie before: those to a level that is still above (or at) the one looked for.
        number = sum(to >= level for to in self.to_levels)
        begin, end, high, low = self._piece(number)
        if level < low:
            return end
        return min(begin + (end - begin) * _when_fallen((high - level) / (high - low), SMOOTH_RATE), end)


class Overfit(Document):
    """Falls to its best, 0, at `turn`, then rises in a line by `rise` until the end: a held-out loss."""

    k: Rate = 5.0
    turn: Inner
    rise: float = Field(gt=0.0, le=100.0)

    def at(self, done_ratio: float) -> float:
        """The evaluation: 1 to 0 at the turn, then up."""
        if done_ratio <= self.turn:
            return 1.0 - _fallen(done_ratio / self.turn, self.k)
        return self.rise * (done_ratio - self.turn) / (1.0 - self.turn)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse of the falling part, exact: the first time."""
        return self.turn * _when_fallen(improvement_ratio, self.k)


class Diverging(Document):
    """An exponential that is lost: NaN from `diverges_at` on."""

    diverges_at: Inner = Field(alias="at")
    k: Rate = 8.0

    def at(self, done_ratio: float) -> float:
        """The evaluation, or NaN."""
        return 1.0 - _fallen(done_ratio, self.k) if done_ratio < self.diverges_at else math.nan

    def reached(self, improvement_ratio: float) -> float | None:
        """Where it gets there; None when it diverges before."""
        x = _when_fallen(improvement_ratio, self.k)
        return x if x < self.diverges_at else None


@dataclass(frozen=True, slots=True)
class Points:
    """A curve through given points, straight between them; it may rise in between. `points` makes one."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    """Scaled so that the first is 1 and the lowest 0."""

    def at(self, done_ratio: float) -> float:
        """The evaluation; above 1 where it is worse than at the start."""
        right = min(max(bisect_right(self.xs, done_ratio), 1), len(self.xs) - 1)
        x0, x1, y0, y1 = self.xs[right - 1], self.xs[right], self.ys[right - 1], self.ys[right]
        return y0 + (y1 - y0) * (done_ratio - x0) / (x1 - x0)

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse, exact: the first place, and the beginning of a flat part."""
        level = 1.0 - improvement_ratio + ROUNDING
        if self.ys[0] <= level:
            return self.xs[0]
        for (x0, y0), (x1, y1) in pairwise(zip(self.xs, self.ys, strict=True)):
            if y1 <= level:
                return x0 + (x1 - x0) * (y0 - level) / (y0 - y1)
        return self.xs[-1]  # never: the lowest is 0


def points(pairs: Sequence[tuple[float, float]]) -> Points:
    """A curve from (fraction of work, evaluation) pairs; ValueError says why a curve is refused."""
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    if len(pairs) < 2 or xs[0] != 0.0 or xs[-1] != 1.0:
        raise ValueError("must begin at x = 0 and end at x = 1; write for example [[0, 2.3], [0.3, 0.4], [1, 0.1]]")
    if not all(map(math.isfinite, ys)):
        raise ValueError("a value is not finite; for a loss that is lost use diverging: {at}")
    for x0, x1 in pairwise(xs):
        if not x1 > x0:
            raise ValueError(f"x must increase, and {x1:g} follows {x0:g}; sort the points and drop repeated ones")
    first, best = ys[0], min(ys)
    if math.isinf(max(ys) - best):
        raise ValueError(f"the curve goes from {max(ys):g} to {best:g}, which is too far; divide its values")
    if first == best:
        raise ValueError(f"the curve never falls below {first:g}, its first value; one of its values must be below it")
    return Points(tuple(xs), tuple((y - best) / (first - best) for y in ys))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A loss as a training reported it, with its noise; `recorded` makes one.

    `at` is what was reported last before that fraction of the work, as a gauge shows it. `reached` goes by `trend`,
    which only falls: a single batch with a low loss has improved nothing.
    """

    xs: tuple[float, ...]
    levels: tuple[float, ...]
    """On a scale on which the trend falls from 1 to 0."""
    trend: Curve
    first: float
    best: float
    """Beginning and end of the trend, in units of the loss: it ends at its own offset, not at 0."""

    def at(self, done_ratio: float) -> float:
        """The level reported last, or the first one before there was any."""
        return self.levels[max(0, bisect_right(self.xs, done_ratio) - 1)]

    def reached(self, improvement_ratio: float) -> float | None:
        """The inverse of the trend, exact."""
        return self.trend.reached(improvement_ratio)


def recorded(pairs: Sequence[tuple[float, float]]) -> Recorded:
    """A recorded loss from (fraction of work, loss) pairs in order; ValueError says why a recording is refused.

    The trend is the falling curve with the least squared distance from the recorded points (isotonic regression), which
    has no parameter; it ends at the mean of the last `LAST_PART` of the points, which it never falls below.
    """
    xs, losses = tuple(x for x, _ in pairs), tuple(loss for _, loss in pairs)
    if len(pairs) < 2 or not 0.0 <= xs[0] < xs[-1] <= 1.0 or any(x1 <= x0 for x0, x1 in pairwise(xs)):
        raise ValueError("the fractions of the work must increase, between 0 and 1, over at least two points")
    if not all(map(math.isfinite, losses)):
        raise ValueError("a loss is not finite; leave out the points from there on")
    last = losses[-max(1, round(LAST_PART * len(losses))) :]
    best = sum(last) / len(last)
    blocks = [(level.middle, max(level.mean, best)) for level in falling(pairs)]
    first = blocks[0][1]
    if first <= best:
        raise ValueError(f"the loss does not fall: it ends at {best:g} on average")
    inner = [(place, mean) for place, mean in blocks if 0.0 < place < 1.0]
    trend = points([(0.0, first), *inner, (1.0, best)])
    return Recorded(xs, tuple((loss - best) / (first - best) for loss in losses), trend, first, best)


class Level(NamedTuple):
    """A run of points that is level: where it begins and ends, the mean of its places, and that of its losses."""

    begin: float
    end: float
    middle: float
    mean: float


def falling(pairs: Iterable[tuple[float, float]]) -> list[Level]:
    """Isotonic regression by pooling adjacent violators: the runs of points that are level, each below the last."""
    runs: list[tuple[float, float, float, int]] = []  # begin, sums of the fractions and of the losses, and how many
    ends: list[float] = []
    for x, loss in pairs:
        run = (x, x, loss, 1)
        while runs and runs[-1][2] * run[3] <= run[2] * runs[-1][3]:  # its mean is not above the new one's
            before = runs.pop()
            ends.pop()
            run = (before[0], before[1] + run[1], before[2] + run[2], before[3] + run[3])
        runs.append(run)
        ends.append(x)
    return [
        Level(begin, end, xs / count, losses / count)
        for (begin, xs, losses, count), end in zip(runs, ends, strict=True)
    ]
