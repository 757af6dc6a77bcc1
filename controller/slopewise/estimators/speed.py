"""Speed: the CPU limit at which a job reaches a pace, from the paces that were measured.

`pace.calibrated` is about CPU used, this about limits. Plain arithmetic for one job at a time: for a dozen figures
arrays cost more than they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slopewise.estimators import pace
from slopewise.model import Job, JobMemory, Node, Pace

BEYOND_SEEN_RATIO = 0.5
"""No limit below half the least CPU at which the job was ever timed: the line says little of what lies beyond."""

MAX_BUSY_RATIO = 0.8
"""A served model that waits for requests keeps the CPU with which it is at work for so much of the time: its requests
come whether or not the former ones were answered, and with less CPU than they take they would pile up."""

WAITING_RATIO = 0.9
"""A model that is at work for less of the time waits for requests. One whose client waits for each answer before it
sends the next request is at work for 0.95 and more."""


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


def measured_speed(known: JobMemory) -> Speed | None:
    """What the job's paces say; None before it was timed, and where no CPU use was read."""
    line = pace.calibrated(known.paces)
    if line is None:
        return None
    beyond_seen = BEYOND_SEEN_RATIO * min(each.cores for each in known.paces if each.cores is not None)
    return Speed(line, max(beyond_seen, _demanded_cores(known.paces)))


def _demanded_cores(paces: Sequence[Pace]) -> float:
    """The least CPU that leaves a model enough time to wait, by the busiest interval in which it waited; 0: in none.

    Worked example: half a core for 60 % of the time is 0.3 cores on average, and 0.375 for 80 % of the time.
    """
    waited = [each for each in paces if each.busy_ratio < WAITING_RATIO]
    return max(((each.cores or 0.0) * min(1.0, each.busy_ratio / MAX_BUSY_RATIO) for each in waited), default=0.0)


def useful_cores(job: Job, node: Node) -> float:
    """What the job can make use of on this node, in cores: all of it, unless it says less."""
    return min(node.cpu_cores, job.useful_parallelism_cores or node.cpu_cores)


def stated_cores(owner_cores: float | None, useful_threads: float | None) -> float | None:
    """CPU beyond which a job is no faster, in cores: what its owner states, or fewer threads. None: neither is known.

    `useful_threads`: what its process may have at most, and found faster; a number that follows the CPU is no bound.
    """
    return min((each for each in (owner_cores, useful_threads) if each is not None), default=None)


def steps_left(job: Job) -> float | None:
    """Planned steps that are not done; None: none are planned, or the job does not count them."""
    if job.steps_planned is None or job.steps_total is None:
        return None
    return job.steps_planned - job.steps_total
