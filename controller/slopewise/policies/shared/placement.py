"""Places arriving jobs at least cost, and lists which jobs may move; for policies that place or move jobs.

A policy hands `place_each` a cost for a job on a node and a function that counts the job there once it is placed;
arrivals are placed one after another, so that each cost includes those before. A job whose memory fits nowhere gets no
`Place`, and the default scheduler decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from slopewise.model import Arrival, ClusterSnapshot, Job, JobState, MemoryState, Node, Place

Cost = Callable[[Arrival, Node], float]
"""What it costs to place this job on this node now, in a unit of the policy's own; the smallest wins."""

Order = Callable[[Arrival], float]
"""Which arrival is placed first: the one with the smallest figure."""

Placed = Callable[[Arrival, Node], str]
"""Counts the job on the node that was chosen for it, and says why it was chosen."""


def _arrived_at(arrival: Arrival) -> float:
    return arrival.arrived_at_seconds


def place_each(
    snapshot: ClusterSnapshot, memory: MemoryState, cost: Cost, placed: Placed, order: Order = _arrived_at
) -> tuple[Place, ...]:
    """Each waiting job, in order (of arrival, or as given), on the node of least cost that its memory fits.

    Ties go to the lowest measured CPU fraction, then to the first name. Infinite costs rule a node out, as does a node
    that would not take the job.
    """
    nodes = by_cpu_fraction(snapshot, memory)
    room = snapshot.memory_room_bytes()
    places = []
    for arrival in sorted(snapshot.waiting, key=lambda arrival: (order(arrival), arrival.uid)):
        needed = arrival.memory_request_bytes or 0.0
        costs = [
            (cost(arrival, node), index)
            for index, node in enumerate(nodes)
            if room[node.name] >= needed and node.name not in arrival.refused_nodes
        ]
        cheapest, index = min(costs, default=(math.inf, 0))
        if cheapest == math.inf:
            continue
        node = nodes[index]
        room[node.name] -= needed
        places.append(Place(arrival.uid, node.name, placed(arrival, node)))
    return tuple(places)


def can_move(job: Job) -> bool:
    """True when it could be moved now."""
    return blocked_reason_on(job) is None


def blocked_reason_on(job: Job) -> str | None:
    """Why a running job cannot be moved now; None: it says that it checkpoints, trains, and can come back elsewhere.

    A job whose last move could not be begun is left out as well, so that the policy chooses another one.
    """
    if not job.migratable or job.state is not JobState.TRAINING:
        return "it does not say that it may be moved now"
    return None if job.movability is None else job.movability.blocked_reason or job.movability.backoff_reason


def refused_nodes(job: Job) -> Mapping[str, str]:
    """The nodes that would not take a running job, by name, and why."""
    return {} if job.movability is None else job.movability.refused_nodes


def by_cpu_fraction(snapshot: ClusterSnapshot, memory: MemoryState) -> list[Node]:
    """The nodes, least measured CPU use per core first, then by name."""
    used = cpu_use_cores(snapshot, memory)
    return sorted(snapshot.nodes, key=lambda node: (used[node.name] / node.cpu_cores, node.name))


def cpu_use_cores(snapshot: ClusterSnapshot, memory: MemoryState) -> dict[str, float]:
    """The measured CPU use of each node's jobs together, in cores; a job without a measurement counts as 0."""
    measured: dict[str, list[float]] = {node.name: [] for node in snapshot.nodes}
    for job in snapshot.jobs:
        growth = memory.jobs[job.uid].growth
        if growth is not None and growth.cpu_cores is not None and not job.state.ended:
            measured[job.node].append(growth.cpu_cores)
    return {name: math.fsum(cores) for name, cores in measured.items()}  # fsum: the same in any order of the jobs
