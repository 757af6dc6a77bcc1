"""The CPU of one node over the time to come, as it is reserved job after job until their deadlines.

`_deadlines` admits jobs with it, earliest deadline first: what a job needs may lie where those before it have ended.
This is ElasticFlow's progressive filling.

Worked example: one core, 50 CPU-seconds due in 100 s, 100 more due in 150 s. The first has 0.5 cores for 100 s; the
second the other 0.5 meanwhile, then a whole one: so both are in time, though 0.5 and 0.67 cores are more than one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise


class Reservations:
    """Free cores from now on, constant between two moments at which a reservation ends."""

    def __init__(self, free_cores: float) -> None:
        self._ends_seconds = [math.inf]
        self._free_cores = [free_cores]

    def reserve(self, cpu_seconds: float, most_cores: float, within_seconds: float) -> float | None:
        """Reserve so much work within so many seconds, at the lowest level that does; never more than `most_cores`.

        Returns the cores of it that are reserved now; None, and nothing is reserved, when it does not fit.
        """
        self._split_at(within_seconds)
        last = bisect_left(self._ends_seconds, within_seconds)
        seconds = [end - start for start, end in pairwise([0.0, *self._ends_seconds[: last + 1]])]
        level = _level(seconds, [min(most_cores, free) for free in self._free_cores[: last + 1]], cpu_seconds)
        if level is None:
            return None
        now = min(level, self._free_cores[0])
        for index in range(last + 1):
            self._free_cores[index] -= min(level, self._free_cores[index])
        return now

    def free_cpu_seconds(self, within_seconds: float) -> float:
        """What is free within so many seconds from now, in core-seconds."""
        total, start = 0.0, 0.0
        for end, free in zip(self._ends_seconds, self._free_cores, strict=True):
            if start >= within_seconds:
                break
            total += (min(end, within_seconds) - start) * free
            start = end
        return total

    def _split_at(self, seconds: float) -> None:
        index = bisect_left(self._ends_seconds, seconds)
        if self._ends_seconds[index] != seconds:
            self._ends_seconds.insert(index, seconds)
            self._free_cores.insert(index, self._free_cores[index])


def _level(seconds: list[float], free_cores: list[float], cpu_seconds: float) -> float | None:
    """The level c at which the sum of seconds x min(c, free) is `cpu_seconds`; None where even all of it is less."""
    left_seconds, left_work, level = math.fsum(seconds), cpu_seconds, 0.0
    for free, duration in sorted(zip(free_cores, seconds, strict=True)):
        if left_work <= (free - level) * left_seconds:
            return level + left_work / left_seconds
        left_work -= (free - level) * left_seconds
        left_seconds -= duration
        level = free
    return level if left_work <= 1e-9 * cpu_seconds else None
