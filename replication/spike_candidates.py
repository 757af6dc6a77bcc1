"""Ways to keep spikes out of averages and ranges: what was before, what was tried, what was taken.

`spikes.py` runs them over curves. A candidate sees one value after another and tells what it makes of it; what was
taken is the product's own code. Everything here is for losses, of which less is better: the product's tests hold the
mirror.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from slopewise.estimators import growth
from slopewise.model import (
    ClusterSnapshot,
    CpuAllocation,
    Evaluation,
    Job,
    JobState,
    MemoryState,
    Node,
    Usage,
)
from slopewise_exporter.average import MIN_REACH_RATIO, REACH, SPREAD_WEIGHT, RobustAverage

DECAY = 0.98
FLOOR_RATIO = 0.01


class Average(Protocol):
    """A moving average of training losses, step by step."""

    def add(self, loss: float) -> None: ...

    @property
    def level(self) -> float | None: ...


class Plain:
    """As it was: every loss counts."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, loss: float) -> None:
        self._sum = DECAY * self._sum + (1 - DECAY) * loss
        self._weight = DECAY * self._weight + 1 - DECAY

    @property
    def level(self) -> float | None:
        return self._sum / self._weight if self._weight else None


class Clipped:
    """Huber's: a loss counts as far as ten mean distances and no further; nothing is ever left out."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._spread = 0.0

    def add(self, loss: float) -> None:
        if self._level is None:
            self._level, self._spread = loss, abs(loss)
            return
        reach = REACH * self._spread + MIN_REACH_RATIO * abs(self._level)
        distance = max(-reach, min(reach, loss - self._level))
        self._level += (1 - DECAY) * distance
        self._spread += SPREAD_WEIGHT * (abs(distance) - self._spread)

    @property
    def level(self) -> float | None:
        return self._level


class MedianOf:
    """The median of the last 49 losses: as much memory, and a sort at every scrape."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=49)

    def add(self, loss: float) -> None:
        self._last.append(loss)

    @property
    def level(self) -> float | None:
        return statistics.median(self._last) if self._last else None


AVERAGES: Mapping[str, type[Plain | Clipped | MedianOf]] = {
    "plain, as it was": Plain,
    "clipped (Huber)": Clipped,
    "median of 49": MedianOf,
}


def averages() -> dict[str, Average]:
    """New instances of all of them; the last one is the exporter's own."""
    return {name: kind() for name, kind in AVERAGES.items()} | {"left out and counted (taken)": RobustAverage(DECAY)}


# --- ranges ------------------------------------------------------------------------------------------------------

Growths = Sequence[float | None]
"""Growth per interval at each look; None where nothing is told of that look."""


def _per_range(before: float, now: float, first: float, best: float) -> float:
    return (before - now) / max(abs(first - best), FLOOR_RATIO * abs(first), 1e-9)


def never_forgets(levels: Sequence[float]) -> Growths:
    """As it was: the first level, and the best one ever seen."""
    found: list[float | None] = [None]
    best = levels[0]
    for before, now in pairwise(levels):
        best = min(best, now)
        found.append(_per_range(before, now, levels[0], best))
    return found


def quantiles(levels: Sequence[float]) -> Growths:
    """From the 5 % to the 95 % quantile of all levels so far; exact ones, where a product would have estimates."""
    found: list[float | None] = [None]
    for look in range(1, len(levels)):
        seen = sorted(levels[: look + 1])
        low, high = _quantile(seen, 0.05), _quantile(seen, 0.95)
        found.append(_per_range(levels[look - 1], levels[look], high, low))
    return found


def _quantile(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)


def decays(levels: Sequence[float]) -> Growths:
    """First and best come nearer to the present level by a tenth at each look."""
    found: list[float | None] = [None]
    first = best = levels[0]
    for before, now in pairwise(levels):
        best = min(now, best + 0.1 * (now - best))
        first = max(now, first + 0.1 * (now - first))
        found.append(_per_range(before, now, first, best))
    return found


def medians_of_three(levels: Sequence[float]) -> Growths:
    """As it was, over the median of the last three levels: two looks late at the start, one later on."""
    smooth = [statistics.median(levels[look - 2 : look + 1]) for look in range(2, len(levels))]
    return [None, None, *never_forgets(smooth)]


def clips(levels: Sequence[float]) -> Growths:
    """As it was, with each level cut to one range beyond all before it."""
    found: list[float | None] = [None]
    first = best = before = levels[0]
    for level in levels[1:]:
        reach = max(abs(first - best), FLOOR_RATIO * abs(first), 1e-9)
        now = level if first == best else max(best - reach, min(first + reach, level))
        best = min(best, now)
        found.append(_per_range(before, now, first, best))
        before = now
    return found


INTERVAL_SECONDS = 20.0
_NODE = Node("n", 1.0, 2**33)
_HOW = growth.Measuring(INTERVAL_SECONDS, min_range_ratio=0.0)  # the range alone, as the other candidates


def taken(levels: Sequence[float]) -> Growths:
    """The controller's own: `growth.measure` over one job's snapshots, an interval apart."""
    memory, found = MemoryState(), []
    for look, level in enumerate(levels):
        now = 1e9 + look * INTERVAL_SECONDS
        evaluation = Evaluation(level, 4, now, "loss")
        job = Job(
            "j",
            "j",
            "team",
            "n",
            JobState.TRAINING,
            1e9,
            CpuAllocation(None, 1000),
            evaluation,
            Usage(now, 10.0 * look),
        )
        memory = growth.measure(ClusterSnapshot(now, (_NODE,), (job,)), memory, _HOW)
        grown = memory.jobs["j"].growth
        is_new = grown is not None and grown.at_seconds == now
        found.append(grown.change_per_second * INTERVAL_SECONDS if grown is not None and is_new else None)
    return found


RANGES = {
    "never forgets, as it was": never_forgets,
    "quantiles 5 to 95 %": quantiles,
    "decays by a tenth a look": decays,
    "median of three levels": medians_of_three,
    "levels clipped to one range": clips,
    "held back, confirmed, settled (taken)": taken,
}
