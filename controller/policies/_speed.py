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

FULL_USE_RATIO = 0.9
"""A job that uses this much of what it may is held back by its limit, and by nothing else."""

LEAST_USE_RATIO = 0.5
"""A job that waits for something else is given at most twice the CPU that the line asks for; later looks try more."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job is at which limit."""

    line: pace.Line
    use_ratio: float
    """What it used of what it might, lately: 1 when its limit is all that holds it back."""
    least_cores: float
    """The least limit that the line is asked about."""

    def limit_for(self, seconds: float) -> float | None:
        """The limit in cores at which one step or response takes `seconds`; None when no CPU makes it that fast."""
        cores = pace.cores_for(seconds, self.line)
        return None if cores is None else max(self.least_cores, cores / self.use_ratio)

    def seconds_at(self, limit_cores: float) -> float:
        """Seconds a step or response under this limit."""
        a, b = self.line
        return a + b / (limit_cores * self.use_ratio)


def speed(known: JobMemory, had_cores: float) -> Speed | None:
    """What the job's paces say; None before it was timed. `had_cores`: what it might use meanwhile.

    Where no CPU use was read, it is taken to have used what it might, so that seconds x limit stays the same.
    """
    if not known.paces:
        return None
    line = pace.calibrated(known.paces)
    if line is None:
        return Speed((0.0, known.paces[-1].seconds * had_cores), 1.0, 0.0)
    used = [each.cores for each in known.paces if each.cores is not None]
    return Speed(line, _use_ratio(known, used[-1], had_cores), BEYOND_SEEN_RATIO * min(used))


def _use_ratio(known: JobMemory, used_cores: float, had_cores: float) -> float:
    """What the job used of what it might; 1 where it was held back by that, or was not timed since it changed."""
    resized_at = known.last_resized_at_seconds
    timed_since = resized_at is None or known.paces[-1].at_seconds > resized_at
    ratio = used_cores / had_cores
    return max(LEAST_USE_RATIO, ratio) if timed_since and ratio < FULL_USE_RATIO else 1.0


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
