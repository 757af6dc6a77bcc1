"""The CPU of one node over the time to come, as it is reserved for job after job until their deadlines.

`deadlines.py` admits jobs with it, earliest deadline first: what a job needs may lie where those before it have ended.
This is the progressive filling of ElasticFlow.

Worked example: one core, 50 CPU-seconds due in 100 s, 100 more due in 150 s. The first has 0.5 cores for 100 s, the
second the other 0.5 meanwhile and then a whole one: so both are in time, though 0.5 and 0.67 cores are more than one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

_ROUNDING = 1e-9


class Reservations:
    """Free cores from now on, constant between two moments at which a reservation ends."""

    def __init__(self, free_cores: float) -> None:
        self._ends_seconds = [math.inf]
        self._free_cores = [free_cores]

    def reserve(self, cpu_seconds: float, most_cores: float, within_seconds: float) -> float | None:
        """Reserve so much work within so many seconds (above 0), at the lowest level that does, `most_cores` at most.

        Returns the cores of it that are reserved now. None, and nothing is reserved, when it does not fit.
        """
        count = self._split_at(within_seconds) + 1
        seconds = [end - start for start, end in pairwise([0.0, *self._ends_seconds[:count]])]
        level = _level(seconds, [min(most_cores, free) for free in self._free_cores[:count]], cpu_seconds)
        if level is None:
            return None
        reserved = [min(level, free) for free in self._free_cores[:count]]
        self._free_cores[:count] = [
            free - taken for free, taken in zip(self._free_cores[:count], reserved, strict=True)
        ]
        return reserved[0]

    def _split_at(self, seconds: float) -> int:
        """Make one stretch end at that moment; returns its place."""
        index = bisect_left(self._ends_seconds, seconds)
        if self._ends_seconds[index] != seconds:
            self._ends_seconds.insert(index, seconds)
            self._free_cores.insert(index, self._free_cores[index])
        return index


def _level(seconds: Sequence[float], free_cores: Sequence[float], cpu_seconds: float) -> float | None:
    """The level c at which the sum of seconds x min(c, free) is `cpu_seconds`; None where even all of it is less."""
    left_seconds, left_work, level = math.fsum(seconds), cpu_seconds, 0.0
    for free, duration in sorted(zip(free_cores, seconds, strict=True)):
        room = (free - level) * left_seconds
        if left_work <= room:
            return level + (left_work / left_seconds if left_work > 0 else 0.0)
        left_work -= room
        left_seconds -= duration
        level = free
    return level if left_work <= _ROUNDING * cpu_seconds else None
