"""Refuses simulated runs that could never end, and says when one counts as such."""

from __future__ import annotations

import math

from slopewise.errors import SlopewiseError
from slopewise.simulator.world.model import Instance

HORIZON_RATIO = 1000.0
"""A run that takes so many times as long as all work one job after another on the slowest node will never end."""

HORIZON_SECONDS = 3600.0
"""What is added to that horizon, for jobs of a second or two."""


def refuse_endless(instance: Instance) -> None:
    """What could never end is refused before it starts."""
    if not instance.nodes:
        raise SlopewiseError(f"{instance.scenario}: there are no nodes, so no job can ever run; add one.")
    largest = max(node.memory_bytes for node in instance.nodes)
    for job in instance.jobs:
        needed = job.memory_bytes or 0.0
        if needed > largest:
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} asks for {needed / 2**30:.3g} GiB and the largest node has "
                f"{largest / 2**30:.3g} GiB; ask for less or add a node."
            )
        devices = 0 if job.accelerator is None else job.accelerator.count
        if not any(needed <= node.memory_bytes and devices <= node.accelerators for node in instance.nodes):
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} asks for {devices} accelerators, and no node that has its memory "
                "has as many; ask for less or add a node."
            )
        if not math.isfinite(job.work_cpu_seconds) and instance.duration_seconds is None:
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} serves for ever, so the run would not end; give it a duration."
            )


def horizon_seconds(instance: Instance) -> float:
    """When a run counts as one that never ends; a run of a fixed duration always ends."""
    if instance.duration_seconds is not None:
        return math.inf
    slowest = min(node.speed for node in instance.nodes)
    solo_seconds = math.fsum(job.work_cpu_seconds / min(1.0, job.parallelism_cores) for job in instance.jobs) / slowest
    last_arrival = max((job.arrive_seconds for job in instance.jobs), default=0.0)
    return last_arrival + HORIZON_SECONDS + HORIZON_RATIO * solo_seconds
