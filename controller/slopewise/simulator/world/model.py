"""Data of a simulation: the jobs drawn from a scenario (`Instance`) and the results of a run (`RunOutcome`).

Times are seconds since the start of the simulated run, work is core-seconds on a core of speed 1. A random number
generator is used only where an `Instance` is drawn and where observations are made noisy, each from its own seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from slopewise.config.training_policy import Behaviour, CpuBounds, EvaluationSettings, Migration, PlacementChoice
from slopewise.errors import SlopewiseError
from slopewise.model import AcceleratorControl, CpuAllocation, CpuControl, StudyControl
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.threads import Threads

SchedulerRule = Literal["fewest-jobs", "least-used", "fifo"]
"""Where the default scheduler places a job: on the node with the fewest jobs, or whose CPU is used least then; or, from
a queue, on one that leaves it all the cores that it can use."""


class Curve(Protocol):
    """A normalised evaluation over the fraction of work done: 1 at the start, 0 at the best for one that only falls."""

    def at(self, done_ratio: float) -> float:
        """The evaluation after this fraction (0 to 1) of the work; NaN once a job has diverged."""
        ...

    def reached(self, improvement_ratio: float) -> float | None:
        """The fraction of work at which this part (0 to 1) of the total improvement is first reached; None: never."""
        ...


@dataclass(frozen=True, slots=True)
class SimNode:
    """A simulated machine. `speed`: work done per second by one of its cores."""

    name: str
    cpu_cores: float
    memory_bytes: int
    speed: float = 1.0
    requests_max_millicores: int | None = None
    """Where requests reserve something, what they may add up to: a raise beyond it is deferred, as by a kubelet."""
    accelerators: int = 0
    """Devices, each of one job at a time."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A step whose loss is far off: between these fractions of the work it is the last one, and all that is seen."""

    from_ratio: float
    to_ratio: float
    size: float
    """On the scale of the curve, 1 being its range; above or below 0."""


ONE_CORE = CpuAllocation(None, 1000)


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job as drawn: all that will happen to it is decided by this and by what it is given."""

    name: str
    model: str
    arrive_seconds: float
    work_cpu_seconds: float
    """Core-seconds on a core of speed 1; infinite for a served model, which goes on until the run ends."""
    curve: Curve | None
    """None for a served model."""
    losses: tuple[float, float] = (1.0, 0.0)
    """What is reported where the curve is 1 and 0: a recorded loss has its own range."""
    parallelism_cores: float = 1.0
    threads: Threads | None = None
    """None: one, or several that cost nothing."""
    accelerator: Accelerator | None = None
    """None: it computes on the CPU."""
    noise: float = 0.0
    """Standard deviation of an observed evaluation, as a fraction of the first of `losses`."""
    memory_bytes: float | None = None
    allocation: CpuAllocation = ONE_CORE
    """The CPU that it arrives with; a limit counts under `limits` alone."""
    request_cpu_seconds: float | None = None
    """A served model's core-seconds a request; always busy, one request after another on each useful core."""
    steps_planned: int | None = None
    """As it says."""
    plan_ratio: float = 1.0
    """`steps_planned` over the steps that it takes."""
    workload_class: str | None = None
    """None: its model."""
    reported_curve: Curve | None = None
    """What it reports instead of `curve`, by which it learns."""
    qoe_seconds: float | None = None
    deadline_seconds: float | None = None
    """From the start of the run."""
    target_level: float | None = None
    deliverable_level: float | None = None
    stops_at_target: bool = False
    weight: float = 1.0
    study: str = ""
    """Of which it is a trial; empty: of none."""
    spikes: tuple[Spike, ...] = ()
    """Of what is observed only: the job learns as if there were none."""
    reports: bool = True
    """False: it exports nothing, as a job without an exporter; its CPU is counted all the same."""
    migratable: bool = True
    checkpoint_seconds: float = 2.5
    restart_seconds: float = 2.5
    crashes_at_done_ratio: tuple[float, ...] = ()
    """It is restarted from its last checkpoint (here: without loss of work) when it gets there."""

    @property
    def class_name(self) -> str:
        """Which jobs it says it is like; empty: none."""
        return self.model if self.workload_class is None else self.workload_class

    def loss_at(self, level: float) -> float:
        """What the job reports where its curve has this level."""
        first, best = self.losses
        return best + (first - best) * level


@dataclass(frozen=True, slots=True)
class Physics:
    """Parameters of the simulated machines, the same for every policy."""

    scrape_seconds: float = 5.0
    scrape_delay_seconds: float = 0.0
    """How long a sample takes until a query sees it."""
    missing_ratio: float = 0.0
    """The part of all scrapes that fail."""
    contention_ratio: float = 0.01
    """Work lost per further running job of a node."""
    resize_seconds: float = 0.2
    quota_speeds: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.1, 0.065), (0.25, 0.205), (0.5, 0.47), (1.0, 1.0))
    """Measured (quota in cores, speed in cores): a hard quota below one core costs more than its fraction."""


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy of a scenario; `label` names it in every table."""

    label: str
    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    interval_seconds: float = 20.0
    control: CpuControl = "requests"
    accelerators: AcceleratorControl = "Ignore"
    studies: StudyControl = "Fair"
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    behaviour: Behaviour = field(default_factory=Behaviour)
    cpu: CpuBounds = field(default_factory=CpuBounds)
    migration: Migration | None = None
    """None: moves are not bounded, as in the papers."""
    default_scheduler: SchedulerRule | None = None
    """None: the instance's."""
    placement: PlacementChoice | None = None
    """The policy that chooses nodes beside it."""
    files: tuple[str, ...] = ()
    """Where these policies are that are files of the user's."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A scenario drawn for one seed: the same for every policy."""

    scenario: str
    seed: int
    nodes: tuple[SimNode, ...]
    jobs: tuple[SimJob, ...]
    """In order of arrival."""
    physics: Physics = field(default_factory=Physics)
    duration_seconds: float | None = None
    """When the run ends whatever still runs; None: when the last job ends. Needed where models are served."""
    history: tuple[SimJob, ...] = ()
    """Jobs that ended before the run: a policy has its records of them, and no figure counts them."""
    default_scheduler: SchedulerRule = "fewest-jobs"
    """Of every run that does not choose its own, the one without a controller among them."""


MoveKind = Literal["placed", "migrated", "rebalanced"]


@dataclass(frozen=True, slots=True)
class Stay:
    """A job on a node, from when until when, and how it came there."""

    node: str
    from_seconds: float
    to_seconds: float
    came: MoveKind


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of one job. Times from the start of the run; None: it did not get there."""

    name: str
    model: str
    arrived_seconds: float
    finished_seconds: float | None
    at_90_seconds: float | None
    """When 90 % of its total improvement was reached."""
    at_99_seconds: float | None
    work_cpu_seconds: float
    served_cpu_seconds: float
    """CPU it used."""
    stays: tuple[Stay, ...]
    cpu_jitter_ratio: float
    """Standard deviation over mean of its CPU, over intervals of 20 s while it ran; 0 when it ran for only one."""
    deadline_seconds: float | None = None
    qoe_seconds: float | None = None
    response_seconds: float | None = None
    """Mean response time of a served model over the second half of the run."""
    target_seconds: float | None = None
    """When its target evaluation was really reached."""
    deliverable_seconds: float | None = None
    stopped: bool = False
    """It was ended at its target, before its work was done."""
    allocated_cpu_seconds: float = 0.0
    """Its limit, or its request where it has none, over the time it was on a node."""
    allocated_used_cpu_seconds: float = 0.0
    """How much of that it used; what it used beyond it does not count."""
    device_seconds: float = 0.0
    """For how long it had its accelerators and was at work, times their number."""
    device_waited_seconds: float = 0.0
    """How much of that its accelerators waited for batches."""

    @property
    def jct_seconds(self) -> float | None:
        """From its arrival to its end."""
        return None if self.finished_seconds is None else self.finished_seconds - self.arrived_seconds


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event, for `--trace` and the Gantt chart: arrived, placed, resized, migrated, ended, stopped and more."""

    at_seconds: float
    kind: str
    job: str
    node: str
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One policy over one instance."""

    scenario: str
    policy: str
    seed: int
    jobs: tuple[JobOutcome, ...]
    ended_seconds: float
    overlap_seconds: Mapping[int, float]
    """For how long exactly k jobs were running at the same time, all nodes together."""
    growth_efficiency_sum: float
    """Mean over time of the sum over jobs of growth efficiency (Eq. 4.3), as each pass found it, until the next."""
    load_imbalance_ratio: float
    """Mean over time of (most running jobs on a node - fewest) / mean, while any job runs; 0 on one node."""
    cpu_utilisation_ratio: float
    """CPU used over CPU there was, from the first arrival to the end."""
    cpu_short_ratio: float
    """Part of that time in which the jobs of some node could have used more CPU than it has."""
    resizes_total: int
    migrations_total: int
    passes_total: int
    withheld_total: int
    events: tuple[TraceEvent, ...] = ()
    """Filled only with a trace."""


HORIZON_RATIO = 1000.0
"""A run that takes so many times as long as all work one job after another on the slowest node will never end."""

HORIZON_SECONDS = 3600.0
"""What is added to that horizon, for jobs of a second or two."""


def refuse_endless(instance: Instance) -> None:
    """What could never end is refused before it starts."""
    if not instance.nodes:
        raise SlopewiseError(f"{instance.scenario}: there are no nodes, so no job can ever run; add one.")
    largest = max(node.memory_bytes for node in instance.nodes)
    for job in instance.jobs:
        needed = job.memory_bytes or 0.0
        if needed > largest:
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} asks for {needed / 2**30:.3g} GiB and the largest node has "
                f"{largest / 2**30:.3g} GiB; ask for less or add a node."
            )
        devices = 0 if job.accelerator is None else job.accelerator.count
        if not any(needed <= node.memory_bytes and devices <= node.accelerators for node in instance.nodes):
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} asks for {devices} accelerators, and no node that has its memory "
                "has as many; ask for less or add a node."
            )
        if not math.isfinite(job.work_cpu_seconds) and instance.duration_seconds is None:
            raise SlopewiseError(
                f"{instance.scenario}: job {job.name} serves for ever, so the run would not end; give it a duration."
            )


def horizon_seconds(instance: Instance) -> float:
    """When a run counts as one that never ends; a run of a fixed duration always ends."""
    if instance.duration_seconds is not None:
        return math.inf
    slowest = min(node.speed for node in instance.nodes)
    solo_seconds = math.fsum(job.work_cpu_seconds / min(1.0, job.parallelism_cores) for job in instance.jobs) / slowest
    last_arrival = max((job.arrive_seconds for job in instance.jobs), default=0.0)
    return last_arrival + HORIZON_SECONDS + HORIZON_RATIO * solo_seconds
