"""Simulate with the real pass: the time it takes, how it compares with the world alone, and the memory of a day.

Gates: one hour of 100 jobs on 16 nodes, looked at every 20 s, under 5 s; a day of 1,000 jobs on 64 nodes, looked at
every 60 s, under 180 s and 500 MB. The baseline of the same process is the same instance without a controller, so that
a slow machine shows.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
from dataclasses import dataclass

from slopewise.config.training_policy import Behaviour, CpuBounds
from slopewise.loop import calm_garbage_collector
from slopewise.simulator.engine import run, run_unmanaged
from slopewise.simulator.world.model import Instance, PolicyRun, SimJob, SimNode

HOUR_SECONDS = 3600.0
MEMORY_BOUND_MEBIBYTES = 500.0


@dataclass(frozen=True, slots=True)
class Falling:
    """Falls from about 1 to about 0 as e^(-8x)."""

    def at(self, done_ratio: float) -> float:
        return math.exp(-8.0 * done_ratio)

    def reached(self, improvement_ratio: float) -> float | None:
        return -math.log1p(-improvement_ratio) / 8.0


@dataclass(frozen=True, slots=True)
class Case:
    """One workload: arrivals spread evenly at random, work such that the nodes are busy for `load` of the time."""

    name: str
    jobs: int
    nodes: int
    arrive_within_seconds: float
    load_seconds: float
    """Core-seconds of work a node gets."""
    interval_seconds: float
    bound_seconds: float

    def instance(self) -> Instance:
        """Always the same one."""
        rng = random.Random(7)
        mean = self.load_seconds * self.nodes / self.jobs
        arrivals = sorted(rng.uniform(0.0, self.arrive_within_seconds) for _ in range(self.jobs))
        jobs = tuple(
            SimJob(f"job-{number}", "bench", arrive, mean * rng.uniform(0.5, 1.5), Falling(), noise=0.02)
            for number, arrive in enumerate(arrivals)
        )
        return Instance(
            self.name, 1, tuple(SimNode(f"n{number}", 1.0, 64 * 2**30) for number in range(self.nodes)), jobs
        )


CASES = (
    Case("hour", 100, 16, 0.5 * HOUR_SECONDS, 0.9 * HOUR_SECONDS, 20.0, 5.0),
    Case("day", 1000, 64, 24 * HOUR_SECONDS, 0.7 * 24 * HOUR_SECONDS, 60.0, 180.0),
)


def flowcon_every(interval_seconds: float) -> PolicyRun:
    """FlowCon as the shipped scenarios run it: acting at once."""
    behaviour = Behaviour(
        interval_seconds=interval_seconds, cooldown_seconds=0.0, max_step_ratio=100.0, min_change_ratio=0.05
    )
    bounds = CpuBounds.model_validate({"min": "20m"})
    return PolicyRun("flowcon", "flowcon", {}, interval_seconds, behaviour=behaviour, cpu=bounds)


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    calm_garbage_collector()  # as the sweep's workers do
    failed = False
    print(f"{'case':<6}{'jobs':>6}{'nodes':>6}{'hours':>7}{'passes':>8}{'s':>8}{'ms a pass':>11}{'x unmanaged':>13}")
    for case in CASES:
        instance = case.instance()
        start = time.perf_counter()
        run_unmanaged(instance, 1)
        baseline_seconds = time.perf_counter() - start
        start = time.perf_counter()
        outcome = run(instance, flowcon_every(case.interval_seconds))
        seconds = time.perf_counter() - start
        print(
            f"{case.name:<6}{case.jobs:>6}{case.nodes:>6}{outcome.ended_seconds / HOUR_SECONDS:>7.1f}"
            f"{outcome.passes_total:>8}{seconds:>8.2f}{1000 * seconds / outcome.passes_total:>11.2f}"
            f"{seconds / baseline_seconds:>13.0f}"
        )
        failed |= seconds > case.bound_seconds
        print(
            f"bound: {case.name} under {case.bound_seconds:g} s: {'MISSED' if seconds > case.bound_seconds else 'held'}"
        )
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    over = mebibytes > MEMORY_BOUND_MEBIBYTES
    print(f"bound: {mebibytes:.0f} MiB at most, under {MEMORY_BOUND_MEBIBYTES:g} MiB: {'MISSED' if over else 'held'}")
    return int(failed or over)


if __name__ == "__main__":
    sys.exit(main())
