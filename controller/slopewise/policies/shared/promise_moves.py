"""Moves jobs whose promise (objective or deadline) their node cannot keep; for `dqoes` and `deadline`.

A job is a candidate once its node could not keep its promise at so many evaluations in a row (`JobMemory.unmet`, which
`node_passes.py` counts), and the evaluation at hand is one of them. The cheapest move comes first; it goes to the
fullest node whose free CPU, beside the needs that are kept there, is its need. At most one job leaves a node at an
evaluation: the next evaluation sees what its CPU did for the others. On its new node the count begins again.

Worked example: on n1, of one core, needs of 0.7 and 0.5; on n2 one of 0.4. After three evaluations the job with 0.5
moves to n2, and all three are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from slopewise.estimators.move_cost import Cost, cost_of
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Migrate, Node
from slopewise.policies.shared.need_placement import Rooms
from slopewise.policies.shared.placement import can_move, refused_nodes

NeedThere = Callable[[Job, JobMemory, Node, float], float | None]
"""The cores with which the job keeps its promise on another node, after a move that takes so many seconds; None: with
none, or it is not known."""


class _Candidate(NamedTuple):
    """A job that may be moved, and what that costs."""

    job: Job
    known: JobMemory
    cost: Cost


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
    moves: dict[str, Migrate] = {}
    for each in candidates:
        job = each.job
        if job.node in moves:
            continue
        fits = [
            (free_on[node.name].free_cores, node.name, need)
            for node in snapshot.nodes
            if node.name not in (job.node, *awaited, *refused_nodes(job))
            and (job.memory_request_bytes or 0.0) <= memory_room[node.name]
            and (need := need_there(job, each.known, node, each.cost.unweighted_seconds)) is not None
            and need <= free_on[node.name].free_cores
        ]
        if not fits:
            continue
        free, target, need = min(fits)
        missed = each.known.unmet.evaluations if each.known.unmet else evaluations
        reason = (
            f"{job.node} has not kept its {promise} at {missed} evaluations in a row: needs {need:.3g} cores, "
            f"{target} has {free:.3g} free"
        )
        moves[job.node] = Migrate(job.uid, job.node, target, reason, relieves=promise)
        free_on[target].add(need)
        memory_room[target] -= job.memory_request_bytes or 0.0
    return tuple(moves.values())


def _candidates(snapshot: ClusterSnapshot, memory: MemoryState, evaluations: int) -> Sequence[_Candidate]:
    """Jobs that may leave at this evaluation, cheapest move first."""
    now = snapshot.taken_at_seconds
    found = []
    for job in snapshot.jobs:
        known = memory.jobs[job.uid]
        unmet = known.unmet
        if unmet is None or unmet.evaluations < evaluations or unmet.at_seconds != now or unmet.node != job.node:
            continue
        if can_move(job) and not _has_siblings(job):
            found.append(_Candidate(job, known, cost_of(job, known, 1.0, now)))
    return sorted(found, key=lambda each: (each.cost.total_seconds, each.job.uid))


def _has_siblings(job: Job) -> bool:
    """The pods of a workload move together, and one alone would be vetoed."""
    return job.movability is not None and len(job.movability.members) > 1


def _awaited(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Nodes to which a job is on its way that is on no node yet: its need does not show."""
    here = {job.uid for job in snapshot.jobs}
    return frozenset(move.node for move in snapshot.moving if move.job_uid not in here)
