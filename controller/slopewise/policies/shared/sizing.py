"""Computes the CPU that the promise of an arriving job needs, from what jobs of its class have shown.

Users state a deadline or an objective, and no CPU. Worked example: jobs of the class took 2 CPU-seconds a step, this
one plans 300 steps and has 1000 s left: with gamma 1 it needs 0.6 cores.
"""

from __future__ import annotations

import math

from slopewise.estimators.speed import BEYOND_SEEN_RATIO
from slopewise.estimators.workload_classes import Expected
from slopewise.model import Arrival, Node


def needed_cores(
    arrival: Arrival, known: Expected, within_seconds: float | None = None, objective_seconds: float | None = None
) -> float | None:
    """The CPU with which its planned steps end in time, or its responses meet the objective, in cores.

    `within_seconds`: until its deadline, less reserves; `objective_seconds`: what a response or a step may take; None:
    it states no such promise. Of both the larger need counts. None: it states neither, plans no steps, or no CPU is
    enough.
    """
    needs = []
    if within_seconds is not None:
        steps = known.steps_planned if arrival.steps_planned is None else arrival.steps_planned
        needs.append(None if not steps or within_seconds <= 0 else known.cores_for(within_seconds / steps))
    if objective_seconds is not None:
        needs.append(known.cores_for(objective_seconds))
    cores = [each for each in needs if each is not None]
    if not cores or len(cores) < len(needs):
        return None
    return max(BEYOND_SEEN_RATIO * known.least_cores, *cores)


def size_millicores(cores: float, arrival: Arrival, node: Node) -> int:
    """The request for so many cores: no more than the job can use, nor than its node has."""
    useful = min(node.cpu_cores, arrival.useful_parallelism_cores or node.cpu_cores)
    return max(1, math.ceil(1000 * min(cores, useful)))
