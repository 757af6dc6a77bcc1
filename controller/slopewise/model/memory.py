"""Memory of earlier passes, for each job and each node; stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any

import msgspec

from slopewise.model.containers import (
    ContainerHealth,
    CpuAllocation,
    CpuControl,
    MemoryAllocation,
    OutcomeResult,
    Record,
)
from slopewise.model.jobs import Usage
from slopewise.model.learning import ClassFigures, Departed, Ends, Points
from slopewise.model.objective_status import ObjectiveMemory
from slopewise.model.paces import GpuMemory, Pace, Timing


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The start of the interval that is being measured: levels and counters at its first moment."""

    at_seconds: float
    level: float
    usage: Usage | None
    process_started_at_seconds: float | None = None
    level_at_seconds: float | None = None
    """The time that the level is of, where it is a median of fewer samples than later ones; None: of a full window."""
    memory_byte_seconds: float | None = None
    """`MemoryUse.byte_seconds_total` at its first moment; None: the use was not known then."""


class Outlier(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A level far outside of a job's range, and when it was first seen."""

    at_seconds: float
    level: float


class Doubts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Open questions about a job's range (`estimators/level_range.py`)."""

    early: tuple[float, ...] = ()
    """Its first different levels, until there are enough to classify the first as a spike or not."""
    outlier: Outlier | None = None
    """An unconfirmed level."""
    former: tuple[float, float] | None = None
    """First and best level before a jump that was confirmed."""


class Growth(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A finished measurement of one job over one interval (`growth.measure`).

    `change_per_second` is the normalised improvement, below 0 when the job got worse (unless progress is counted
    as an absolute difference); `progress_per_second` is Eq. 4.1, which counts getting worse as 0; `efficiency` is
    Eq. 4.2 per resource: progress per second divided by the average use as a fraction of the node (cpu, memory), or
    by MiB/s (block and network I/O, whose capacity is not known). One whose use is unknown or about zero is left out.
    """

    at_seconds: float
    interval_seconds: float
    change_per_second: float
    cpu_cores: float | None
    efficiency: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def progress_per_second(self) -> float:
        """Eq. 4.1 under the configured normaliser, in 1/s; never below 0."""
        return max(0.0, self.change_per_second)

    @property
    def cpu_efficiency(self) -> float | None:
        """Growth efficiency per whole node of CPU, in 1/s; None when unknown."""
        return self.efficiency.get("cpu")


class MemoryUse(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The working set of a job over time (`estimators/memory_use.py`)."""

    sampled_at_seconds: float
    working_set_bytes: float
    """The newest sample."""
    peak_bytes: float
    """The largest sample since the last checkpoint."""
    previous_peak_bytes: float = 0.0
    """The largest sample between the last two checkpoints: a peak that recurs is not forgotten."""
    checkpoint_at_seconds: float | None = None
    """When the last checkpoint was saved; None: none was reported."""
    samples: int = 1
    byte_seconds_total: float = 0.0
    """The integral of the working set over time: any interval's average is a difference of two."""

    @property
    def recalled_peak_bytes(self) -> float:
        """The larger one of both peaks."""
        return max(self.peak_bytes, self.previous_peak_bytes)


class Change(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last applied resize of a job, and measurements from before it."""

    at_seconds: float
    control: CpuControl
    from_millicores: int
    to_millicores: int
    container_health: ContainerHealth | None = None
    growth: Growth | None = None
    previous_growth: Growth | None = None
    pace: Pace | None = None
    is_rollback: bool = False
    """A rollback is never judged itself; else two changes would roll each other back forever."""
    reported: OutcomeResult | None = None
    """The node's later result (`Job.pending`) that was reported."""
    regression: str | None = None
    """The job's regression after this change; its rollback keeps it."""


MOVES_KEPT = 8
"""Of one job. More are kept as long as they count for the hourly budget of a node."""


class MoveRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One migration of a job and its progress (`feedback/move_tracking.py`)."""

    at_seconds: float
    from_node: str
    node: str
    steps_before: float | None = None
    """Steps done at the decision."""
    process_started_at_seconds: float | None = None
    """Of the moved process; another value is the process that replaced it."""
    begun_at_seconds: float | None = None
    """When the job was signalled to end; None: at `at_seconds`."""
    resumed_at_seconds: float | None = None
    """End of the first step after the move; the pass that saw it where that is not known."""
    resumed_on: str | None = None
    """The node; another one than the target where that filled up."""
    steps_lost: float | None = None
    """Steps before less the first steps seen after; 0: none repeated."""
    failure: str | None = None
    """Why the move failed; the job is not moved again."""

    @property
    def is_open(self) -> bool:
        """True until the job trains again or the move has failed."""
        return self.resumed_at_seconds is None and self.failure is None

    @property
    def pause_seconds(self) -> float | None:
        """From the begin to the job's first step elsewhere; None: not yet, or the job stayed on its node."""
        if self.resumed_at_seconds is None or self.resumed_on in (None, self.from_node):
            return None
        return self.away_seconds(self.resumed_at_seconds)

    def away_seconds(self, until_seconds: float) -> float:
        """From its begin until then; never negative, since the clocks of two nodes may differ."""
        begun_at = self.at_seconds if self.begun_at_seconds is None else self.begun_at_seconds
        return max(0.0, until_seconds - begun_at)


class Unmet(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An objective or a deadline that a job's node cannot keep: at how many evaluations in a row so far."""

    node: str
    """On another node the count begins again."""
    evaluations: int
    at_seconds: float
    """Of the last one that counted: those that only an arrival triggered in between do not."""


class StopRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last attempt to stop a job at its target (`guards/at_target.py`), and the process that it was about."""

    at_seconds: float
    reason: str
    started_at_seconds: float
    """Of the job (on a cluster, of its pod)."""
    process_started_at_seconds: float | None = None
    result: OutcomeResult | None = None
    """None: decided, and the result is not known."""
    detail: str = ""
    """Why it was not stopped."""

    @property
    def is_done(self) -> bool:
        """True once the job was signalled to end."""
        return self.result == "applied"


class PolicyMemory(Record, frozen=True, omit_defaults=True, gc=False):
    """What a policy has decided of one job, and keeps of it; only a policy writes it."""

    job_class: str | None = None
    class_since_seconds: float | None = None
    wanted_cores: float | None = None
    """The limit (the papers' L) before control mode and guards; of a policy that only moves jobs never carried out."""
    marks: frozenset[str] = frozenset()
    """Facts that it sets once, such as SpeCon's `migrated` and `rebalanced`."""
    unmet: Unmet | None = None
    """None: the job's node keeps its objective, or it has none, or nothing is known of it."""
    state: str = ""
    """JSON that only the policy reads; empty: nothing."""
    ends: Ends | None = None
    """As it expects; None: not known, or it expects none."""
    chance: float | None = None  # of a trial of a favoured study, to be the best of those that run


class Levels(Record, frozen=True, omit_defaults=True, gc=False):
    """The levels of a job's evaluation by which its growth is measured (`estimators/level_range.py`)."""

    series: str | None = None
    first: float | None = None
    best: float | None = None
    anchor: Anchor | None = None
    doubts: Doubts | None = None
    """Open questions about `first` and `best`; None: none."""
    silent_since_seconds: float | None = None
    """Since when it reports no usable level although it did before; None: it reports (also NaN), or never did."""
    finite: bool = True  # what it reported last


class Backoff(Record, frozen=True, omit_defaults=True, gc=False):
    """Until when a job is not changed, since it regressed after a change, or another controller resizes it."""

    until_seconds: float | None = None
    reason: str | None = None


class MemoryResizes(Record, frozen=True, omit_defaults=True, gc=False):
    """The changes of a job's memory."""

    at_seconds: float | None = None
    """Of the last one."""
    refused_at_seconds: float | None = None
    """When its node last did not carry one out, which was then taken back."""
    written_limit_bytes: int | None = None
    """The limit that was written last; None: none was."""


class JobMemory(Record, frozen=True, omit_defaults=True, gc=False):
    """Memory of one job. `original` is its CPU before the first change of anything: never overwritten, only dropped."""

    levels: Levels = Levels()
    growth: Growth | None = None
    previous_growth: Growth | None = None
    """The measurement before `growth`, of the same process."""
    timing: Timing = Timing()
    paces: tuple[Pace, ...] = ()
    """Oldest first, at most `pace.KEPT`; none once a served model answers none for `pace.MAX_UNANSWERED_INTERVALS`."""
    gpu: GpuMemory = GpuMemory()
    points: Points | None = None
    """None: not known yet, or its policy reads no raw points."""
    memory_use: MemoryUse | None = None
    """None: its working set was never seen."""
    objectives: ObjectiveMemory = ObjectiveMemory()
    decided: PolicyMemory = PolicyMemory()
    """By the policy of `spec.policy`."""
    placement: PolicyMemory | None = None
    """By that of `spec.placement` (`composition.py`); None: there is none, or it has decided nothing yet."""
    original: CpuAllocation | None = None
    """Its CPU before the first resize, by which weights and shares are judged."""
    last_resized_at_seconds: float | None = None
    change: Change | None = None
    backoff: Backoff = Backoff()
    original_memory: MemoryAllocation | None = None
    """Stored before the first change of its memory, never without `original`; None: its memory was never changed."""
    memory_resizes: MemoryResizes = MemoryResizes()
    moves: tuple[MoveRecord, ...] = ()
    """Oldest first; the last `MOVES_KEPT`, and those of the last hour."""
    moves_total: int = 0
    stop: StopRecord | None = None
    """None: this process was not to be stopped at its target."""

    @property
    def moved_at_seconds(self) -> float | None:
        """When its last move was decided; None: it was never moved."""
        return self.moves[-1].at_seconds if self.moves else None

    def with_decided(self, **changes: Any) -> JobMemory:
        """The same job with other values for these fields of `decided`."""
        return self.altered(decided=self.decided.altered(**changes))

    def with_decision(
        self, job_class: str, wanted_cores: float | None, now_seconds: float, **changes: Any
    ) -> JobMemory:
        """The same job after a policy decided on its class, its limit, and more: what is not named is not known."""
        before = self.decided
        since = before.class_since_seconds if before.job_class == job_class else now_seconds
        named = {"job_class": job_class, "class_since_seconds": since, "wanted_cores": wanted_cores}
        return self.altered(decided=before.altered(**{"ends": None, "chance": None, **named, **changes}))


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Memory of one node: its jobs at the last evaluation, when that was, and the interval to the next."""

    job_uids: frozenset[str]
    evaluated_at_seconds: float
    interval_seconds: float

    @property
    def requeue_at_seconds(self) -> float:
        """When the node's interval ends, unless a job arrives or leaves before."""
        return self.evaluated_at_seconds + self.interval_seconds


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The state that survives a restart of the controller."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    nodes: Mapping[str, NodeMemory] = field(default_factory=dict)
    placement_nodes: Mapping[str, NodeMemory] = field(default_factory=dict)
    """The evaluations of the policy of `spec.placement`; empty without one."""
    arriving: Mapping[str, JobMemory] = field(default_factory=dict)
    """Memory of arrivals that have run before, by uid: their paces are known. Read by policies, and never stored."""
    classes: Mapping[str, tuple[ClassFigures, ...]] = field(default_factory=dict)
    """The class record of each workload class: its jobs, newest last; the class seen last is the last one."""
    departed: tuple[Departed, ...] = ()
    """Jobs that have left whose state the policy keeps, those that left last at the end."""

    def with_jobs(self, changed: Mapping[str, JobMemory]) -> MemoryState:
        """With these jobs in place of what was remembered of them; itself without any."""
        return replace(self, jobs={**self.jobs, **changed}) if changed else self


MEMORY_JSON = msgspec.json.Encoder(enc_hook=methodcaller("item"))
"""Encodes memory for storage; values of numpy are converted."""

_JOB_MEMORY = msgspec.json.Decoder(JobMemory)
_MEMORY_STATE = msgspec.json.Decoder(MemoryState)


def read_job_memory(encoded: bytes | str) -> JobMemory:
    """A stored `JobMemory`; msgspec.DecodeError where it is damaged. Fields that it has no more are left out."""
    return _JOB_MEMORY.decode(encoded)


def read_memory_state(encoded: bytes) -> MemoryState:
    """A stored `MemoryState`, likewise."""
    return _MEMORY_STATE.decode(encoded)
