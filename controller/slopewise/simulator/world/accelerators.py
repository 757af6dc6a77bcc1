"""The accelerator of a simulated training: how long its steps take, and how long they wait for their batches.

The loader prepares a batch on the CPU while the device computes the one before, so that a step takes as long as the
slower of the two. What the device waits is not CPU: a loader uses no more cores than keep its device busy.

Worked example: 0.4 s on the device, 2.7 CPU-seconds of input, 3 cores: a step takes 0.9 s, of which 0.5 s are waiting;
with 6.75 cores or more it takes 0.4 s, and 6.75 cores are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The devices of a job, all of them on its node and for this job alone, and its loader."""

    count: int
    step_seconds: float
    """What a step takes on the devices when its batch is there."""
    input_cpu_seconds: float
    """CPU-seconds that the input of a step takes; the job's work is counted in these."""
    max_loader_cores: float = math.inf
    """All that the loader's workers can use, whatever the CPU."""
    step_speeds: tuple[tuple[float, float], ...] = ()
    """Measured (cores, steps a second) of the loader, both ascending, instead of cores / `input_cpu_seconds`: straight
    from one to the next and from 0, level beyond the last."""

    def most_cores(self, core_speed: float = 1.0) -> float:
        """The cores that the loader uses where it may use all, each doing `core_speed` core-seconds a second."""
        return min(self.max_loader_cores, self._busy_cores / core_speed)

    def steps_per_second(self, cores: float) -> float:
        """With so many cores of speed 1 for its loader, of which it can use all."""
        return min(1 / self.step_seconds, self._batches_per_second(cores))

    def wait_ratio(self, steps_per_second: float) -> float:
        """The part of the time in which the device waits for a batch, at this speed."""
        return max(0.0, 1.0 - self.step_seconds * steps_per_second)

    def _batches_per_second(self, cores: float) -> float:
        if not self.step_speeds:
            return cores / self.input_cpu_seconds
        at, speeds = zip((0.0, 0.0), *self.step_speeds, strict=True)
        return float(np.interp(cores, at, speeds))

    @property
    def _busy_cores(self) -> float:
        """The least cores of speed 1 with which the device never waits, or with which the loader is at its fastest."""
        if not self.step_speeds:
            return self.input_cpu_seconds / self.step_seconds
        wanted = min(1 / self.step_seconds, self.step_speeds[-1][1])
        for (below, slower), (cores, speed) in pairwise([(0.0, 0.0), *self.step_speeds]):
            if speed >= wanted:
                return below + (cores - below) * (wanted - slower) / (speed - slower)
        return self.step_speeds[-1][0]
