"""Divides the CPU of one node, in proportion within bounds or down an order of jobs; the speed of a job with a share.

`node_passes.py` turns the cores into resizes. Plain arithmetic over the jobs of one node (twenty or so), where arrays
cost more than they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slopewise.allocation import down_an_order, water_filling
from slopewise.estimators.speed import Speed, measured_speed, useful_cores
from slopewise.model import CpuControl, Job, JobMemory, Node
from slopewise.policies import parameter

__all__ = ["Speed", "down_the_order", "floor_ratio_parameter", "had_cores", "in_proportion", "speed", "useful_cores"]


def floor_ratio_parameter(
    default: float = 0.05, *, source: str = "ours", description: str = "what a job gets whose turn it is not"
) -> Any:
    """The parameter of what every job has at least."""
    unit = "ratio of an even share, node / jobs"
    return parameter(default, gt=0, le=1, unit=unit, source=source, description=description)


def in_proportion(
    weights: Sequence[float], least: Sequence[float], most: Sequence[float], total_cores: float
) -> list[float]:
    """Cores in proportion to `weights` (≥ 0), none below its `least` nor above its `most`, shape (jobs,).

    They add up to `total_cores` unless the bounds or weights of 0 forbid it. Worked example: weights 0.9 and 0.1,
    at least 0.25 each, one core: 0.75 and 0.25. Each round settles the jobs that break a bound, on the side that
    breaks it by more, and shares the rest again; so there are at most as many rounds as jobs.
    """
    given = [0.0] * len(weights)
    open_jobs, left = list(range(len(weights))), total_cores
    while open_jobs:
        weight = sum(weights[i] for i in open_jobs)
        ideal = {i: left * weights[i] / weight if weight > 0 else 0.0 for i in open_jobs}
        bounded = {i: min(max(ideal[i], least[i]), most[i]) for i in open_jobs}
        too_much = sum(bounded.values()) - sum(ideal.values())
        settled = [i for i in open_jobs if _breaks_a_bound(ideal[i], bounded[i], too_much)] or open_jobs
        for i in settled:
            given[i] = bounded[i]
            left -= bounded[i]
        open_jobs = [i for i in open_jobs if i not in settled]
    return given


def _breaks_a_bound(ideal: float, bounded: float, too_much: float) -> bool:
    """True on the side of the bounds that matters more this round."""
    return bounded > ideal if too_much > 0 else bounded < ideal


def down_the_order(groups: Sequence[Sequence[Job]], node: Node, floor_ratio: float) -> dict[str, float]:
    """Cores by uid: the first group's jobs up to what each can use, then the next group's from what is left.

    The jobs of one group share evenly. Everyone gets at least `floor_ratio` of an even share, C/n. Worked example:
    three one-thread jobs in groups of one on 2 cores, ratio 0.05: floor 0.033; 1, 0.967 and 0.033 cores.
    """
    jobs = [job for group in groups for job in group]
    floor = floor_ratio * node.cpu_cores / max(1, len(jobs))
    most = {job.uid: max(floor, useful_cores(job, node)) for job in jobs}
    order = ([job.uid for job in group] for group in groups)
    return down_an_order(dict.fromkeys(most, floor), order, most, node.cpu_cores)


def speed(known: JobMemory, had_cores: float) -> Speed | None:
    """What the job's paces say; None before it was timed. `had_cores`: what it might use meanwhile.

    Where no CPU use was read, it is taken to have used what it might, so that seconds x limit stays the same.
    """
    if not known.paces:
        return None
    return measured_speed(known) or Speed((0.0, known.paces[-1].seconds * had_cores), 0.0)


def had_cores(jobs: Sequence[Job], node: Node, control: CpuControl) -> list[float]:
    """What each job of the node may use now when all of them want CPU, in cores, shape (jobs,); above 0.

    Worked example: two jobs without limits on one core have 0.5 each, and one that used all of it was held back.
    """
    if control == "requests":
        weights = [max(1, job.allocation.request_millicores) for job in jobs]
        unit = sum(weights) / node.cpu_cores
        return [weight / unit for weight in weights]
    limits = [job.allocation.limit_millicores for job in jobs]
    most = [node.cpu_cores if limit is None else min(node.cpu_cores, max(1, limit) / 1000) for limit in limits]
    return water_filling(most, node.cpu_cores)
