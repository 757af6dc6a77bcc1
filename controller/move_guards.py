"""Guards of placements and migrations: which may be carried out, and what else then may not.

The counterpart of `guards.py`, with the same bounds and vetoes; a move cannot be made smaller, so nothing is clamped.
Of the design's list, `disruption budget` comes with the eviction of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.bounds import Bounds, Veto, not_in_canary, paused_by_mode
from controller.guards import CAPACITY, GUARDS
from controller.model import ClusterSnapshot, Job, JobState, Migrate, Move, Resize, Withheld, WithheldMove

MEMORY_CAPACITY = "memory_capacity"
"""The name of the one guard that looks at all moves to a node together."""

MOVING = "moving"
"""A job that is about to leave its node is not resized there."""


def move_paused(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """Only modes Auto and Canary move anything; meanwhile the default scheduler places what arrives."""
    return paused_by_mode(bounds)


def move_canary(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """Mode Canary moves a share of the jobs."""
    return not_in_canary(move.job_uid, bounds)


def unknown_node(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """The target must be there, and must not be where the job is already."""
    if all(node.name != move.node for node in snapshot.nodes):
        return Veto(f"there is no node {move.node}")
    if isinstance(move, Migrate) and move.node == move.from_node:
        return Veto(f"it is on {move.node} already")
    return None


def may_migrate(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """A running job is moved only when it says that it checkpoints, and while it trains."""
    if not isinstance(move, Migrate):
        return None
    job = jobs.get(move.job_uid)
    if job is None or job.state.ended:
        return Veto("job has ended")
    if job.state is JobState.CHECKPOINTING:
        return Veto("job is checkpointing")
    return None if job.migratable else Veto("job does not say that it may be moved")


MOVE_GUARDS = (move_paused, move_canary, unknown_node, may_migrate)


def review_moves(
    moves: Sequence[Move], snapshot: ClusterSnapshot, bounds: Bounds
) -> tuple[tuple[Move, ...], tuple[WithheldMove, ...]]:
    """Which placements and migrations may be carried out, and which may not and why; in the order asked."""
    jobs = {job.uid: job for job in snapshot.jobs}
    room = snapshot.memory_room_bytes()
    needs = {job.uid: job.memory_request_bytes or 0.0 for job in snapshot.jobs}
    needs |= {arrival.uid: arrival.memory_request_bytes or 0.0 for arrival in snapshot.waiting}
    allowed: list[Move] = []
    withheld: list[WithheldMove] = []
    for move in moves:
        veto = _first_veto(move, jobs, snapshot, bounds)
        needed = needs.get(move.job_uid, 0.0)
        if veto is None and needed > room[move.node]:
            gib = 2.0**30
            figure = f"needs {needed / gib:.3g} GiB, {move.node} has {max(0.0, room[move.node]) / gib:.3g} GiB left"
            veto = (MEMORY_CAPACITY, figure)
        if veto is not None:
            withheld.append(WithheldMove(move, veto[0], f"{veto[0]}: {veto[1]}"))
            continue
        room[move.node] -= needed
        if isinstance(move, Migrate):
            room[move.from_node] += needed
        allowed.append(move)
    return tuple(allowed), tuple(withheld)


def _first_veto(
    move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds
) -> tuple[str, str] | None:
    for guard in MOVE_GUARDS:
        if (veto := guard(move, jobs, snapshot, bounds)) is not None:
            return guard.__name__, veto.reason
    return None


def without_moving(resizes: Sequence[Resize], moves: Sequence[Move]) -> tuple[tuple[Resize, ...], tuple[Withheld, ...]]:
    """The resizes of jobs that stay; what a job has on a node that it leaves now matters to nobody."""
    leaving = {move.job_uid: move.node for move in moves if isinstance(move, Migrate)}
    stay = tuple(resize for resize in resizes if resize.job_uid not in leaving)
    go = tuple(
        Withheld(resize, MOVING, f"{MOVING}: goes to {leaving[resize.job_uid]}")
        for resize in resizes
        if resize.job_uid in leaving
    )
    return stay, go


def guard_names() -> list[str]:
    """All guards in their order, as `withheld` names them."""
    resizing = [MOVING, *(guard.__name__ for guard in GUARDS), CAPACITY]
    return [*resizing, *(guard.__name__ for guard in MOVE_GUARDS), MEMORY_CAPACITY]
