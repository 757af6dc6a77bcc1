"""Guards of placements and migrations, and the review of all moves of a pass.

A move is allowed or vetoed, never clamped. A placement passes `MOVE_GUARDS` and the memory of its node. A migration
passes `guards/migrations.py` as well (may this job go there now?), and then `guards/move_budgets.py`, which sees the
moves of a pass one after another. The pods of a workload are allowed together, or none is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slopewise.feedback import move_tracking
from slopewise.guards.at_target import STOP_GUARDS, STOPPING
from slopewise.guards.migrations import MIGRATION_GUARDS, MigrationContext, all_or_nothing
from slopewise.guards.move_budgets import JOINT_GUARDS, Ledger, Unit, UnitContext, migrations_of
from slopewise.guards.permission import not_in_canary, paused_by_mode, under_a_freeze
from slopewise.guards.resize import (
    CAPACITY,
    GUARDS,
    Guard,
    Refusal,
    apply_guards,
    withheld_by,
)
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Move,
    MoveUnderWay,
    Place,
    Resize,
    Veto,
    Withheld,
)

MOVING = "moving"
"""Name of the guard that withholds resizes of jobs that leave their node."""

ATTEMPTS = "attempts"
"""Name of the guard that withholds moves after too many failed attempts in a pass."""


@dataclass(frozen=True, slots=True)
class MoveContext:
    """The inputs of a guard of one move; the same for all moves of a pass."""

    snapshot: ClusterSnapshot
    memory: MemoryState
    bounds: Bounds
    jobs: Mapping[str, Job]
    nodes: frozenset[str]
    refused: Mapping[str, Mapping[str, str]]
    """Nodes that do not accept a job, running or arriving, by the job's uid."""
    going: Mapping[str, str]
    """The node of each job after this pass, if all its moves are made, by uid."""
    under_way: Mapping[str, str]
    namespaces: Mapping[str, str]
    """Of running and of arriving jobs, by uid."""


# --- guards of every move -------------------------------------------------------------------------------------


def move_paused(context: MoveContext, move: Move) -> Move | Veto:
    """Only modes Auto and Canary move; in others the default scheduler places arrivals."""
    return paused_by_mode(context.bounds) or move


def move_canary(context: MoveContext, move: Move) -> Move | Veto:
    """Mode Canary moves a share of the jobs."""
    return not_in_canary(move.job_uid, context.bounds) or move


def move_frozen(context: MoveContext, move: Move) -> Move | Veto:
    """No job leaves or enters what is frozen; the default scheduler places arrivals meanwhile."""
    namespace = context.namespaces.get(move.job_uid, "")
    here = () if isinstance(move, Place) else (move.from_node,)
    return under_a_freeze(context.snapshot, namespace, move.node, *here) or move


def unknown_node(context: MoveContext, move: Move) -> Move | Veto:
    """The target exists, and is another node."""
    if move.node not in context.nodes:
        return Veto(f"there is no node {move.node}")
    if isinstance(move, Migrate) and move.node == move.from_node:
        return Veto(f"it is on {move.node} already")
    return move


def refused_node(context: MoveContext, move: Move) -> Move | Veto:
    """The node accepts the job: taints, selectors, volumes."""
    reason = context.refused.get(move.job_uid, {}).get(move.node)
    return move if reason is None else Veto(f"{move.node} would not take it: {reason}")


def may_migrate(context: MoveContext, move: Move) -> Move | Veto:
    """A running job is moved only when its owner allows it, and while it trains."""
    if not isinstance(move, Migrate):
        return move
    job = context.jobs.get(move.job_uid)
    if job is None or job.state.ended:
        return Veto("job has ended")
    if job.state is JobState.CHECKPOINTING:
        return Veto("job is checkpointing")
    return move if job.migratable else Veto("job does not say that it may be moved")


MOVE_GUARDS: tuple[Guard[MoveContext, Move], ...] = (
    move_paused,
    move_canary,
    move_frozen,
    unknown_node,
    refused_node,
    may_migrate,
)


# --- the review -----------------------------------------------------------------------------------------------


def review_moves(
    moves: Sequence[Move],
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    bounds: Bounds,
    begun: Sequence[Move] = (),
) -> tuple[tuple[Move, ...], tuple[Withheld[Move], ...]]:
    """Placements and migrations that may be carried out, and withheld ones with their reasons; in order.

    `begun`: moves that this pass has begun already, which use up budgets. The reason of an allowed migration has its
    gain and cost, where moves are bounded.
    """
    if not moves:
        return (), ()
    context = _the_pass(moves, snapshot, memory, bounds)
    ledger = Ledger(snapshot, memory, move_tracking.awaited(memory, snapshot))
    ledger.enter(begun)
    allowed: list[Move] = []
    withheld: list[Withheld[Move]] = []
    for unit in units(moves, snapshot):
        refused = _refused_one_by_one(unit, context) or _refused_together(unit, context, ledger, allowed)
        withheld += refused
    return tuple(allowed), tuple(withheld)


def _the_pass(moves: Sequence[Move], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds) -> MoveContext:
    jobs = {job.uid: job for job in snapshot.jobs}
    under_way = move_tracking.under_way(memory, snapshot)
    going = {uid: job.node for uid, job in jobs.items()} | {move.job_uid: move.node for move in moves}
    refused = {job.uid: job.movability.refused_nodes for job in snapshot.jobs if job.movability is not None}
    refused |= {arrival.uid: arrival.refused_nodes for arrival in snapshot.waiting}
    nodes = frozenset(node.name for node in snapshot.nodes)
    namespaces = {job.uid: job.namespace for job in snapshot.jobs}
    namespaces |= {arrival.uid: arrival.namespace for arrival in snapshot.waiting}
    return MoveContext(snapshot, memory, bounds, jobs, nodes, refused, going, under_way, namespaces)


def units(moves: Sequence[Move], snapshot: ClusterSnapshot) -> list[Unit]:
    """The moves that are made together, in the order of the first of each: the pods of one workload, to one node."""
    wanted = {move.job_uid for move in moves}
    members_of = {
        job.uid: job.movability.members for job in snapshot.jobs if job.uid in wanted and job.movability is not None
    }
    found: dict[tuple[str, ...], list[Move]] = {}
    for move in moves:
        members = members_of.get(move.job_uid, ())
        key = (move.node, *sorted(members)) if len(members) > 1 and isinstance(move, Migrate) else (move.job_uid,)
        found.setdefault(key, []).append(move)
    return [tuple(unit) for unit in found.values()]


def _refused_one_by_one(unit: Sequence[Move], context: MoveContext) -> list[Withheld[Move]]:
    """The whole unit when one of its moves is vetoed; each with its own reason, or that of the vetoed one."""
    verdicts = {move.job_uid: _verdict(context, move) for move in unit}
    refused = {uid: verdict for uid, verdict in verdicts.items() if isinstance(verdict, Refusal)}
    if not refused:
        return []
    uid, (_, reason) = next(iter(refused.items()))
    whose = context.jobs[uid].name if uid in context.jobs else uid
    others = Refusal(all_or_nothing.__name__, f"moves whole or not at all, and {whose} may not: {reason}")
    return [withheld_by(move, refused.get(move.job_uid, others)) for move in unit]


def _refused_together(unit: Unit, context: MoveContext, ledger: Ledger, allowed: list[Move]) -> list[Withheld[Move]]:
    """The whole unit when it is vetoed; else it is added to `allowed`."""
    verdict = apply_guards(JOINT_GUARDS, UnitContext(ledger, context.bounds.moving), unit)
    if isinstance(verdict, Refusal):
        return [withheld_by(move, verdict) for move in unit]
    ledger.enter(verdict)
    allowed += verdict
    return []


def _verdict(context: MoveContext, move: Move) -> Move | Refusal:
    verdict = apply_guards(MOVE_GUARDS, context, move)
    if not isinstance(verdict, Migrate) or context.bounds.moving is None:
        return verdict
    job, known = context.jobs[move.job_uid], context.memory.jobs.get(move.job_uid) or JobMemory()
    now = context.snapshot.taken_at_seconds
    migration = MigrationContext(job, known, context.bounds.moving, now, context.going, context.under_way)
    return apply_guards(MIGRATION_GUARDS, migration, verdict)


def without_moving(
    resizes: Sequence[Resize], moves: Sequence[Move], under_way: Sequence[MoveUnderWay] = ()
) -> tuple[tuple[Resize, ...], tuple[Withheld[Resize], ...]]:
    """The resizes of jobs that stay, and the withheld ones of jobs that leave their node."""
    leaving = {each.job_uid: each.node for each in under_way}
    leaving |= {move.job_uid: move.node for move in migrations_of(moves)}
    if not leaving:
        return tuple(resizes), ()
    stay = tuple(resize for resize in resizes if resize.job_uid not in leaving)
    go = tuple(
        withheld_by(resize, Refusal(MOVING, f"goes to {leaving[resize.job_uid] or 'where it fits'}"))
        for resize in resizes
        if resize.job_uid in leaving
    )
    return stay, go


def guard_names() -> list[str]:
    """All guards in their order, as `withheld` names them."""
    resizing = [MOVING, *(guard.__name__ for guard in GUARDS), CAPACITY]
    moving = [guard.__name__ for guard in (*MOVE_GUARDS, *MIGRATION_GUARDS, *JOINT_GUARDS)]
    stopping = [STOPPING, *(guard.__name__ for guard in STOP_GUARDS)]
    return [*resizing, *moving, ATTEMPTS, *stopping]
