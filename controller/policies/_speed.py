"""What `dqoes` and `deadline` share: the CPU limit at which a job would reach a wanted pace.

Comes after `pace.calibrated`, which speaks of CPU used; a limit is what is set. All of it is plain arithmetic for one
job at a time: for the dozen figures of a job arrays would cost more than they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller import pace
from controller.control import even_shares
from controller.model import CpuControl, Job, JobMemory, Node

BEYOND_SEEN_RATIO = 0.5
"""No limit below half the least CPU at which the job was ever timed: the line says little of what lies beyond."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job is at which limit, taken to use all of it.

    That holds for one that waits now and then as well: within a period of the quota it may use what it left unused.
    """

    line: pace.Line
    least_cores: float
    """The least limit that the line is asked about."""

    def limit_for(self, seconds: float) -> float | None:
        """The limit in cores at which one step or response takes `seconds`; None when no CPU makes it that fast."""
        cores = pace.cores_for(seconds, self.line)
        return None if cores is None else max(self.least_cores, cores)

    def seconds_at(self, limit_cores: float) -> float:
        """Seconds a step or response under this limit."""
        a, b = self.line
        return a + b / limit_cores


def speed(known: JobMemory, had_cores: float) -> Speed | None:
    """What the job's paces say; None before it was timed. `had_cores`: what it might use meanwhile.

    Where no CPU use was read, it is taken to have used what it might, so that seconds x limit stays the same.
    """
    if not known.paces:
        return None
    line = pace.calibrated(known.paces)
    if line is None:
        return Speed((0.0, known.paces[-1].seconds * had_cores), 0.0)
    return Speed(line, BEYOND_SEEN_RATIO * min(each.cores for each in known.paces if each.cores is not None))


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
    return [min(each, share) for each, share in zip(most, even_shares(most, node.cpu_cores), strict=True)]


def handed_out(rooms: Sequence[float], left_cores: float) -> list[float]:
    """What is left, evenly, each job up to the room it has, shape (jobs,)."""
    shares = even_shares(rooms, max(0.0, left_cores))
    return [min(share, room) for share, room in zip(shares, rooms, strict=True)]
