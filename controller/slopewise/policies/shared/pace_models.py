"""The speed of a job also where no CPU use was read, and the CPU that it had; for `dqoes` and `deadline`."""

from __future__ import annotations

from collections.abc import Sequence

from slopewise.allocation import water_filling
from slopewise.estimators.speed import Speed, measured_speed
from slopewise.model import CpuControl, Job, JobMemory, Node

__all__ = ["Speed", "had_cores", "speed"]


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
