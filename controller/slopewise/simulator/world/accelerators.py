"""The accelerator of a simulated training: how long its steps take, and how long they wait for their batches.

The loader prepares a batch on the CPU while the device computes the one before, so that a step takes as long as the
slower of the two. What the device waits is not CPU: a loader uses no more cores than keep its device busy.

Worked example: 0.4 s on the device, 2.7 CPU-seconds of input, 3 cores: a step takes 0.9 s, of which 0.5 s are waiting;
with 6.75 cores or more it takes 0.4 s, and 6.75 cores are used.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from slopewise.config.validation import Document


def _rising(value: tuple[tuple[float, float], ...] | None) -> tuple[tuple[float, float], ...] | None:
    if value is None:
        return None
    points = [(0.0, 0.0), *value]
    if any(right[0] <= left[0] or right[1] < left[1] for left, right in pairwise(points)) or points[-1][1] <= 0:
        raise ValueError("cores must increase from above 0 and speeds must not fall; sort the points")
    return value


class Accelerator(Document):
    """The devices of a training, and what its input costs: a step takes as long as the slower of the two.

    The job's work is counted in CPU-seconds of its input. Measured speeds are straight from one to the next and from 0,
    level beyond the last.
    """

    count: int = Field(1, ge=1, le=1024, description="devices of one node, of this job alone")
    step_seconds: float = Field(gt=0.0, le=86_400.0, description="of a step on the devices, its batch being there")
    input_cpu_seconds: float = Field(gt=0.0, le=1e9, description="CPU-seconds of the input of a step")
    max_loader_cores: float | None = Field(None, gt=0.0, le=1024.0, description="all that its workers can use")
    step_speeds: Annotated[tuple[tuple[float, float], ...] | None, AfterValidator(_rising)] = Field(
        None, description="[cores, steps a second] as measured, in place of cores / inputCpuSeconds"
    )

    def most_cores(self, core_speed: float = 1.0) -> float:
        """The cores that the loader uses where it may use all, each doing `core_speed` core-seconds a second."""
        most = self._busy_cores / core_speed
        return most if self.max_loader_cores is None else min(self.max_loader_cores, most)

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
