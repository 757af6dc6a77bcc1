"""Guards of placements and migrations: each alone, and then those of a workload's pods together.

A move is allowed or vetoed, never clamped; a veto has its figure and bound. A placement passes `MOVE_GUARDS` and the
memory of its node. A migration passes `MIGRATION_GUARDS` as well (may this job leave its node, go to that one, and
now?), and then `guards/move_budgets.py`, which sees the moves of a pass one after another. Policies without bounds on
moves (the papers', in the simulator) do not meet those of migrations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slopewise.estimators.move_cost import UNMEASURED_SAVING_SECONDS
from slopewise.guards.context import PassContext
from slopewise.guards.framework import Guard, Refusal, Stage, routine
from slopewise.guards.move_budgets import JOINT_GUARDS, Unit, UnitContext
from slopewise.model import Checkpoint, ClusterSnapshot, Job, JobMemory, JobState, Migrate, Move, MoveBounds, Veto

GRACE_FACTOR = 1.5
GRACE_SPARE_SECONDS = 2.0
"""A checkpoint of 10 s needs a grace period of more than 17 s: disks are slower when several jobs leave at once, and
the current step ends first."""

CLOCK_SKEW_SECONDS = 60.0
"""Clocks of two nodes differ by less. A checkpoint from further in the future has no known age."""


@dataclass(frozen=True, slots=True)
class MigrationContext:
    """The inputs of a guard of one migration."""

    job: Job
    known: JobMemory
    limits: MoveBounds
    now_seconds: float
    going: Mapping[str, str]
    """The node of every job after this pass, if all its moves are made, by uid."""
    under_way: Mapping[str, str]
    """The target of every job that is being moved already, by uid."""


@routine()
def migration_disabled(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """Only with `spec.migration.enabled`."""
    return move if context.limits.enabled else Veto("spec.migration.enabled is false")


def move_blocked(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """A job that cannot be moved, or whose last move failed, is not moved."""
    movability, moves = context.job.movability, context.known.moves
    if movability is not None and movability.blocked_reason is not None:
        return Veto(movability.blocked_reason)
    if moves and moves[-1].failure is not None:
        return Veto(f"not moved again: {moves[-1].failure}")
    return move


@routine()
def move_backoff(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """A job whose last move could not begin is in back-off."""
    movability = context.job.movability
    return move if movability is None or movability.backoff_reason is None else Veto(movability.backoff_reason)


def resize_backoff(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """A job that regressed after a resize is in back-off. `ineligible_reason` is about resizes and does not count."""
    until = context.known.backoff.until_seconds
    left = 0.0 if until is None else until - context.now_seconds
    return move if left <= 0 else Veto(f"for another {left:.0f} s: {context.known.backoff.reason}")


@routine()
def under_way(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """One move at a time."""
    target = context.under_way.get(move.job_uid)
    return move if target is None else Veto(f"it is being moved to {target or 'where it fits'} already")


@routine()
def all_or_nothing(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """The pods of a workload move to one node together, or none does."""
    members = context.job.movability.members if context.job.movability is not None else ()
    together = sum(context.going.get(uid) == move.node for uid in members)
    if len(members) < 2 or together == len(members):
        return move
    return Veto(f"moves whole or not at all: {together} of {len(members)} pods")


@routine()
def minimum_stay(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """A job stays on a node for a while before it is moved, or moved again."""
    since = context.job.started_at_seconds
    if context.known.moves:
        last = context.known.moves[-1]
        since = max(since, last.resumed_at_seconds or last.at_seconds)
    stayed, bound = context.now_seconds - since, context.limits.min_stay_seconds
    return move if stayed >= bound else Veto(f"on {move.from_node} for {max(0.0, stayed):.0f} s, bound {bound:.0f} s")


@routine()
def no_return(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """Not back to the node that it left, within the horizon and two minimum stays."""
    if not context.known.moves or context.known.moves[-1].from_node != move.node:
        return move
    since = context.now_seconds - context.known.moves[-1].at_seconds
    bound = max(2 * context.limits.min_stay_seconds, context.limits.horizon_seconds)
    return move if since >= bound else Veto(f"left {move.node} {since:.0f} s ago, bound {bound:.0f} s")


def checkpoint(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """A trainer that saves on SIGTERM, or a fresh checkpoint. A model that only serves has nothing to save."""
    if context.job.only_serves:
        return move
    bound = context.limits.max_checkpoint_age_seconds
    reason = unsaved_reason(context.job.checkpoint, bound, context.now_seconds)
    return move if reason is None else Veto(reason)


def unsaved_reason(saved: Checkpoint | None, max_age_seconds: float, now_seconds: float) -> str | None:
    """Why too much work of a job would be lost if it ended now; None: it saves on SIGTERM, or has saved lately."""
    if saved is None or (saved.saved_at_seconds is None and not saved.on_sigterm):
        return "it reports no checkpoint: training_checkpoint_on_sigterm 1, or training_checkpoint_timestamp_seconds"
    if saved.on_sigterm or saved.saved_at_seconds is None:
        return None
    age = now_seconds - saved.saved_at_seconds
    if age < -CLOCK_SKEW_SECONDS:
        return f"the last one is {-age:.0f} s in the future, bound {CLOCK_SKEW_SECONDS:.0f} s"
    return None if age <= max_age_seconds else f"the last one is {age:.0f} s old, bound {max_age_seconds:.0f} s"


def grace(context: MigrationContext, move: Migrate) -> Migrate | Veto:
    """The grace period has to cover a checkpoint on SIGTERM."""
    given = context.job.movability.grace_seconds if context.job.movability is not None else None
    reason = short_grace_reason(context.job.checkpoint, given)
    return move if reason is None else Veto(reason)


def short_grace_reason(saved: Checkpoint | None, given_seconds: float | None) -> str | None:
    """Why a grace period does not cover a checkpoint on SIGTERM. Worked example: it takes 10 s, so more than 17 s."""
    if given_seconds is None or saved is None or not saved.on_sigterm:
        return None
    takes = UNMEASURED_SAVING_SECONDS if saved.duration_seconds is None else saved.duration_seconds
    bound = GRACE_FACTOR * takes + GRACE_SPARE_SECONDS
    if given_seconds > bound:
        return None
    return f"it is given {given_seconds:.3g} s to end, bound {bound:.3g} s for a checkpoint of {takes:.3g} s"


MIGRATION_GUARDS: tuple[Guard[MigrationContext, Migrate], ...] = (
    migration_disabled,
    move_blocked,
    move_backoff,
    resize_backoff,
    under_way,
    all_or_nothing,
    minimum_stay,
    no_return,
    checkpoint,
    grace,
)


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


MOVE_GUARDS: tuple[Guard[PassContext, Move], ...] = (unknown_node, refused_node, may_migrate)


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
