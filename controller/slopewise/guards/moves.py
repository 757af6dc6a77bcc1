"""Guards of placements and migrations: each alone, and then those of a workload's pods together.

A move is allowed or vetoed, never clamped. A placement passes `MOVE_GUARDS` and the memory of its node. A migration
passes `guards/migrations.py` as well (may this job go there now?), and then `guards/move_budgets.py`, which sees the
moves of a pass one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slopewise.guards.context import PassContext
from slopewise.guards.framework import Guard, Refusal, Stage, routine
from slopewise.guards.migrations import MIGRATION_GUARDS, MigrationContext
from slopewise.guards.move_budgets import JOINT_GUARDS, Unit, UnitContext
from slopewise.model import ClusterSnapshot, JobState, Migrate, Move, Veto


def unknown_node(context: PassContext, move: Move) -> Move | Veto:
    """The target exists, and is another node."""
    if move.node not in context.nodes:
        return Veto(f"there is no node {move.node}")
    if isinstance(move, Migrate) and move.node == move.from_node:
        return Veto(f"it is on {move.node} already")
    return move


def refused_node(context: PassContext, move: Move) -> Move | Veto:
    """The node accepts the job: taints, selectors, volumes."""
    reason = context.refused.get(move.job_uid, {}).get(move.node)
    return move if reason is None else Veto(f"{move.node} would not take it: {reason}")


@routine()
def may_migrate(context: PassContext, move: Move) -> Move | Veto:
    """A running job is moved only when its owner allows it, and while it trains."""
    if not isinstance(move, Migrate):
        return move
    job = context.jobs.get(move.job_uid)
    if job is None or job.state.ended:
        return Veto("job has ended")
    if job.state is JobState.CHECKPOINTING:
        return Veto("job is checkpointing")
    return move if job.migratable else Veto("job does not say that it may be moved")


MOVE_GUARDS: tuple[Guard[PassContext, Move], ...] = (
    unknown_node,
    refused_node,
    may_migrate,
)


def stages(whole: PassContext, move: Move) -> Iterator[Stage]:
    """The guards of a move alone, and what they are given."""
    yield MOVE_GUARDS, whole
    if isinstance(move, Migrate) and whole.bounds.moving is not None:
        job, now = whole.jobs[move.job_uid], whole.snapshot.taken_at_seconds
        context = MigrationContext(job, whole.known(job.uid), whole.bounds.moving, now, whole.going, whole.under_way)
        yield MIGRATION_GUARDS, context


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


def together(unit: Unit, whole: PassContext) -> Unit | Refusal:
    """The unit with the gain and cost of its migrations in their reasons, counted as allowed; or the first veto."""
    context = UnitContext(whole.ledger, whole.bounds.moving)
    for guard in JOINT_GUARDS:
        verdict = guard(context, unit)
        if isinstance(verdict, Veto):
            return Refusal(guard.__name__, verdict.reason)
        unit = verdict
    whole.ledger.enter(unit)
    return unit
