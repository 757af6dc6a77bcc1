"""Decisions of a pass and their results: resizes, moves, vetoes, outcomes, and the PassReport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Generic, Literal, TypeVar

import msgspec

from slopewise.model.containers import CpuControl, MemoryBound, OutcomeResult, Record
from slopewise.model.jobs import Arrival, ClusterSnapshot, Job, MoveUnderWay
from slopewise.model.memory import JobMemory, MemoryState, MoveRecord
from slopewise.model.objective_status import ObjectiveStatus


class Resize(Record, frozen=True, omit_defaults=False, gc=False):
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
    """What its node lacks other than CPU in general: a resource (`memory`), or the CPU that its `objective` or
    `deadline` takes. That is worth more than the CPU that moving costs."""


Move = Place | Migrate


@dataclass(frozen=True, slots=True)
class Stop:
    """End a running job for good, through its own checkpoint: it has reached its target (`guards/at_target.py`)."""

    job_uid: str
    node: str
    reason: str
    """E.g. `stopped at its target: loss 0.19 ≤ 0.2`."""


Decision = Resize | ResizeMemory | Move | Stop
"""What a pass decides of one job: all kinds have `job_uid`, `node` and `reason`. Another kind costs a type here, a list
of guards (`guards/review.py`) and a branch of each actuator."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The result of a policy: resizes, a reason for each job that has not ended (also an unchanged one), memory."""

    policy: str
    resizes: tuple[Resize, ...]
    reasons: Mapping[str, str]
    memory: MemoryState
    moves: tuple[Move, ...] = ()
    """Placements of arriving jobs and migrations of running ones, in the order in which they are to happen."""


T = TypeVar("T")
D = TypeVar("D", bound=Decision)
D_co = TypeVar("D_co", bound=Decision, covariant=True)


def only(decisions: Iterable[Decision], *kinds: type[D]) -> list[D]:
    """The decisions of these kinds."""
    return [each for each in decisions if isinstance(each, kinds)]


class Withheld(Record, Generic[D_co], frozen=True, omit_defaults=False, gc=False):
    """A decision that a guard withholds. The reason names the guard, its figure and its bound."""

    decision: D_co
    guard: str
    reason: str


class Outcome(Record, Generic[D_co], frozen=True, omit_defaults=False, gc=False):
    """The outcome of a decision that was let through."""

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


class Results(msgspec.Struct, frozen=True, gc=False):
    """The results of decisions: of one pass, or of one job in it."""

    outcomes: tuple[Outcome[Decision], ...] = ()
    """Resizes, changes of memory, moves, stops; also those of earlier passes that a node has not carried out."""
    withheld: tuple[Withheld[Decision], ...] = ()
    """In the same order."""
    events: tuple[MoveEvent, ...] = ()
    """New stages of migrations, of this pass and of earlier ones (`feedback/move_tracking.py`)."""

    def of(self, *kinds: type[D]) -> tuple[Outcome[D], ...]:
        """The outcomes of decisions of these kinds."""
        return tuple(each for each in self.outcomes if isinstance(each.decision, kinds))  # type: ignore[misc]

    def withheld_of(self, *kinds: type[D]) -> tuple[Withheld[D], ...]:
        """The withheld decisions of these kinds."""
        return tuple(each for each in self.withheld if isinstance(each.decision, kinds))  # type: ignore[misc]

    def by_job(self) -> dict[str, Results]:
        """Those of each job, by uid."""
        outcomes = _by_uid((each.decision.job_uid, each) for each in self.outcomes)
        withheld = _by_uid((each.decision.job_uid, each) for each in self.withheld)
        events = _by_uid((each.job_uid, each) for each in self.events)
        uids = dict.fromkeys(chain(outcomes, withheld, events))
        return {uid: Results(outcomes.get(uid, ()), withheld.get(uid, ()), events.get(uid, ())) for uid in uids}


def _by_uid(found: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    """What belongs to each job, in order."""
    groups: dict[str, list[T]] = {}
    for uid, each in found:
        groups.setdefault(uid, []).append(each)
    return {uid: tuple(group) for uid, group in groups.items()}


NO_RESULTS = Results()


class JobView(msgspec.Struct, frozen=True, gc=False):
    """One job in one pass: what was decided, its results, and why."""

    name: str
    """`namespace/name`; its uid where the name is not known."""
    known: JobMemory | None = None
    """Its memory after the pass."""
    reason: str = ""
    """The policy's; empty for a job without a decision."""
    results: Results = NO_RESULTS
    moving: MoveUnderWay | None = None
    objective_status: ObjectiveStatus | None = None
    """None: its owner asks nothing of it."""

    def outcome(self, *kinds: type[D]) -> Outcome[D] | None:
        """The outcome of a decision of these kinds, the last of several: the others are of earlier passes."""
        return next(reversed(self.results.of(*kinds)), None) if self.results.outcomes else None

    def withheld(self, *kinds: type[D]) -> Withheld[D] | None:
        """The withheld decision of these kinds."""
        return next(reversed(self.results.withheld_of(*kinds)), None) if self.results.withheld else None

    @property
    def resize(self) -> Resize | None:
        """The decided resize, carried out or not."""
        decided = self.outcome(Resize) or self.withheld(Resize)
        return None if decided is None else decided.decision

    def message_of(self, *kinds: type[Decision]) -> str:
        """Why a decision of these kinds was carried out or not; empty without one."""
        if (outcome := self.outcome(*kinds)) is not None:
            return outcome.detail or outcome.decision.reason
        withheld = self.withheld(*kinds)
        return "" if withheld is None else withheld.reason

    @property
    def message(self) -> str:
        """Why its resize was made or not, and why its move is withheld; else the policy's reason."""
        if stopping := self.message_of(Stop):
            return stopping
        if self.results.events:
            return self.results.events[0].message
        stays = self.withheld(Place, Migrate)
        return "; ".join(filter(None, (self.message_of(Resize), "" if stays is None else stays.reason))) or self.reason


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
    """With the memory after the pass."""
    results: Results = NO_RESULTS
    notes: object = None
    """`Observation.notes`."""
    objective_statuses: Mapping[str, ObjectiveStatus] = field(default_factory=dict)
    """Of the jobs whose owners ask something of them, by uid."""
    policy_failed: bool = False
    """The pass is held because the policy failed, and not because nothing could be observed."""

    @cached_property
    def by_job(self) -> Mapping[str, JobView]:
        """The pass by uid of the job; computed on first access."""
        results = self.results.by_job()
        moving = {each.job_uid: each for each in self.snapshot.moving} if self.snapshot else {}
        reasons = self.decisions.reasons if self.decisions else {}
        known = self.decisions.memory.jobs if self.decisions else {}
        names = self._names()
        return {
            uid: JobView(
                names.get(uid, uid),
                known.get(uid),
                reasons.get(uid, ""),
                results.get(uid, NO_RESULTS),
                moving.get(uid),
                self.objective_statuses.get(uid),
            )
            for uid in dict.fromkeys(chain(names, reasons, results, moving))
        }

    def _names(self) -> dict[str, str]:
        if self.snapshot is None:
            return {}
        there: tuple[Job | Arrival, ...] = (*self.snapshot.jobs, *self.snapshot.waiting)
        absent = {each.job_uid: each.workload for each in self.snapshot.absent if each.workload}
        return absent | {job.uid: f"{job.namespace}/{job.name}" for job in there}

    def count(self, result: OutcomeResult) -> int:
        """How many resizes of this pass, of CPU and of memory, ended with `result`."""
        return sum(outcome.result == result for outcome in self.results.of(Resize, ResizeMemory))
