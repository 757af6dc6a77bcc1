"""The moving average of a training loss, which leaves outliers out and counts them.

One finite loss of 1e12 (mixed precision, the first batch, a broken sample) would be in a plain average for some 1,400
steps, during which nothing can be told of the training.

A loss is usual while it is no further from the average than ten times the mean distance of the recent ones. Unusual
ones are held back: a usual one after fewer than ten shows that they were outliers; ten in a row are a change for good
(a learning rate that was cut, other data, a divergence), and the average starts again from them. Where more than one in
ten is unusual, the distances grow until they are usual. The cost of a usual loss is some additions; memory is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

REACH = 10.0
"""Times the mean distance: 8 standard deviations of normal noise, and the heavy tail of small batches is within it."""

SPREAD_WEIGHT = 0.02
"""Of the newest distance: the mean reaches back about 50 steps, whatever the decay of the average itself is."""

MIN_REACH_RATIO = 0.01
"""Of the average: where a loss hardly varies, one per cent more or less is nothing unusual."""

RUN = 10
"""Unusual losses in a row that are no outliers any more; and first losses that are looked at together."""

FEWEST = 3
"""Of two losses that are far apart, no rule decides which one is the outlier."""


class RobustAverage:
    """An exponential moving average of the usual losses; not thread-safe."""

    __slots__ = ("_decay", "_held_back", "_level", "_outliers", "_reach", "_share", "_spread", "_starting", "_weight")

    def __init__(self, decay: float) -> None:
        """`decay`: the weight of the past, 0 up to below 1."""
        self._decay = decay
        self._share = 1.0 - decay
        self._starting: list[float] | None = []
        self._held_back: list[float] = []
        self._outliers = 0
        self._level = self._weight = self._spread = 0.0
        self._reach = -1.0  # nothing is within it until the first losses are looked at

    def add(self, loss: float) -> None:
        """One more finite loss."""
        distance = loss - self._level
        if -self._reach < distance < self._reach:
            weight = self._weight = self._decay * self._weight + self._share
            level = self._level = self._level + self._share / weight * distance
            spread = self._spread
            spread += SPREAD_WEIGHT * ((distance if distance > 0.0 else -distance) - spread)
            self._spread = spread
            self._reach = REACH * spread + MIN_REACH_RATIO * (level if level > 0.0 else -level)
            if self._held_back:
                self._leave_out(len(self._held_back))
        else:
            self._add_unusual(loss)

    @property
    def level(self) -> float | None:
        """The average; None before the first loss."""
        if self._starting is None:
            return self._level
        return _average(_usual(self._starting), self._decay)[0] if self._starting else None

    @property
    def outliers(self) -> int:
        """How many losses were left out; one that may still be the beginning of a change is not counted yet."""
        if self._starting is None:
            return self._outliers
        return self._outliers + len(self._starting) - len(_usual(self._starting))

    def _add_unusual(self, loss: float) -> None:
        if self._starting is not None:
            self._starting.append(loss)
            if len(self._starting) == RUN:
                self._start(self._starting)
                self._starting = None
            return
        self._held_back.append(loss)
        if len(self._held_back) == RUN:
            self._start(self._held_back)
            self._held_back = []

    def _leave_out(self, count: int) -> None:
        """The losses that were held back were outliers. Each counts as far as it could be and still be usual."""
        self._held_back = []
        self._outliers += count
        self._spread *= (1.0 + SPREAD_WEIGHT * (REACH - 1.0)) ** count
        self._reach = REACH * self._spread + MIN_REACH_RATIO * abs(self._level)

    def _start(self, losses: Sequence[float]) -> None:
        """Begin with these, as if there had been none before."""
        usual = _usual(losses)
        self._outliers += len(losses) - len(usual)
        self._level, self._weight = _average(usual, self._decay)
        self._spread = sum(abs(loss - self._level) for loss in usual) / len(usual)
        self._reach = REACH * self._spread + MIN_REACH_RATIO * abs(self._level)


def _usual(losses: Sequence[float]) -> Sequence[float]:
    """Those that are not far from the median, as the median distance goes; at least one. Two are both usual."""
    if len(losses) < FEWEST:
        return losses
    median = sorted(losses)[len(losses) // 2]
    distances = [abs(loss - median) for loss in losses]
    reach = REACH * sorted(distances)[len(losses) // 2] + MIN_REACH_RATIO * abs(median)
    # The distance of two large floats may be infinite, and so may the reach.
    return [loss for loss, distance in zip(losses, distances) if distance < reach or distance == 0.0]


def _average(losses: Sequence[float], decay: float) -> tuple[float, float]:
    """The exponential moving average, and the weight of all that is in it: 1 after infinitely many.

    Divided by that weight, so that the first losses count as much as they should: with a decay of 0.98 and losses 4, 2
    the bare sum is 0.118, of a weight of 0.0396: 2.99, not 0.118.
    """
    level = weight = 0.0
    for loss in losses:
        weight = decay * weight + 1.0 - decay
        share = (1.0 - decay) / weight
        level = (1.0 - share) * level + share * loss  # the difference of two finite losses may be infinite
    return level, weight
