"""The frozen data that flows through one pass: ClusterSnapshot -> Decisions -> PassReport.

Units are in the names. Times are Unix seconds, as read from the Clock port by whoever observed. Nothing in
here reads a clock, a file or a socket, and nothing can be changed after it was made: a policy cannot reach
back into what was observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal

CpuControl = Literal["limits", "requests"]
"""How CPU is given: `limits` are hard ceilings; `requests` are shares, work-conserving within a node."""

Objective = Literal["min", "max"]
OutcomeResult = Literal["applied", "deferred", "infeasible", "failed"]


class JobState(StrEnum):
    """What a job says of itself (`training_state`), or what its process shows."""

    STARTING = "starting"
    TRAINING = "training"
    CHECKPOINTING = "checkpointing"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """True when the job will do no more work, whether it succeeded or not."""
        return self in _ENDED


_ENDED = (JobState.FINISHED, JobState.FAILED)
"""Looked up once: an enum's members are found slowly, and a pass may ask 80,000 times for 10,000 jobs."""


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """CPU that a container may use. `limit_millicores=None` means: no limit."""

    limit_millicores: int | None
    request_millicores: int


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or the part of one that managed jobs may share."""

    name: str
    cpu_cores: float
    memory_bytes: int
    requests_max_millicores: int | None = None
    """What the requests of its managed jobs may add up to; None where requests are only relative weights."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation value of a job, as a level over a window: its median, never one raw sample.

    `series` names the series it came from, so that a job that starts to report another one (its first
    `eval` after minutes of `train_ema`) is not read as a jump in quality.
    """

    level: float
    sample_count: int
    sampled_at_seconds: float
    series: str
    objective: Objective = "min"
    finite: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Cumulative use, so that any interval's average is a difference of two. None: not observable here."""

    sampled_at_seconds: float
    cpu_seconds_total: float | None = None
    memory_bytes: float | None = None
    block_io_bytes_total: float | None = None
    network_io_bytes_total: float | None = None


@dataclass(frozen=True, slots=True)
class Responses:
    """What a served model has answered so far; any interval's mean response time is a difference of two."""

    count_total: float
    seconds_total: float


@dataclass(frozen=True, slots=True)
class Promises:
    """What a user asks for a job, beside training on: its annotations, bounded before they get here."""

    qoe_seconds: float | None = None
    """Objective of a served model (seconds a response) or of a training (seconds a step); smaller is better."""
    deadline_at_seconds: float | None = None
    target_level: float | None = None
    """The evaluation at which the job is done (TRADL's second target)."""
    deliverable_level: float | None = None
    """The evaluation from which its model is of use (TRADL's first target)."""
    weight: float = 1.0


NO_PROMISES = Promises()


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a job's container fares: cumulative, so that what a change has done is a difference of two.

    None where nobody counts (a machine without cgroup statistics, a Prometheus that does not scrape kubelets).
    """

    restarts_total: int = 0
    oom_killed_at_seconds: float | None = None
    cpu_periods_total: float | None = None
    cpu_throttled_periods_total: float | None = None


@dataclass(frozen=True, slots=True)
class PendingResize:
    """A resize that was accepted and that the node has not carried out: it waits for room, or cannot be."""

    result: OutcomeResult
    since_seconds: float
    detail: str
    in_effect: CpuAllocation
    """What the container has meanwhile."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """CPU that the platform has accepted and that is not in effect, without a word on why (else `PendingResize`)."""

    detail: str
    """What its kubelet reports instead, and what to look at."""
    late: bool = False
    """For so long that its kubelet does not follow."""


@dataclass(frozen=True, slots=True)
class AcceptedRange:
    """What the platform itself takes as a target in the dimension that is controlled, and why no more or less.

    Worked example: a limit cannot go below its container's request, `AcceptedRange(500, None, "request 500m")`.
    """

    min_millicores: int | None = None
    max_millicores: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MissingEvaluation:
    """Why a job that has run for a while reports no evaluation."""

    reason: Literal["NoTarget", "ScrapeFails", "NoMetric", "NotUsable"]
    """For conditions."""
    message: str
    """What is wrong and what to do, e.g. `port 41523 refuses; …`."""


MoveWay = Literal["suspend", "evict", "restart"]
"""How a running job is moved: its Job is suspended, pinned and resumed; its pod is evicted and the gated replacement
placed; or (on one machine) its process is ended and started again."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a job reports of its checkpoints (`training_checkpoint_*`)."""

    saved_at_seconds: float | None = None
    """When the last one was saved; None: none yet."""
    duration_seconds: float | None = None
    on_sigterm: bool = False
    """It says that it saves when it is told to end, and ends so that its owner starts it again."""


@dataclass(frozen=True, slots=True)
class Mobility:
    """Whether and how a running job could be moved; made by whoever knows the platform, weighed by `move_guards`."""

    way: MoveWay | None = None
    """None: no way, and `stays_because` says why."""
    stays_because: str | None = None
    """Why it cannot be moved at all (a bare pod, a volume of its node, Kueue); None: it can."""
    backoff_reason: str | None = None
    """Why its last move could not be begun (a disruption budget, say), and when one is tried again; None: nothing is
    known to be in the way."""
    refused_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that would not take it, by name, and why (a taint, a selector, a volume)."""
    grace_seconds: float | None = None
    """From being told to end to being killed; None: not known."""
    restart_seconds: float = 0.0
    """What the way itself takes, from the old process's end to the new one's start."""
    members: tuple[str, ...] = ()
    """Uids of all jobs that move with it, itself among them: the pods of one workload move whole or not at all."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training workload on one node."""

    uid: str
    name: str
    namespace: str
    node: str
    state: JobState
    started_at_seconds: float
    allocation: CpuAllocation
    """What the platform has accepted, and what decisions start from."""
    evaluation: Evaluation | None = None
    usage: Usage | None = None
    steps_total: float | None = None
    steps_planned: float | None = None
    useful_parallelism_cores: float | None = None
    restarted: bool = False
    """Restarted within the window of its evaluation: its level mixes two lives and means nothing."""
    life_started_at_seconds: float | None = None
    """When the process that trains now was started; None: not known. Another one is another life."""
    first_step_at_seconds: float | None = None
    """When that process ended its first step, by the clock of its node; None: not known, or long ago."""
    warnings: tuple[str, ...] = ()
    responses: Responses | None = None
    """Of a served model; None for a training."""
    promises: Promises = NO_PROMISES
    memory_request_bytes: float | None = None
    """What it reserves on its node; None: nothing is known, and it fits everywhere."""
    migratable: bool = False
    """It checkpoints and may be moved: without that no policy's wish to move it is heard."""
    accepts: AcceptedRange | None = None
    hands_off: str | None = None
    """Why this job is not to be changed at all (a GPU, another resizer, no limit); None: it may be."""
    vitals: Vitals | None = None
    """Only a job whose vitals are known is judged by what a change did to it (`corrections`)."""
    actual: CpuAllocation | None = None
    """What is in effect, as the platform reports it; None: it does not report it, or carries out what it accepts."""
    pending: PendingResize | None = None
    unconfirmed: Unconfirmed | None = None
    pod_level: CpuAllocation | None = None
    """CPU of the pod that it shares with its sidecars, which bounds its own; None: none is set for the pod."""
    checkpoint: Checkpoint | None = None
    """None: it reports none, or there is nobody to report to."""
    mobility: Mobility | None = None
    """None: the platform has nothing against moving it, and nothing to say about it (the simulator)."""
    missing_evaluation: MissingEvaluation | None = None
    """None: it reports one, or need not yet, or that is not known."""


@dataclass(frozen=True, slots=True)
class MoveUnderWay:
    """A move that was begun and is not over: the job may be on no node at all just now."""

    job_uid: str
    from_node: str
    node: str
    """The target; empty once it is given up and the default scheduler places it."""
    since_seconds: float
    step: str
    """In words, for people: `saving and ending`, `waiting for its replacement`, `starting on node-b`."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that is to start and has no node yet. A policy may place it; else the default scheduler does."""

    uid: str
    name: str
    namespace: str
    arrived_at_seconds: float
    request_millicores: int = 0
    """CPU it reserves; 0: none, as the default scheduler sees a pod without requests."""
    memory_request_bytes: float | None = None
    useful_parallelism_cores: float | None = None
    steps_planned: float | None = None
    promises: Promises = NO_PROMISES
    refused_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that would not take it, by name, and why; empty where nobody knows."""


AbsentState = Literal["moving", "waiting", "suspended", "finished", "failed"]
"""Between two pods of a move; with a pod that has no node yet; without pods, since its owner wants none or is over."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A job that was seen before and is on no node just now."""

    job_uid: str
    state: AbsentState
    reason: str
    """In words, for people: `its Job is suspended, and not by Slopewise`."""
    workload: str = ""
    """As `namespace/name`: it has no pod by whose name people know it."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything a pass may know of the world, at one moment."""

    taken_at_seconds: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """Managed jobs in the order in which they were found; one that has just ended is still among them."""
    scrape_interval_seconds: float = 5.0
    waiting: tuple[Arrival, ...] = ()
    """Jobs that have arrived and are on no node yet, in the order of their arrival."""
    remaining_work_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """What only an oracle knows, by uid. The simulator fills it for policies that say they need it; nobody else."""
    moving: tuple[MoveUnderWay, ...] = ()
    """Moves that are under way, of this policy's jobs; also of jobs that are not in `jobs` for the moment."""
    absent: tuple[Absence, ...] = ()
    """Jobs of this policy that are on no node, as far as it is known why."""

    def jobs_by_node(self) -> dict[str, list[Job]]:
        """The jobs of each node that have not ended, by the node's name; also of a node that has none.

        One that says it has finished may say something else in a moment (five folds, five reporters), so it is not
        forgotten; but it competes with nobody.
        """
        jobs: dict[str, list[Job]] = {node.name: [] for node in self.nodes}
        for job in self.jobs:
            if not job.state.ended:
                jobs[job.node].append(job)
        return jobs

    def memory_room_bytes(self) -> dict[str, float]:
        """What each node's memory has left beside the requests of its jobs, by name; never negative.

        A job without a request takes none, and so fits also where requests add up to more than there is.
        """
        taken: dict[str, list[float]] = {node.name: [] for node in self.nodes}
        for job in self.jobs:
            if job.memory_request_bytes is not None and not job.state.ended:
                taken[job.node].append(job.memory_request_bytes)
        return {node.name: max(0.0, node.memory_bytes - math.fsum(taken[node.name])) for node in self.nodes}


# --- memory: what a pass must know of the passes before it -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start of the interval that is being measured: levels and counters at its first moment."""

    at_seconds: float
    level: float
    usage: Usage | None
    life_started_at_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A level far outside of a job's range, and when it was first seen."""

    at_seconds: float
    level: float


@dataclass(frozen=True, slots=True)
class Doubts:
    """What is not settled of a job's range (`level_range`)."""

    early: tuple[float, ...] = ()
    """Its first levels that differ from each other, until there are enough to tell whether the first was a spike."""
    outlier: Outlier | None = None
    """A level that nothing has confirmed yet."""
    former: tuple[float, float] | None = None
    """First and best level before a jump that was confirmed."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A finished measurement of one job over one interval (`growth.measure`).

    `change_per_second` is the normalised improvement, below 0 when the job got worse (unless progress is counted
    as an absolute difference); `progress_per_second` is Eq. 4.1, which counts getting worse as 0; `efficiency` is
    Eq. 4.2 per resource: progress per second divided by the average use as a fraction of the node (cpu, memory), or
    by MiB/s (block and network I/O, whose capacity nobody states). A resource whose use is unknown or about zero is
    not in the mapping: such a growth efficiency is unknown, never infinite and never zero.
    """

    at_seconds: float
    interval_seconds: float
    change_per_second: float
    cpu_cores: float | None
    efficiency: Mapping[str, float] = field(default_factory=dict)

    @property
    def progress_per_second(self) -> float:
        """Eq. 4.1 under the configured normaliser, in 1/s; never below 0."""
        return max(0.0, self.change_per_second)

    @property
    def cpu_efficiency(self) -> float | None:
        """Growth efficiency per whole node of CPU, in 1/s; None when unknown."""
        return self.efficiency.get("cpu")


@dataclass(frozen=True, slots=True)
class PaceAnchor:
    """The start of the interval over which a pace is measured: cumulative counters at its first moment."""

    at_seconds: float
    done_total: float
    """Responses given, or steps done."""
    busy_seconds_total: float | None
    """Seconds spent on responses; None for steps, whose time is the interval itself."""
    cpu_seconds_total: float | None
    life_started_at_seconds: float | None = None
    cpu_sampled_at_seconds: float | None = None
    """When the CPU was counted: a kubelet does so up to 20 s before the steps are read. None: at the same moment."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A finished measurement of how long one step, or one response, took at one CPU level (`pace.measure`)."""

    at_seconds: float
    seconds: float
    """Mean seconds a step (of a training) or a response (of a served model)."""
    cores: float | None
    """CPU used meanwhile; None: not known."""


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a job that was carried out, and how the job fared before it."""

    at_seconds: float
    control: CpuControl
    from_millicores: int
    to_millicores: int
    vitals: Vitals | None = None
    growth: Growth | None = None
    previous_growth: Growth | None = None
    pace: Pace | None = None
    gives_back: bool = False
    """It took an earlier change back: it is never itself judged, or two changes would take each other back for ever."""
    told: OutcomeResult | None = None
    """What the node has made of it later (`Job.pending`), once that has been reported."""
    harm: str | None = None
    """What it did to the job, once that is known and until the former resources are back."""


MOVES_KEPT = 8
"""Of one job: as many as it could make in an hour and a quarter at the default minimum stay of 600 s. Where stays are
shorter, more are kept as long as they count for the hourly budget of a node."""


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One migration of a job that was begun, and what is known by now of how it went (`move_review`)."""

    at_seconds: float
    from_node: str
    node: str
    steps_before: float | None = None
    """Steps done when it was decided."""
    life_started_at_seconds: float | None = None
    """Of the process that was moved: another one has taken its place once this differs."""
    begun_at_seconds: float | None = None
    """When it was begun, so that the job was told to end; None: the pass acted when it decided."""
    resumed_at_seconds: float | None = None
    """When the job was at work again: the end of its first step, or where that is not known the pass that saw it."""
    resumed_on: str | None = None
    """Where that was; the target, unless it filled up meanwhile."""
    steps_lost: float | None = None
    """Steps before less the first steps seen after; 0 when nothing was repeated."""
    harm: str | None = None
    """What went wrong, in words: the job is not moved again."""

    @property
    def is_open(self) -> bool:
        """True until the job is at work again, or something went wrong."""
        return self.resumed_at_seconds is None and self.harm is None

    @property
    def pause_seconds(self) -> float | None:
        """From its begin to the job's first work elsewhere; None: not yet, or the job stayed where it was."""
        if self.resumed_at_seconds is None or self.resumed_on in (None, self.from_node):
            return None
        return self.away_seconds(self.resumed_at_seconds)

    def away_seconds(self, until_seconds: float) -> float:
        """From its begin until then; never negative, since the clocks of two nodes may differ."""
        begun_at = self.at_seconds if self.begun_at_seconds is None else self.begun_at_seconds
        return max(0.0, until_seconds - begun_at)


@dataclass(slots=True)
class JobMemory:
    """What is remembered of one job. `original` is stored before the first change and never overwritten.

    Never changed, only replaced, like everything here; but not frozen, because a pass makes three of each of 10,000
    jobs, and 20 frozen fields take 1.9 us to set where these take 0.3 us: 0.26 s a pass, and 0.21 s like this. The
    contract test sees a policy that changes one.
    """

    series: str | None = None
    first_level: float | None = None
    best_level: float | None = None
    anchor: Anchor | None = None
    growth: Growth | None = None
    job_class: str | None = None
    class_since_seconds: float | None = None
    wanted_cores: float | None = None
    """The limit the policy last decided on (the papers' L), before control mode and guards."""
    original: CpuAllocation | None = None
    last_resized_at_seconds: float | None = None
    previous_growth: Growth | None = None
    """The measurement before `growth`, in the same life of the job."""
    pace_anchor: PaceAnchor | None = None
    paces: tuple[Pace, ...] = ()
    """Oldest first, at most `pace.KEPT`; the last one is the newest."""
    streak: int = 0
    """How many measurements in a row met the condition that the policy counts (targets hit, slack gone)."""
    marks: frozenset[str] = frozenset()
    """Facts that a policy sets once, such as SpeCon's `migrated` and `rebalanced`."""
    moves_total: int = 0
    moved_at_seconds: float | None = None
    moves: tuple[MoveRecord, ...] = ()
    """Oldest first; the last `MOVES_KEPT`, and those of the last hour."""
    change: Change | None = None
    alone_until_seconds: float | None = None
    """Until then no policy's wish is heard: a change has harmed the job, or somebody else resizes it."""
    alone_because: str | None = None
    silent_since_seconds: float | None = None
    """Since when it reports nothing that is of use, although it did before; None: it reports, or never did."""
    doubts: Doubts | None = None
    """What is not settled of `first_level` and `best_level`; None: nothing."""

    def altered(self, **changes: Any) -> JobMemory:
        """The same job with other values for these fields. KeyError for a name that is none.

        For many jobs in every pass; dataclasses.replace takes 3.0 us where this takes 1.1.
        """
        values = list(_REMEMBERED(self))
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return JobMemory(*values)

    # The changes below happen for every job in every pass. Written out they take 0.03 s less for 10,000 jobs than by
    # `altered`, all three together.

    def with_growth(self, growth: Growth, anchor: Anchor) -> JobMemory:
        """The same job with a finished measurement, and the next one begun."""
        return JobMemory(
            self.series, self.first_level, self.best_level, anchor, growth, self.job_class,
            self.class_since_seconds, self.wanted_cores, self.original, self.last_resized_at_seconds,
            self.growth, self.pace_anchor, self.paces, self.streak, self.marks, self.moves_total,
            self.moved_at_seconds, self.moves, self.change, self.alone_until_seconds, self.alone_because,
            self.silent_since_seconds, self.doubts,
        )  # fmt: skip

    def with_paces(self, pace_anchor: PaceAnchor, paces: tuple[Pace, ...]) -> JobMemory:
        """The same job with a pace measured, and the next measurement begun."""
        return JobMemory(
            self.series, self.first_level, self.best_level, self.anchor, self.growth, self.job_class,
            self.class_since_seconds, self.wanted_cores, self.original, self.last_resized_at_seconds,
            self.previous_growth, pace_anchor, paces, self.streak, self.marks, self.moves_total,
            self.moved_at_seconds, self.moves, self.change, self.alone_until_seconds, self.alone_because,
            self.silent_since_seconds, self.doubts,
        )  # fmt: skip

    def with_decision(self, job_class: str, wanted_cores: float | None, now_seconds: float) -> JobMemory:
        """The same job after a policy decided on its class and its limit."""
        since = self.class_since_seconds if self.job_class == job_class else now_seconds
        return JobMemory(
            self.series, self.first_level, self.best_level, self.anchor, self.growth, job_class,
            since, wanted_cores, self.original, self.last_resized_at_seconds,
            self.previous_growth, self.pace_anchor, self.paces, self.streak, self.marks, self.moves_total,
            self.moved_at_seconds, self.moves, self.change, self.alone_until_seconds, self.alone_because,
            self.silent_since_seconds, self.doubts,
        )  # fmt: skip


_PLACES = {each.name: place for place, each in enumerate(fields(JobMemory))}
_REMEMBERED = attrgetter(*_PLACES)


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What is remembered of one node: who was on it at the last look, when that was, and when to look again."""

    job_uids: frozenset[str]
    looked_at_seconds: float
    interval_seconds: float

    @property
    def look_at_seconds(self) -> float:
        """When the node's interval ends, unless a job arrives or leaves before."""
        return self.looked_at_seconds + self.interval_seconds


@dataclass(frozen=True, slots=True)
class MemoryState:
    """All that survives a restart of the controller."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    nodes: Mapping[str, NodeMemory] = field(default_factory=dict)


# --- decisions and what became of them ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resize:
    """An absolute target: carrying it out twice is the same as once. `None` limits count as the whole node."""

    job_uid: str
    node: str
    control: CpuControl
    from_millicores: int
    to_millicores: int
    reason: str
    gives_back: bool = False
    """Takes an earlier change back (`corrections`): what only slows down a policy's wishes does not hold it up."""

    @property
    def raises(self) -> bool:
        """True when the job would get more than it has."""
        return self.to_millicores > self.from_millicores


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
    """The resource other than CPU that its node is short of (`memory`): worth more than the CPU that moving costs."""


Move = Place | Migrate


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a policy wants, why (for each job that has not ended, also those left alone), what to remember."""

    policy: str
    resizes: tuple[Resize, ...]
    reasons: Mapping[str, str]
    memory: MemoryState
    moves: tuple[Move, ...] = ()
    """Placements of arriving jobs and migrations of running ones, in the order in which they are to happen."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """A resize that a guard did not let through. The reason names the guard, its figure and its bound."""

    resize: Resize
    guard: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a resize that was let through."""

    resize: Resize
    result: OutcomeResult
    detail: str = ""


RestoreResult = Literal["applied", "accepted", "deferred", "failed", "infeasible", "gone"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of giving a job its original resources back: `applied` once they are in effect.

    `accepted`: the platform has taken them, and has not said yet that they are in effect. `deferred` and `failed` are
    worth another try, `infeasible` is not; `gone`: there is nobody to give them to.
    """

    result: RestoreResult
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WithheldMove:
    """A placement or migration that a guard did not let through, and why."""

    move: Move
    guard: str
    reason: str


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """What became of a placement or migration that was let through."""

    move: Move
    result: OutcomeResult
    detail: str = ""
    maybe_begun: bool = False
    """It failed without an answer, so it may have been begun all the same."""
    begun_at_seconds: float | None = None
    """When a migration was begun, so that the job was told to end; None: not known more exactly than the pass."""

    @property
    def takes_a_slot(self) -> bool:
        """Whether it counts for what bounds the moves of a pass."""
        return self.result == "applied" or self.maybe_begun


MoveStage = Literal["begun", "resumed", "cancelled", "harmed"]
"""What is told of a migration: that it was begun, that the job is at work again, that it ended without moving the job
(it was given up, the job had finished, somebody has suspended it), that it went wrong."""


@dataclass(frozen=True, slots=True)
class MoveNews:
    """What became known of a migration in this pass; each stage of each migration is told once."""

    job_uid: str
    stage: MoveStage
    record: MoveRecord
    """As it is known now; `MoveRecord.at_seconds` tells the migrations of one job apart."""
    sentence: str
    """For people: `resumed on n2 after 4 s with no step lost`."""
    warning: bool = False


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass, told in full. `held` is why it could not observe or decide, and then nothing was changed."""

    taken_at_seconds: float
    policy: str
    seconds_by_verb: Mapping[str, float]
    next_look_at_seconds: float
    held: str | None = None
    snapshot: ClusterSnapshot | None = None
    decisions: Decisions | None = None
    outcomes: tuple[Outcome, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    moves: tuple[MoveOutcome, ...] = ()
    moves_withheld: tuple[WithheldMove, ...] = ()
    moves_told: tuple[MoveNews, ...] = ()
    """What became known of migrations, of this pass and of earlier ones (`move_review`)."""
    policy_failed: bool = False
    """The pass is held because the policy failed, and not because nothing could be observed."""

    def count(self, result: OutcomeResult) -> int:
        """How many resizes of this pass ended with `result`."""
        return sum(outcome.result == result for outcome in self.outcomes)
