"""Moves jobs whose promise (objective or deadline) their node cannot keep; for `dqoes` and `deadline`.

A job is a candidate once its node could not keep its promise at so many evaluations in a row (`JobMemory.unmet`, which
`node_passes.py` counts), and the evaluation at hand is one of them. The cheapest move comes first; it goes to the
fullest node whose free CPU, beside the needs that are kept there, is its need. At most one job leaves a node at an
evaluation: the next evaluation sees what its CPU did for the others. On its new node the count begins again. The pods
of a Job move together, to a node on which all their needs fit.

Worked example: on n1, of one core, needs of 0.7 and 0.5; on n2 one of 0.4. After three evaluations the job with 0.5
moves to n2, and all three are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from slopewise.estimators.move_cost import cost_of
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Migrate, Node
from slopewise.policies.shared.need_placement import Rooms
from slopewise.policies.shared.placement import can_move, refused_nodes

NeedThere = Callable[[Job, JobMemory, Node, float], float | None]
"""The cores with which the job keeps its promise on another node, after a move that takes so many seconds; None: with
none, or it is not known."""


class _Candidate(NamedTuple):
    """A job that may be moved with all pods of its workload, and what that costs."""

    job: Job
    evaluations: int
    pods: tuple[Job, ...]
    """Itself among them."""
    away_seconds: float
    """Until the last of them is back."""
    cost_seconds: float


def moves_for_promises(
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    rooms: Rooms,
    need_there: NeedThere,
    *,
    promise: str,
    evaluations: int,
) -> tuple[Migrate, ...]:
    """The moves of this evaluation; `memory` is that after it, the rooms are updated.

    `rooms` is asked only where there are candidates. `promise`: `objective` or `deadline`, for the reason and for
    `Migrate.relieves`.
    """
    if not (candidates := _candidates(snapshot, memory, evaluations)):
        return ()
    free_on, memory_room = rooms(), snapshot.memory_room_bytes()
    awaited = _awaited(snapshot)
    moves: list[Migrate] = []
    left: set[str] = set()
    for each in candidates:
        leaves, reserved = (
            {pod.node for pod in each.pods},
            math.fsum(pod.memory_request_bytes or 0.0 for pod in each.pods),
        )
        if not left.isdisjoint(leaves):
            continue
        refused = {name for pod in each.pods for name in refused_nodes(pod)}
        fits = [
            (free_on[node.name].free_cores, node.name, needs)
            for node in snapshot.nodes
            if node.name not in leaves | refused | awaited
            and reserved <= memory_room[node.name]
            and (needs := _needs_there(each, node, memory, need_there)) is not None
            and math.fsum(needs) <= free_on[node.name].free_cores
        ]
        if not fits:
            continue
        free, target, needs = min(fits)
        wants = "needs" if len(each.pods) == 1 else f"its {len(each.pods)} pods need"
        reason = (
            f"{each.job.node} has not kept its {promise} at {each.evaluations} evaluations in a row: "
            f"{wants} {math.fsum(needs):.3g} cores, {target} has {free:.3g} free"
        )
        moves += [Migrate(pod.uid, pod.node, target, reason, relieves=promise) for pod in each.pods]
        left |= leaves
        for need in needs:
            free_on[target].add(need)
        memory_room[target] -= reserved
    return tuple(moves)


def _needs_there(
    candidate: _Candidate, node: Node, memory: MemoryState, need_there: NeedThere
) -> tuple[float, ...] | None:
    """What each pod needs there; None: one of them cannot be kept, or its need is not known."""
    needs = [need_there(pod, memory.jobs[pod.uid], node, candidate.away_seconds) for pod in candidate.pods]
    known = tuple(need for need in needs if need is not None)
    return known if len(known) == len(needs) else None


def _candidates(snapshot: ClusterSnapshot, memory: MemoryState, evaluations: int) -> Sequence[_Candidate]:
    """Jobs that may leave at this evaluation, cheapest move first."""
    now = snapshot.taken_at_seconds
    found = []
    for job in snapshot.jobs:
        unmet = memory.jobs[job.uid].unmet
        if unmet is None or unmet.evaluations < evaluations or unmet.at_seconds != now or unmet.node != job.node:
            continue
        if can_move(job) and (pods := _moving_with(job, snapshot)):
            costs = [cost_of(pod, memory.jobs[pod.uid], 1.0, now) for pod in pods]
            away, total = (
                max(cost.unweighted_seconds for cost in costs),
                math.fsum(cost.total_seconds for cost in costs),
            )
            found.append(_Candidate(job, unmet.evaluations, pods, away, total))
    return sorted(found, key=lambda each: (each.cost_seconds, each.job.uid))


def _moving_with(job: Job, snapshot: ClusterSnapshot) -> tuple[Job, ...]:
    """The pods of its workload, which move together, in order of uid; none where they cannot.

    A Job is suspended whole. The pods of other owners would be evicted one by one, which for replicas of one server is
    an outage of all of them.
    """
    if job.movability is None or len(job.movability.members) < 2:
        return (job,)
    uids = set(job.movability.members)
    pods = sorted((each for each in snapshot.jobs if each.uid in uids), key=lambda each: each.uid)
    together = len(pods) == len(uids) and job.movability.way == "suspend" and all(map(can_move, pods))
    return tuple(pods) if together else ()


def _awaited(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Nodes to which a job is on its way that is on no node yet: its need does not show."""
    here = {job.uid for job in snapshot.jobs}
    return frozenset(move.node for move in snapshot.moving if move.job_uid not in here)
