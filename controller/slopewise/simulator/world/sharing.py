"""Shares one simulated node's CPU among its jobs: the cores that each uses, and its speed.

`world.py` asks whenever the jobs of a node, or what they were given, change; between two such moments every rate is
constant. Nothing in here remembers anything.

Worked example: one core of speed 1, shares 1000 and 250, 1 % lost per further job: the jobs use 0.8 and 0.2 cores
and do 0.792 and 0.198 core-seconds of work a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slopewise.allocation import water_filling
from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import Physics, SimNode
from slopewise.simulator.world.threads import RunningThreads

MIN_SPEED_RATIO = 0.1
"""However many jobs run beside it, a job keeps a tenth of its speed; with 1 % lost per further job, from 91 jobs on."""

ROUNDING_RATIO = 1e-9
"""A share this near to what a loader can use is all of it."""

MIN_WEIGHT_MILLICORES = 2
"""Linux gives a container without a request the weight of 2 millicores; with zero it would never run."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a running job could use, and what it was given."""

    parallelism_cores: float
    allocation: CpuAllocation
    threads: RunningThreads | None = None
    """None: one, or several that cost nothing."""
    accelerator: Accelerator | None = None
    """None: it computes on the CPU."""

    def most_cores(self, core_speed: float) -> float:
        """What it uses where it may use all: of slower cores, a loader that keeps its device busy uses more."""
        return self.parallelism_cores if self.accelerator is None else self.accelerator.most_cores(core_speed)


@dataclass(frozen=True, slots=True)
class Rate:
    """What a running job gets: CPU used, in cores, and work done per second, in core-seconds at speed 1."""

    cores: float
    speed: float
    waited_ratio: float = field(default=0.0, compare=False)
    """The part of the time in which its threads wanted a core and had none."""
    starved_ratio: float = field(default=0.0, compare=False)
    """The part of the time in which its accelerator waited for a batch."""
    short: bool = field(default=False, compare=False)
    """Its loader could use more cores."""


IDLE = Rate(0.0, 0.0)


def rates(demands: Sequence[Demand], node: SimNode, control: CpuControl, physics: Physics) -> list[Rate]:
    """What each job that runs on the node uses and achieves, shape (jobs,).

    Requests are weights in both modes, as they are to the kernel. Under `limits` the limits are hard caps as well;
    under `requests` nothing caps.
    """
    limited = control == "limits"
    speed = node.speed * max(MIN_SPEED_RATIO, 1.0 - physics.contention_ratio * (len(demands) - 1))
    caps = [min(demand.most_cores(speed), limit_cores(demand.allocation, node, control)) for demand in demands]
    weights = [float(max(MIN_WEIGHT_MILLICORES, demand.allocation.request_millicores)) for demand in demands]
    shares = water_filling(caps, node.cpu_cores, weights)
    useful = [
        min(share, quota_speed(_cap(demand.allocation), physics)) if limited else share
        for demand, share in zip(demands, shares, strict=True)
    ]
    return [_rate(demand, share, speed, cores) for demand, share, cores in zip(demands, shares, useful, strict=True)]


def _rate(demand: Demand, share: float, core_speed: float, cores: float) -> Rate:
    """Of a job with this share of the node, which one thread would turn into the work of so many cores."""
    device, threads, speed = demand.accelerator, demand.threads, core_speed * cores
    if device is not None:
        steps = device.steps_per_second(speed)
        short = share < device.most_cores(core_speed) * (1 - ROUNDING_RATIO)
        return Rate(share, steps * device.input_cpu_seconds, 0.0, device.wait_ratio(steps), short)
    if threads is None:
        return Rate(share, speed)
    penalty = threads.penalty(share)
    return Rate(share * penalty.used_ratio, speed * penalty.speed_ratio, 1.0 - share / threads.number)


def quota_speed(limit_cores: float, physics: Physics) -> float:
    """The speed, in cores, that a hard quota lets through when all of it is used; above a core, the quota itself.

    The kernel stops a job for the rest of each period once its quota is spent, which costs more than the fraction:
    by default a quota of 0.25 cores does the work of 0.205.
    """
    quotas, speeds = zip(*physics.quota_speeds, strict=True)
    if limit_cores >= quotas[-1]:
        return limit_cores
    return float(np.interp(limit_cores, quotas, speeds))


def limit_cores(allocation: CpuAllocation, node: SimNode, control: CpuControl) -> float:
    """The most that a job may use on this node."""
    return min(node.cpu_cores, _cap(allocation)) if control == "limits" else node.cpu_cores


def _cap(allocation: CpuAllocation) -> float:
    limit = allocation.limit_millicores
    return float("inf") if limit is None else limit / 1000
