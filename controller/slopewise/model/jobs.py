"""What a pass observes: jobs, nodes, arrivals, moves under way, together a ClusterSnapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from slopewise.model.containers import (
    AcceptedRange,
    ContainerHealth,
    CpuAllocation,
    MemoryAllocation,
    PendingResize,
    Record,
    Unconfirmed,
)
from slopewise.model.freezes import NO_FREEZES, Freezes
from slopewise.model.learning import RawPoint
from slopewise.model.movability import Checkpoint, Movability

Objective = Literal["min", "max"]


class JobUid(NamedTuple):
    """A job's uid: on a cluster `WORKLOAD:SLOT`, the workload's uid and which of its pods it is; elsewhere its name."""

    workload: str
    slot: str = ""

    @classmethod
    def of(cls, job_uid: str) -> JobUid:
        """Worked example: `2f6c:0` is slot 0 of 2f6c, and `mnist` is the workload mnist."""
        workload, _, slot = job_uid.partition(":")
        return tuple.__new__(cls, (workload, slot))  # its own takes twice as long, and a pass asks for each job

    def __str__(self) -> str:
        return f"{self.workload}:{self.slot}" if self.slot else self.workload


class JobState(StrEnum):
    """The state that a job reports (`training_state`), or that of its process."""

    STARTING = "starting"
    TRAINING = "training"
    CHECKPOINTING = "checkpointing"
    FINISHED = "finished"
    FAILED = "failed"

    ended: bool
    """True when the job will do no more work, whether it succeeded or not. No property: a pass asks 15 times a job."""

    def __init__(self, value: str) -> None:
        self.ended = value in ("finished", "failed")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or the part of one that managed jobs may share."""

    name: str
    cpu_cores: float
    memory_bytes: int
    requests_max_millicores: int | None = None
    """What the requests of its managed jobs may add up to; None where requests are only relative weights."""
    available_cores: float | None = None
    """`cpu_cores` less what other pods request, or use if that is more; None: not known, and all of it counts."""
    memory_pressure: bool = False
    """Its kubelet reports too little free memory (condition MemoryPressure), and may evict pods."""


class Evaluation(Record, frozen=True, omit_defaults=False, gc=False):
    """The evaluation value of a job, as a level over a window: its median, never one raw sample.

    `series` names the series it came from: another one (its first `eval` after minutes of `train_ema`) is no jump.
    """

    level: float
    sample_count: int
    sampled_at_seconds: float
    series: str
    objective: Objective = "min"
    finite: bool = True

    def reaches(self, target: float) -> bool:
        """Whether the level is the target, or better in the metric's own direction."""
        return reaches(self.level, target, self.objective)


def reaches(level: float, target: float, objective: Objective) -> bool:
    """Whether a level is the target, or better. Worked example: of a loss (`min`), 0.19 reaches 0.2."""
    return level >= target if objective == "max" else level <= target


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Cumulative use, so that any interval's average is a difference of two. None: not observable here."""

    sampled_at_seconds: float
    cpu_seconds_total: float | None = None
    memory_bytes: float | None = None
    block_io_bytes_total: float | None = None
    network_io_bytes_total: float | None = None


@dataclass(frozen=True, slots=True)
class Responses:
    """Cumulative responses of a served model; any interval's mean response time is a difference of two."""

    count_total: float
    """Those that succeeded. A response that fails is often a fast one, and says nothing about an objective."""
    seconds_total: float
    failed_total: float = 0.0
    failed_seconds_total: float = 0.0
    in_flight: float | None = None
    """Requests received and not yet answered, now; None: not reported."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """Objectives of a job, from its owner's annotations, validated and bounded."""

    qoe_seconds: float | None = None
    """Objective of a served model (seconds a response) or of a training (seconds a step); smaller is better."""
    deadline_at_seconds: float | None = None
    target_level: float | None = None
    """The evaluation at which the job is done (TRADL's second target)."""
    deliverable_level: float | None = None
    """The evaluation from which its model is of use (TRADL's first target)."""
    weight: float = 1.0
    stops_at_target: bool = False
    """Its owner asks that it is stopped at `target_level`, through its own checkpoint (`guards/at_target.py`)."""
    study: str = ""
    """The study of its namespace of which it is a trial, whose best may come first at its owner's word; empty: none."""
    favours_best: bool = False

    def in_study(self, named: str) -> Objectives:
        """In the study that the training names itself, where its owner names none."""
        return self if self.study or not named else replace(self, study=named)


NO_OBJECTIVES = Objectives()


@dataclass(frozen=True, slots=True)
class MissingEvaluation:
    """Why a job that has run for a while reports no evaluation."""

    reason: Literal["NoTarget", "ScrapeFails", "ScrapeTimesOut", "NoMetric", "NotUsable"]
    """For conditions. A job with less CPU than it came with whose scrapes time out is lowered too far, not silent."""
    message: str
    """What is wrong and what to do, e.g. `port 41523 refuses; …`."""


class Job(Record, frozen=True, omit_defaults=False, gc=False):
    """One training workload on one node. No dataclass: with so many fields one takes 16 µs to make, and this 1 µs."""

    uid: str
    name: str
    namespace: str
    node: str
    state: JobState
    started_at_seconds: float
    allocation: CpuAllocation
    """The accepted CPU, on which decisions are based."""
    evaluation: Evaluation | None = None
    usage: Usage | None = None
    steps_total: float | None = None
    steps_planned: float | None = None
    useful_parallelism_cores: float | None = None
    restarted: bool = False
    """Restarted within the window of its evaluation: its level mixes two processes and has no meaning."""
    process_started_at_seconds: float | None = None
    """Start of the training process; None: not known. Another value is another process."""
    first_step_at_seconds: float | None = None
    """When that process ended its first step, by the clock of its node; None: not known, or long ago."""
    warnings: tuple[str, ...] = ()
    responses: Responses | None = None
    """Of a served model; None for a training."""
    objectives: Objectives = NO_OBJECTIVES
    memory_request_bytes: float | None = None
    """Memory reserved on its node; None: not known, and it fits everywhere."""
    memory_at_start_bytes: float | None = None
    """Memory that its next pod will reserve, where its request was lowered; None: `memory_request_bytes`."""
    memory: MemoryAllocation | None = None
    """The accepted memory of its container; None: not known, and never changed."""
    memory_ineligible_reason: str | None = None
    """Why its memory must not be changed (Guaranteed, swap, no request); None: it may be."""
    migratable: bool = False
    """Its owner allows moves; without that every migration is vetoed."""
    accepts: AcceptedRange | None = None
    request_follows_limit: bool = False
    """Its pod is Guaranteed: a change of its limit changes its request alike, and what is reserved on its node."""
    ineligible_reason: str | None = None
    """Why this job must not be resized (a GPU, another resizer, no limit); None: it may be."""
    container_health: ContainerHealth | None = None
    """Rollbacks (`feedback/rollback.py`) need it; None: not known."""
    actual: CpuAllocation | None = None
    """CPU in effect, as the platform reports it; None: not reported, or the accepted one."""
    pending: PendingResize | None = None
    unconfirmed: Unconfirmed | None = None
    pod_level: CpuAllocation | None = None
    """CPU of the whole pod, shared with its sidecars; None: not set."""
    checkpoint: Checkpoint | None = None
    """None: it reports none."""
    movability: Movability | None = None
    """None: the platform sets no bounds (the simulator)."""
    workload_class: str = ""
    """Which jobs are like it (`estimators/workload_classes.py`); empty: not known."""
    wait_ratio: float | None = None
    """The part of its steps' time in which they waited for their batches: more CPU for the loader may help, a faster
    device would not. None: it reports no waits."""
    waited_seconds_total: float | None = None
    """Seconds that its steps have waited for their batches, cumulative; None: it reports no waits."""
    accelerators: float = 0.0
    """Devices that its pod requests (GPUs, TPUs)."""
    gpu_use: float | None = None
    """The part of the time in which its devices computed, 0 to 1, as DCGM reports it now; None: not known."""
    least_cores: float | None = None
    """CPU below which its policy does not lower it; set for jobs with accelerators whose need is known, and only
    within a decision (`policies/shared/accelerators.py`)."""
    threads: float | None = None
    """The most threads that a library of its process has, loader workers left out; None: not reported."""
    missing_evaluation: MissingEvaluation | None = None
    """None: it reports one, or is not yet expected to, or the cause is not known."""
    points: tuple[RawPoint, ...] = ()
    """The scrapes since the last pass, oldest first, perhaps with some before; only for a policy that asks for them."""

    @property
    def memory_to_move_bytes(self) -> float | None:
        """Memory that it reserves on another node: a new pod has its original request. None: not known."""
        return self.memory_request_bytes if self.memory_at_start_bytes is None else self.memory_at_start_bytes

    @property
    def only_serves(self) -> bool:
        """A served model that trains nothing and reports no checkpoint: it begins again elsewhere and loses nothing."""
        return self.responses is not None and self.steps_total is None and self.checkpoint is None


@dataclass(frozen=True, slots=True)
class MoveUnderWay:
    """A move that has begun and not ended; the job may be on no node."""

    job_uid: str
    from_node: str
    node: str
    """The target; empty once it was given up and the default scheduler places the job."""
    since_seconds: float
    step: str
    """Shown to users: `saving and ending`, `waiting for its replacement`, `starting on node-b`."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A new job without a node. A policy may place it; else the default scheduler does."""

    uid: str
    name: str
    namespace: str
    arrived_at_seconds: float
    request_millicores: int = 0
    """CPU it reserves; 0: none, as the default scheduler sees a pod without requests."""
    memory_request_bytes: float | None = None
    useful_parallelism_cores: float | None = None
    steps_planned: float | None = None
    objectives: Objectives = NO_OBJECTIVES
    workload_class: str = ""
    """Which jobs are like it; empty: not known."""
    accelerators: float = 0.0
    """Devices that it requests."""
    refused_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that do not accept it, by name, with the reason; empty where not known."""


AbsentState = Literal["moving", "waiting", "suspended", "stopped", "finished", "failed"]
"""Between two pods of a move; its pod has no node yet; without pods, because its owner is suspended, was stopped at its
target, or has ended."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A known job that is on no node."""

    job_uid: str
    state: AbsentState
    reason: str
    """Shown to users: `its Job is suspended, and not by Slopewise`."""
    workload: str = ""
    """`namespace/name`."""
    objectives: Objectives = NO_OBJECTIVES
    """Of an arrival that is held back."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All inputs of a pass, at one moment."""

    taken_at_seconds: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    """Managed jobs in the order of discovery, also those that have just ended."""
    scrape_interval_seconds: float = 5.0
    waiting: tuple[Arrival, ...] = ()
    """Jobs that have arrived and are on no node yet, in the order of their arrival."""
    remaining_work_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """By uid; only the simulator fills it, for oracle policies."""
    moving: tuple[MoveUnderWay, ...] = ()
    """Moves under way of this policy's jobs, also of jobs that are not in `jobs`."""
    absent: tuple[Absence, ...] = ()
    """Jobs of this policy that are on no node, where the cause is known."""
    freezes: Freezes = NO_FREEZES
    """What may not be changed meanwhile."""

    def jobs_by_node(self) -> dict[str, list[Job]]:
        """The jobs that have not ended, by node; also nodes without any.

        A finished job stays in `jobs`, because it may report another state later (five folds, five reporters).
        """
        jobs: dict[str, list[Job]] = {node.name: [] for node in self.nodes}
        for job in self.jobs:
            if not job.state.ended:
                jobs[job.node].append(job)
        return jobs

    def memory_room_bytes(self) -> dict[str, float]:
        """Memory of each node that its jobs do not request, in bytes, by name; never negative.

        No request counts as 0.
        """
        taken: dict[str, list[float]] = {node.name: [] for node in self.nodes}
        for job in self.jobs:
            if job.memory_request_bytes is not None and not job.state.ended:
                taken[job.node].append(job.memory_request_bytes)
        return {node.name: max(0.0, node.memory_bytes - math.fsum(taken[node.name])) for node in self.nodes}


@dataclass(frozen=True, slots=True)
class Observation:
    """All that an observer saw at one moment."""

    snapshot: ClusterSnapshot
    notes: object = None
    """What it saw besides, for the maker of the observer: no decision depends on it."""
