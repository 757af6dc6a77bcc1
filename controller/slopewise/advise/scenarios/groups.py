"""Groups of recorded jobs: those that ran on the same node at the same time, which are a scenario of one node.

A job that ran alone shares no CPU, and is in none; but for replays by need, which give idle CPU to jobs with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from slopewise.adapters.prometheus.history import Points
from slopewise.advise.scenarios.recorded_jobs import LEAST_CORES, RecordedJob

MAX_GROUP_JOBS = 30
"""A chain of jobs that overlap never ends on a busy node: it is cut after so many."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one node, each of which ran at the same time as another of them."""

    node: str
    cores: float
    jobs: tuple[RecordedJob, ...]

    @property
    def contended(self) -> bool:
        """Whether the jobs could have used more CPU at some moment than the node has."""
        return _at_once(self.jobs, lambda job: job.cores) > self.cores * (1 + 1e-9)

    @property
    def waits_for_cpu(self) -> bool:
        """Whether GPUs of one of the jobs did."""
        return any(job.waits_for_cpu for job in self.jobs)


def groups_of(
    jobs: Iterable[RecordedJob], node_cores: Mapping[str, float], requested: Mapping[str, Points] | None = None
) -> list[Group]:
    """The groups of jobs that shared a node, where it is known which; `node_cores` of those whose size is known.

    `requested`: what all running pods of a node requested at some moments. It makes groups for replays by need: jobs
    alone as well, on known nodes alone, of which pods that are no jobs leave a part.
    """
    by_need = requested is not None
    by_node: dict[str, list[RecordedJob]] = {}
    for job in jobs:
        if job.node in node_cores or (job.node and not by_need):
            by_node.setdefault(job.node, []).append(job)
    found = []
    for node, of_node in sorted(by_node.items()):
        of_node.sort(key=lambda job: (job.from_seconds, job.name))
        cores = node_cores.get(node) or most_used_cores(of_node)
        for chain in _chains(of_node):
            if by_need or len(chain) > 1:
                of_all = None if requested is None else requested.get(node)
                left = cores if of_all is None else _left(cores, of_all, of_node, chain)
                found.append(Group(node, left, tuple(chain)))
    return found


def _left(cores: float, requested: Points, of_node: Sequence[RecordedJob], chain: Sequence[RecordedJob]) -> float:
    """What other pods leave of a node: the median over the moments of these jobs, or the one nearest to their start.

    At least the CPU that the jobs came with, which they did not wait for. Worked example: of 24 cores 14 are requested,
    6 of them by a job: 16 are left to it.
    """
    start, times = chain[0].from_seconds, requested[:, 0]
    within = requested[(times >= start) & (times <= max(job.until_seconds for job in chain))]
    moments = within if len(within) else requested[[np.abs(times - start).argmin()]]
    others = [
        float(total) - sum(job.request_cores or 0.0 for job in of_node if job.from_seconds <= at <= job.until_seconds)
        for at, total in moments
    ]
    came_with = _at_once(chain, lambda job: job.came_with_cores(job.devices))
    return max(cores - max(0.0, median(others)), min(cores, came_with))


def most_used_cores(jobs: Sequence[RecordedJob]) -> float:
    """A node's cores where nothing says them: the most that its jobs used at once, on average over each one's time."""
    return max(LEAST_CORES, _at_once(jobs, lambda job: job.work_cpu_seconds / max(1.0, job.seconds)))


def _at_once(jobs: Iterable[RecordedJob], cores: Callable[[RecordedJob], float]) -> float:
    """The largest sum over the jobs that ran at one moment."""
    changes = sorted(
        change
        for job in jobs
        for rate in (cores(job),)
        for change in ((job.from_seconds, rate), (job.until_seconds, -rate))
    )
    return float(np.cumsum([rate for _, rate in changes]).max(initial=0.0))


def _chains(jobs: Sequence[RecordedJob]) -> list[list[RecordedJob]]:
    """Jobs in order of their start, cut where all have ended, or there are enough."""
    chains: list[list[RecordedJob]] = []
    busy_until = 0.0
    for job in jobs:
        if not chains or job.from_seconds >= busy_until or len(chains[-1]) >= MAX_GROUP_JOBS:
            chains.append([])
            busy_until = 0.0
        chains[-1].append(job)
        busy_until = max(busy_until, job.until_seconds)
    return chains
