"""Guards of one migration: may this job go at all, there, and now? Every veto names its figure and its bound.

Before it: `move_guards`, which asks these one after another, and then looks at the moves of a pass together. Who moves
jobs without bounds (the papers' policies in the simulator) meets only `may_migrate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.bounds import MoveBounds, Veto
from controller.model import Job, JobMemory, JobState, Migrate
from controller.move_gain import UNMEASURED_SAVING_SECONDS

GRACE_FACTOR = 1.5
GRACE_SPARE_SECONDS = 2.0
"""A checkpoint of 10 s gets a grace period of more than 17 s: disks are slower when several jobs leave at once, and the
step that is under way ends first."""

CLOCK_SKEW_SECONDS = 60.0
"""The clocks of two nodes differ by less. Nobody knows the age of a checkpoint from further in the future: one from
next month would count as fresh for a month."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a guard may look at for one migration."""

    job: Job
    known: JobMemory
    limits: MoveBounds
    now_seconds: float
    going: Mapping[str, str]
    """Where every job is to be after this pass, if all goes as wished, by uid."""
    under_way: Mapping[str, str]
    """Where every job that is being moved already goes, by uid."""


def workload_of(job_uid: str) -> str:
    """What is the same for all pods of a workload."""
    return job_uid.partition(":")[0]


def may_migrate(job: Job | None) -> Veto | None:
    """A running job is moved only when it says that it checkpoints, and while it trains."""
    if job is None or job.state.ended:
        return Veto("job has ended")
    if job.state is JobState.CHECKPOINTING:
        return Veto("job is checkpointing")
    return None if job.migratable else Veto("job does not say that it may be moved")


def migration_disabled(move: Migrate, at: Situation) -> Veto | None:
    """Running jobs are moved only where the user has said so."""
    return None if at.limits.enabled else Veto("spec.migration.enabled is false")


def stays(move: Migrate, at: Situation) -> Veto | None:
    """A job that could not come back, or that an earlier move has harmed, is not moved."""
    mobility, moves = at.job.mobility, at.known.moves
    if mobility is not None and mobility.stays_because is not None:
        return Veto(mobility.stays_because)
    if moves and moves[-1].harm is not None:
        return Veto(f"not moved again: {moves[-1].harm}")
    return None


def move_backoff(move: Migrate, at: Situation) -> Veto | None:
    """A job whose last move could not be begun waits until something has changed, or a while is over."""
    mobility = at.job.mobility
    return None if mobility is None or mobility.backoff_reason is None else Veto(mobility.backoff_reason)


def move_left_alone(move: Migrate, at: Situation) -> Veto | None:
    """A job that a change has harmed is left alone for a while. `hands_off` is about resizing, and does not count."""
    until = at.known.alone_until_seconds
    left = 0.0 if until is None else until - at.now_seconds
    return None if left <= 0 else Veto(f"for another {left:.0f} s: {at.known.alone_because}")


def under_way(move: Migrate, at: Situation) -> Veto | None:
    """One move at a time."""
    target = at.under_way.get(move.job_uid)
    return None if target is None else Veto(f"it is being moved to {target or 'where it fits'} already")


def whole_or_not(move: Migrate, at: Situation) -> Veto | None:
    """The pods of one workload move to one node together, or not at all."""
    members = at.job.mobility.members if at.job.mobility is not None else ()
    together = sum(at.going.get(uid) == move.node for uid in members)
    if len(members) < 2 or together == len(members):
        return None
    return Veto(f"moves whole or not at all: {together} of {len(members)} pods")


def minimum_stay(move: Migrate, at: Situation) -> Veto | None:
    """A job stays on a node for a while before it is moved, or moved again."""
    since = at.job.started_at_seconds
    if at.known.moves:
        last = at.known.moves[-1]
        since = max(since, last.resumed_at_seconds or last.at_seconds)
    stayed, bound = at.now_seconds - since, at.limits.min_stay_seconds
    return None if stayed >= bound else Veto(f"on {move.from_node} for {max(0.0, stayed):.0f} s, bound {bound:.0f} s")


def no_return(move: Migrate, at: Situation) -> Veto | None:
    """Not back to the node that it has just left: until its stay here has had the time to pay, and twice a stay."""
    if not at.known.moves or at.known.moves[-1].from_node != move.node:
        return None
    since = at.now_seconds - at.known.moves[-1].at_seconds
    bound = max(2 * at.limits.min_stay_seconds, at.limits.horizon_seconds)
    return None if since >= bound else Veto(f"left {move.node} {since:.0f} s ago, bound {bound:.0f} s")


def checkpoint(move: Migrate, at: Situation) -> Veto | None:
    """What a move would lose: nothing with a trainer that saves on SIGTERM, else all since the last checkpoint."""
    saved = at.job.checkpoint
    if saved is None or (saved.saved_at_seconds is None and not saved.on_sigterm):
        return Veto(
            "it reports no checkpoint: training_checkpoint_on_sigterm 1, or training_checkpoint_timestamp_seconds"
        )
    if saved.on_sigterm or saved.saved_at_seconds is None:
        return None
    age, bound = at.now_seconds - saved.saved_at_seconds, at.limits.max_checkpoint_age_seconds
    if age < -CLOCK_SKEW_SECONDS:
        return Veto(f"the last one is {-age:.0f} s in the future, bound {CLOCK_SKEW_SECONDS:.0f} s")
    return None if age <= bound else Veto(f"the last one is {age:.0f} s old, bound {bound:.0f} s")


def grace(move: Migrate, at: Situation) -> Veto | None:
    """A trainer that saves on SIGTERM must be given the time. Worked example: it takes 10 s, so more than 17 s."""
    given = at.job.mobility.grace_seconds if at.job.mobility is not None else None
    saved = at.job.checkpoint
    if given is None or saved is None or not saved.on_sigterm:
        return None
    takes = UNMEASURED_SAVING_SECONDS if saved.duration_seconds is None else saved.duration_seconds
    bound = GRACE_FACTOR * takes + GRACE_SPARE_SECONDS
    if given > bound:
        return None
    return Veto(f"it is given {given:.3g} s to end, bound {bound:.3g} s for a checkpoint of {takes:.3g} s")


MIGRATION_GUARDS: tuple[Callable[[Migrate, Situation], Veto | None], ...] = (
    migration_disabled,
    stays,
    move_backoff,
    move_left_alone,
    under_way,
    whole_or_not,
    minimum_stay,
    no_return,
    checkpoint,
    grace,
)
