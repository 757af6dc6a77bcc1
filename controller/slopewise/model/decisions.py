"""Decisions of a pass and their results: resizes, moves, vetoes, outcomes, and the PassReport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Generic, Literal, TypeVar

import msgspec

from slopewise.model.jobs import (
    Arrival,
    ClusterSnapshot,
    CpuControl,
    Job,
    MemoryBound,
    MoveUnderWay,
    OutcomeResult,
)
from slopewise.model.memory import JobMemory, MemoryState, MoveRecord
from slopewise.model.promises import Standing


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of a job's CPU to an absolute target, in millicores; idempotent. No limit counts as the whole node."""

    job_uid: str
    node: str
    control: CpuControl
    from_millicores: int
    to_millicores: int
    reason: str
    is_rollback: bool = False
    """It restores an earlier value (`feedback/rollback.py`); only `ROLLBACK_GUARDS` apply."""

    @property
    def raises(self) -> bool:
        """True when the target is above the accepted CPU."""
        return self.to_millicores > self.from_millicores


@dataclass(frozen=True, slots=True)
class ResizeMemory:
    """A change of a job's memory request or limit to an absolute target, in bytes; idempotent."""

    job_uid: str
    node: str
    bound: MemoryBound
    from_bytes: int
    to_bytes: int
    reason: str
    is_rollback: bool = False
    """It takes back a change that the node does not carry out; only `guards.memory.ROLLBACK_GUARDS` apply."""

    @property
    def raises(self) -> bool:
        """True when the target is above the accepted memory."""
        return self.to_bytes > self.from_bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Start an arriving job on this node."""

    job_uid: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """Checkpoint a running job, end it, and start it again on another node."""

    job_uid: str
    from_node: str
    node: str
    reason: str
    relieves: str | None = None
    """What its node lacks other than CPU in general: a resource (`memory`), or the CPU that a promise of this job takes
    (`objective`, `deadline`). That is worth more than the CPU that moving costs."""


Move = Place | Migrate


@dataclass(frozen=True, slots=True)
class Stop:
    """End a running job for good, through its own checkpoint: it has reached its target (`guards/at_target.py`)."""

    job_uid: str
    node: str
    reason: str
    """E.g. `stopped at its target: loss 0.19 ≤ 0.2`."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The result of a policy: resizes, a reason for each job that has not ended (also an unchanged one), memory."""

    policy: str
    resizes: tuple[Resize, ...]
    reasons: Mapping[str, str]
    memory: MemoryState
    moves: tuple[Move, ...] = ()
    """Placements of arriving jobs and migrations of running ones, in the order in which they are to happen."""


D_co = TypeVar("D_co", bound=Resize | ResizeMemory | Place | Migrate | Stop, covariant=True)


@dataclass(frozen=True, slots=True)
class Withheld(Generic[D_co]):
    """A resize, a move or a stop that a guard withholds. The reason names the guard, its figure and its bound."""

    decision: D_co
    guard: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome(Generic[D_co]):
    """The outcome of a resize or a move that was let through."""

    decision: D_co
    result: OutcomeResult
    detail: str = ""
    maybe_begun: bool = False
    """It failed without an answer, so the move may have begun."""
    begun_at_seconds: float | None = None
    """When a migration began, i.e. the job was signalled to end; None: at the time of the pass."""

    @property
    def takes_a_slot(self) -> bool:
        """Whether it counts for what bounds the moves of a pass."""
        return self.result == "applied" or self.maybe_begun


RestoreResult = Literal["applied", "accepted", "deferred", "failed", "infeasible", "gone"]


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of restoring a job's original resources: `applied` once they are in effect.

    `accepted`: accepted by the platform, and not yet reported in effect. `deferred` and `failed` may be retried,
    `infeasible` not; `gone`: the job was deleted.
    """

    result: RestoreResult
    detail: str = ""


MoveStage = Literal["begun", "resumed", "cancelled", "failed"]
"""Stages of a migration: begun; the job trains again; ended without moving the job (abandoned, finished, or suspended
by its owner); failed."""


@dataclass(frozen=True, slots=True)
class MoveEvent:
    """A new stage of a migration; each stage is emitted once."""

    job_uid: str
    stage: MoveStage
    record: MoveRecord
    """Its current record; `MoveRecord.at_seconds` identifies the migration of a job."""
    message: str
    """E.g. `resumed on n2 after 4 s with no step lost`."""
    warning: bool = False


class JobView(msgspec.Struct, frozen=True, gc=False):
    """One job in one pass: decision, veto, outcome, reason."""

    name: str
    """`namespace/name`; its uid where the name is not known."""
    known: JobMemory | None = None
    """Its memory after the pass."""
    reason: str = ""
    """The policy's; empty for a job without a decision."""
    outcome: Outcome[Resize] | None = None
    withheld: Withheld[Resize] | None = None
    moved: Outcome[Move] | None = None
    """The outcome of its move."""
    move_withheld: Withheld[Move] | None = None
    moving: MoveUnderWay | None = None
    move_events: tuple[MoveEvent, ...] = ()
    standing: Standing | None = None
    """None: its owner asks nothing of it."""
    stopped: Outcome[Stop] | None = None
    """The outcome of its stop."""
    stop_withheld: Withheld[Stop] | None = None
    memory_outcome: Outcome[ResizeMemory] | None = None
    memory_withheld: Withheld[ResizeMemory] | None = None

    @property
    def memory_message(self) -> str:
        """Why its memory was changed or not; empty when no change was decided."""
        if self.memory_outcome is not None:
            return self.memory_outcome.detail or self.memory_outcome.decision.reason
        return "" if self.memory_withheld is None else self.memory_withheld.reason

    @property
    def resize(self) -> Resize | None:
        """The decided resize, carried out or not."""
        decided = self.outcome or self.withheld
        return None if decided is None else decided.decision

    @property
    def message(self) -> str:
        """Why its resize was made or not, and why its move is withheld; else the policy's reason."""
        if self.stopped is not None:
            return self.stopped.detail or self.stopped.decision.reason
        if self.stop_withheld is not None:
            return self.stop_withheld.reason
        if self.move_events:
            return self.move_events[0].message
        stays = "" if self.move_withheld is None else self.move_withheld.reason
        return "; ".join(filter(None, (self._resize_message, stays))) or self.reason

    @property
    def _resize_message(self) -> str:
        """Why its resize was made or not; empty without one."""
        if self.outcome is not None:
            return self.outcome.detail or self.outcome.decision.reason
        return "" if self.withheld is None else self.withheld.reason


@dataclass(frozen=True)
class PassReport:
    """All results of one pass. `held`: why it could not observe or decide; then nothing was changed."""

    taken_at_seconds: float
    policy: str
    seconds_by_verb: Mapping[str, float]
    requeue_at_seconds: float
    held: str | None = None
    snapshot: ClusterSnapshot | None = None
    decisions: Decisions | None = None
    outcomes: tuple[Outcome[Resize], ...] = ()
    withheld: tuple[Withheld[Resize], ...] = ()
    moves: tuple[Outcome[Move], ...] = ()
    moves_withheld: tuple[Withheld[Move], ...] = ()
    move_events: tuple[MoveEvent, ...] = ()
    """New stages of migrations, of this pass and of earlier ones (`feedback/move_tracking.py`)."""
    standings: Mapping[str, Standing] = field(default_factory=dict)
    """Of the jobs whose owners ask something of them, by uid."""
    stops: tuple[Outcome[Stop], ...] = ()
    stops_withheld: tuple[Withheld[Stop], ...] = ()
    memory_outcomes: tuple[Outcome[ResizeMemory], ...] = ()
    memory_withheld: tuple[Withheld[ResizeMemory], ...] = ()
    policy_failed: bool = False
    """The pass is held because the policy failed, and not because nothing could be observed."""

    @cached_property
    def by_job(self) -> Mapping[str, JobView]:
        """The pass by uid of the job; computed on first access.

        Of several resizes of a job the last one counts: the others are of earlier passes.
        """
        outcomes = {each.decision.job_uid: each for each in self.outcomes}
        withheld = {each.decision.job_uid: each for each in self.withheld}
        moved = {each.decision.job_uid: each for each in self.moves}
        moves_withheld = {each.decision.job_uid: each for each in self.moves_withheld}
        moving = {each.job_uid: each for each in self.snapshot.moving} if self.snapshot else {}
        memory_outcomes = {each.decision.job_uid: each for each in self.memory_outcomes}
        memory_withheld = {each.decision.job_uid: each for each in self.memory_withheld}
        reasons = self.decisions.reasons if self.decisions else {}
        known = self.decisions.memory.jobs if self.decisions else {}
        events: dict[str, tuple[MoveEvent, ...]] = {}
        for event in self.move_events:
            events[event.job_uid] = (*events.get(event.job_uid, ()), event)
        stopped = {each.decision.job_uid: each for each in self.stops}
        stops_withheld = {each.decision.job_uid: each for each in self.stops_withheld}
        names = self._names()
        uids = chain(
            names,
            reasons,
            outcomes,
            withheld,
            moved,
            moves_withheld,
            moving,
            events,
            stopped,
            memory_outcomes,
            memory_withheld,
        )
        return {
            uid: JobView(
                names.get(uid, uid),
                known.get(uid),
                reasons.get(uid, ""),
                outcomes.get(uid),
                withheld.get(uid),
                moved.get(uid),
                moves_withheld.get(uid),
                moving.get(uid),
                events.get(uid, ()),
                self.standings.get(uid),
                stopped.get(uid),
                stops_withheld.get(uid),
                memory_outcomes.get(uid),
                memory_withheld.get(uid),
            )
            for uid in dict.fromkeys(uids)
        }

    def _names(self) -> dict[str, str]:
        if self.snapshot is None:
            return {}
        there: tuple[Job | Arrival, ...] = (*self.snapshot.jobs, *self.snapshot.waiting)
        absent = {each.job_uid: each.workload for each in self.snapshot.absent if each.workload}
        return absent | {job.uid: f"{job.namespace}/{job.name}" for job in there}

    def count(self, result: OutcomeResult) -> int:
        """How many resizes of this pass, of CPU and of memory, ended with `result`."""
        of_cpu = sum(outcome.result == result for outcome in self.outcomes)
        return of_cpu + sum(outcome.result == result for outcome in self.memory_outcomes)
