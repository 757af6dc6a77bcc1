"""Guards of placements and migrations: which may be carried out, and what else then may not.

The counterpart of `guards.py`; a move cannot be made smaller, so nothing is clamped. An arriving job meets only
`MOVE_GUARDS` and the memory of its node. A migration meets, besides, the guards of `migration_guards.py` (may this job
go, and there, and now?), and then those of `joint_move_guards.py`, which see the moves of a pass one after another: the
budget of its node, how many are under way, what it gains, and the memory. The pods of one workload are let through
together, or none of them is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller import move_review
from controller.bounds import Bounds, Veto, not_in_canary, paused_by_mode
from controller.guards import CAPACITY, GUARDS
from controller.joint_move_guards import JOINT_GUARDS, Ledger, Together, migrations_of
from controller.migration_guards import MIGRATION_GUARDS, Situation, may_migrate, whole_or_not
from controller.model import (
    ClusterSnapshot,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Move,
    MoveUnderWay,
    Resize,
    Withheld,
    WithheldMove,
)

MOVING = "moving"
"""A job that leaves its node, or is about to, is not resized there."""

ATTEMPTS = "attempts"
"""So many moves of a pass could not be carried out that the others have their turn in the next one."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """What is the same for all moves of a pass."""

    snapshot: ClusterSnapshot
    memory: MemoryState
    bounds: Bounds
    jobs: Mapping[str, Job]
    nodes: frozenset[str]
    refused: Mapping[str, Mapping[str, str]]
    """Nodes that would not take a job, running or arriving, by the job's uid."""
    going: Mapping[str, str]
    """Where each job is to be after this pass, if all goes as wished, by uid."""
    under_way: Mapping[str, str]


# --- guards of every move -------------------------------------------------------------------------------------


def move_paused(move: Move, at: _Pass) -> Veto | None:
    """Only modes Auto and Canary move anything; meanwhile the default scheduler places what arrives."""
    return paused_by_mode(at.bounds)


def move_canary(move: Move, at: _Pass) -> Veto | None:
    """Mode Canary moves a share of the jobs."""
    return not_in_canary(move.job_uid, at.bounds)


def unknown_node(move: Move, at: _Pass) -> Veto | None:
    """The target must be there, and must not be where the job is already."""
    if move.node not in at.nodes:
        return Veto(f"there is no node {move.node}")
    if isinstance(move, Migrate) and move.node == move.from_node:
        return Veto(f"it is on {move.node} already")
    return None


def refused_node(move: Move, at: _Pass) -> Veto | None:
    """Not to a node that would not take it: a taint, a selector, a volume."""
    why = at.refused.get(move.job_uid, {}).get(move.node)
    return None if why is None else Veto(f"{move.node} would not take it: {why}")


MOVE_GUARDS = (move_paused, move_canary, unknown_node, refused_node)


# --- the review -----------------------------------------------------------------------------------------------


def review_moves(
    moves: Sequence[Move],
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    bounds: Bounds,
    begun: Sequence[Move] = (),
) -> tuple[tuple[Move, ...], tuple[WithheldMove, ...]]:
    """Which placements and migrations may be carried out, and which may not and why; in the order asked.

    `begun`: moves that this pass has begun already; what they take, these do not have. The reason of a migration that
    is allowed says what it gains and costs, where moves are bounded.
    """
    if not moves:
        return (), ()
    at = _the_pass(moves, snapshot, memory, bounds)
    ledger = Ledger(snapshot, memory, move_review.awaited(memory, snapshot))
    ledger.enter(begun)
    allowed: list[Move] = []
    withheld: list[WithheldMove] = []
    for unit in units(moves, snapshot):
        refused = _refused_one_by_one(unit, at) or _refused_together(unit, at, ledger, allowed)
        withheld += refused
    return tuple(allowed), tuple(withheld)


def _the_pass(moves: Sequence[Move], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds) -> _Pass:
    jobs = {job.uid: job for job in snapshot.jobs}
    under_way = move_review.under_way(memory, snapshot)
    going = {uid: job.node for uid, job in jobs.items()} | {move.job_uid: move.node for move in moves}
    refused = {job.uid: job.mobility.refused_nodes for job in snapshot.jobs if job.mobility is not None}
    refused |= {arrival.uid: arrival.refused_nodes for arrival in snapshot.waiting}
    nodes = frozenset(node.name for node in snapshot.nodes)
    return _Pass(snapshot, memory, bounds, jobs, nodes, refused, going, under_way)


def units(moves: Sequence[Move], snapshot: ClusterSnapshot) -> list[tuple[Move, ...]]:
    """The moves that are made together, in the order of the first of each: the pods of one workload, to one node."""
    wanted = {move.job_uid for move in moves}
    members_of = {
        job.uid: job.mobility.members for job in snapshot.jobs if job.uid in wanted and job.mobility is not None
    }
    found: dict[tuple[str, ...], list[Move]] = {}
    for move in moves:
        members = members_of.get(move.job_uid, ())
        key = (move.node, *sorted(members)) if len(members) > 1 and isinstance(move, Migrate) else (move.job_uid,)
        found.setdefault(key, []).append(move)
    return [tuple(unit) for unit in found.values()]


def _refused_one_by_one(unit: Sequence[Move], at: _Pass) -> list[WithheldMove]:
    """All of the unit when one of them may not be made; each with its own reason, or that another one may not."""
    vetoes = {move.job_uid: _first_veto(move, at) for move in unit}
    refused = {uid: veto for uid, veto in vetoes.items() if veto is not None}
    if not refused:
        return []
    uid, (_, why) = next(iter(refused.items()))
    whose = at.jobs[uid].name if uid in at.jobs else uid
    others = (whole_or_not.__name__, f"moves whole or not at all, and {whose} may not: {why}")
    return [withheld_by(move, *refused.get(move.job_uid, others)) for move in unit]


def _refused_together(unit: Sequence[Move], at: _Pass, ledger: Ledger, allowed: list[Move]) -> list[WithheldMove]:
    """All of the unit when it may not be made; else it is added to what is allowed, with its figures."""
    together = Together(tuple(unit), ledger, at.bounds.moving)
    figures = ""
    for guard in JOINT_GUARDS:
        verdict = guard(together)
        if isinstance(verdict, Veto):
            return [withheld_by(move, guard.__name__, verdict.reason) for move in unit]
        figures += f"; {verdict}" if verdict else ""
    ledger.enter(unit)
    allowed += [replace(move, reason=f"{move.reason}{figures}") if figures else move for move in unit]
    return []


def _first_veto(move: Move, at: _Pass) -> tuple[str, str] | None:
    for guard in MOVE_GUARDS:
        if (veto := guard(move, at)) is not None:
            return guard.__name__, veto.reason
    if not isinstance(move, Migrate):
        return None
    job = at.jobs.get(move.job_uid)
    if (veto := may_migrate(job)) is not None:
        return may_migrate.__name__, veto.reason
    if job is None or at.bounds.moving is None:
        return None
    known = at.memory.jobs.get(move.job_uid) or JobMemory()
    here = Situation(job, known, at.bounds.moving, at.snapshot.taken_at_seconds, at.going, at.under_way)
    for rule in MIGRATION_GUARDS:
        if (veto := rule(move, here)) is not None:
            return rule.__name__, veto.reason
    return None


def withheld_by(move: Move, guard: str, reason: str) -> WithheldMove:
    """A move that this guard holds back."""
    return WithheldMove(move, guard, f"{guard}: {reason}")


def without_moving(
    resizes: Sequence[Resize], moves: Sequence[Move], under_way: Sequence[MoveUnderWay] = ()
) -> tuple[tuple[Resize, ...], tuple[Withheld, ...]]:
    """The resizes of jobs that stay; what a job has on a node that it leaves now matters to nobody."""
    leaving = {each.job_uid: each.node for each in under_way}
    leaving |= {move.job_uid: move.node for move in migrations_of(moves)}
    if not leaving:
        return tuple(resizes), ()
    stay = tuple(resize for resize in resizes if resize.job_uid not in leaving)
    go = tuple(
        Withheld(resize, MOVING, f"{MOVING}: goes to {leaving[resize.job_uid] or 'where it fits'}")
        for resize in resizes
        if resize.job_uid in leaving
    )
    return stay, go


def guard_names() -> list[str]:
    """All guards in their order, as `withheld` names them."""
    resizing = [MOVING, *(guard.__name__ for guard in GUARDS), CAPACITY]
    moving = [*MOVE_GUARDS, may_migrate, *MIGRATION_GUARDS, *JOINT_GUARDS]
    return [*resizing, *(guard.__name__ for guard in moving), ATTEMPTS]
