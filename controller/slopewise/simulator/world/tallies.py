"""Accumulates measures during a simulated run that its end state lacks: overlap, balance, jitter, growth.

`world.py` and `engine.py` report every change to these classes, at the moment it happens; `outcomes.py` and `engine.py`
read them when the run is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

JITTER_INTERVAL_SECONDS = 20.0

_ROUNDING_RATIO = 1e-9
"""Ten jobs that can use 0.1 cores each want a little more than one core, as floats add up."""


class TimeMean:
    """The mean over time of a figure that stays until it changes, and may be unknown (None) in between.

    Worked example: 4 for 10 s, unknown for 5 s, 1 for 20 s: (40 + 20) / 30 = 2.
    """

    def __init__(self) -> None:
        self._at_seconds = 0.0
        self._value: float | None = None
        self._total = 0.0
        self._seconds = 0.0

    def change(self, now_seconds: float, value: float | None) -> None:
        """From now on it is so much."""
        if self._value is not None:
            self._total += self._value * (now_seconds - self._at_seconds)
            self._seconds += now_seconds - self._at_seconds
        self._at_seconds, self._value = now_seconds, value

    def until(self, now_seconds: float) -> float:
        """The mean up to now; 0 when it was never known for any time."""
        self.change(now_seconds, self._value)
        return self._total / self._seconds if self._seconds > 0 else 0.0


class ClusterTally:
    """For how long how many jobs ran, how evenly they were spread over the nodes, and whether CPU was short."""

    def __init__(self) -> None:
        self.short = TimeMean()
        """1 while the jobs of any node could use more CPU than it has, else 0; unknown before the first job."""
        self._short_nodes: set[int] = set()
        self.overlap_seconds: dict[int, float] = {}
        """For how long exactly k jobs were running, by k (1 or more)."""
        self._at_seconds = 0.0
        self._running = 0
        self._spread_ratio = 0.0
        self._spread_seconds = 0.0

    def recount(self, now_seconds: float, running_by_node: Sequence[int]) -> None:
        """From now on so many jobs run on each node."""
        elapsed = now_seconds - self._at_seconds
        if self._running and elapsed > 0:
            self.overlap_seconds[self._running] = self.overlap_seconds.get(self._running, 0.0) + elapsed
            self._spread_seconds += self._spread_ratio * elapsed
        self._at_seconds = now_seconds
        self._running = sum(running_by_node)
        mean = self._running / len(running_by_node)
        self._spread_ratio = (max(running_by_node) - min(running_by_node)) / mean if mean else 0.0

    def recount_cpu(self, now_seconds: float, node: int, wanted_cores: float, cpu_cores: float) -> None:
        """From now on the jobs of a node could use so many cores together, of those that it has."""
        if wanted_cores > cpu_cores * (1 + _ROUNDING_RATIO):
            self._short_nodes.add(node)
        else:
            self._short_nodes.discard(node)
        self.short.change(now_seconds, 1.0 if self._short_nodes else 0.0)

    @property
    def load_imbalance_ratio(self) -> float:
        """Mean over the time in which any job ran of (most - fewest) / mean; 0 when none ever did."""
        busy_seconds = math.fsum(self.overlap_seconds.values())
        return self._spread_seconds / busy_seconds if busy_seconds > 0 else 0.0


class AllocatedCpu:
    """What one job was allocated while it was on a node, and how much of that it used; both in core-seconds.

    The allocation is its limit, or its request where it has none. What it uses beyond a request is another's to miss.
    """

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.used_cpu_seconds = 0.0

    def add(self, seconds: float, allocated_cores: float, cores: float) -> None:
        """The job was allocated so much, and used so many cores, for so long."""
        self.cpu_seconds += allocated_cores * seconds
        self.used_cpu_seconds += min(cores, allocated_cores) * seconds


class CpuIntervals:
    """The CPU of one job by whole intervals of 20 s since it started; the last one, cut short by its end, is left out.

    Welford's way of keeping mean and variance: a difference of sums of squares would report constant CPU as jitter.
    """

    def __init__(self) -> None:
        self._open_seconds = 0.0
        self._open_cpu_seconds = 0.0
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, seconds: float, cores: float) -> None:
        """The job used so many cores for so long."""
        room = JITTER_INTERVAL_SECONDS - self._open_seconds
        if seconds < room:
            self._open_seconds += seconds
            self._open_cpu_seconds += cores * seconds
            return
        self._close(self._open_cpu_seconds + cores * room, 1)
        whole, rest = divmod(seconds - room, JITTER_INTERVAL_SECONDS)
        self._close(cores * JITTER_INTERVAL_SECONDS, int(whole))
        self._open_seconds, self._open_cpu_seconds = rest, cores * rest

    def _close(self, cpu_seconds: float, times: int) -> None:
        """So many intervals in a row with this CPU each."""
        if not times:
            return
        delta = cpu_seconds - self._mean
        before, self._count = self._count, self._count + times
        self._mean += delta * times / self._count
        self._squares += delta * delta * before * times / self._count

    @property
    def jitter_ratio(self) -> float:
        """Standard deviation over mean; 0 for fewer than two intervals, or without any CPU."""
        if self._count < 2 or self._mean <= 0:
            return 0.0
        return math.sqrt(self._squares / self._count) / self._mean
