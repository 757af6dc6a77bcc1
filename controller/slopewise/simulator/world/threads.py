"""The threads of a simulated training: how many run, and what they cost beyond the CPU in effect.

The costs are measured (`thread_penalties.csv`, which `python -m replication.thread_penalty` writes). The number that
follows the CPU is computed by the exporter's own code, from what its files would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from slopewise_exporter.threads.cpu import Reading
from slopewise_exporter.threads.number import ThreadNumber

ThreadBehaviour = Literal["spin", "wait", "follow"]
"""Threads that wait for another one spin, or sleep; or they sleep, and their number follows the CPU in effect."""

READING_SECONDS, FIRST_READING_SECONDS = 5.0, 1.0
"""As the exporter reads the CPU in effect (`slopewise_exporter/threads/following.py`)."""

STEPS_PER_WORK = 100.0
"""Steps of 10 ms of one core: the exporter tries nothing with steps of more than 10 s, which none has."""


class Penalty(NamedTuple):
    """What so many threads on each core in effect cost, against one thread."""

    threads_per_core: float
    cpu_ratio: float
    """CPU-seconds a step over those of one thread."""
    speed_ratio: float
    """Steps a second over those of one thread with as much CPU."""

    @property
    def used_ratio(self) -> float:
        """The part of their CPU that they use: threads that sleep while they wait for one another leave some."""
        return min(1.0, self.cpu_ratio * self.speed_ratio)


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a job: as many as its library has counted, and the penalties in order of threads a core."""

    most: int
    behaviour: ThreadBehaviour
    penalties: tuple[Penalty, ...]

    def penalty(self, number: int, cores: float) -> Penalty:
        """Of so many threads on this much CPU in effect: straight between the measured points, level outside of them.

        Worked example: 12 times the CPU at 2 threads a core, 20 times at 4: 16 times for 3 threads on one core, and a
        16th of the speed where they use all of it.
        """
        if number <= 1 or cores <= 0:
            return Penalty(1.0, 1.0, 1.0)
        ratio = number / cores
        at, cpu, _ = zip(*self.penalties, strict=True)
        cpu_ratio = float(np.interp(ratio, at, cpu))
        return Penalty(
            ratio, cpu_ratio, float(np.interp(ratio, at, [each.used_ratio for each in self.penalties])) / cpu_ratio
        )


class RunningThreads:
    """The number of threads of one process."""

    def __init__(self, threads: Threads, limit_cores: float) -> None:
        """`limit_cores`: its node's cores, or its quota."""
        self._threads = threads
        self.follows = threads.behaviour == "follow"
        self._number = ThreadNumber(threads.most)
        fits = self._number.next(Reading(limit_cores))
        self.number = fits if self.follows else threads.most

    def penalty(self, cores: float) -> Penalty:
        """Of its threads on this much CPU."""
        return self._threads.penalty(self.number, cores)

    @property
    def useful(self) -> int:
        """The most threads with which it is faster, as far as it has tried more."""
        return self._number.useful

    @property
    def next_reading_seconds(self) -> float:
        """Until its CPU is read again: what is tried is soon decided."""
        return FIRST_READING_SECONDS if self._number.tries else READING_SECONDS

    def read(self, reading: Reading) -> bool:
        """An interval has ended; True: the number changes."""
        before = self.number
        self.number = self._number.next(reading)
        return self.number != before
