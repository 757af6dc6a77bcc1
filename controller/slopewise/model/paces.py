"""What is measured of a job's steps and responses, and what changes of its CPU have shown; stored as JSON."""

from __future__ import annotations

import msgspec

from slopewise.model.containers import ContainerHealth, Record


class PaceAnchor(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The start of the interval over which a pace is measured: cumulative counters at its first moment."""

    at_seconds: float
    done_total: float
    """Responses that succeeded, or steps done."""
    busy_seconds_total: float | None
    """Seconds spent on responses; None for steps, whose time is the interval itself."""
    cpu_seconds_total: float | None
    process_started_at_seconds: float | None = None
    cpu_sampled_at_seconds: float | None = None
    """When the CPU was counted: a kubelet does so up to 20 s before the steps are read. None: at the same moment."""
    failed_total: float = 0.0
    """Responses that failed."""
    failed_seconds_total: float = 0.0
    waited_seconds_total: float | None = None
    """Of a job with accelerators, like what follows; None: it reports no waits for batches."""
    health: ContainerHealth | None = None
    """With its throttling and CPU pressure."""
    gpu_use: float | None = None


class Pace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A finished measurement of how long one step, or one response, took at one CPU level (`pace.measure`)."""

    at_seconds: float
    seconds: float
    """Mean seconds a step (of a training) or a response (of a served model)."""
    cores: float | None
    """CPU used while at work; None: not known."""
    busy_ratio: float = 1.0
    """Of the interval, how long it was at work; below 1 for a served model that waits for requests."""
    wait_ratio: float | None = None
    """Of a job with accelerators, the part of the interval in which its steps waited for batches; None: not known, like
    what follows."""
    short_ratio: float | None = None
    """The part of the interval in which it wanted more CPU than it had: throttled, or under CPU pressure."""
    gpu_use: float | None = None
    """At the end of the interval, as `Job.gpu_use`."""


class Answering(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Whether a served model answered its requests in its last interval (`pace.measure`)."""

    failed_ratio: float = 0.0
    """Of the responses of the interval, those that failed; 0 where there were none."""
    unanswered_since_seconds: float | None = None
    """Start of the first interval in a row in which no response succeeded although requests came, or may have come;
    None: one succeeded, or no request was there."""
    in_flight_since_seconds: float | None = None
    """Since when requests were in flight at each measurement and none has succeeded: the newest measurement, where one
    did in the interval before it. None: none is in flight, or that is not exported."""


class LearnedCores(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What changes of its CPU have shown of a job with accelerators (`feedback/gpu_effects.py`), in cores."""

    at_seconds: float
    least: float | None = None
    """With less its steps became slower."""
    most: float | None = None
    """More brought too little."""


class Timing(Record, frozen=True, omit_defaults=True, gc=False):
    """Of a job's steps or responses: the interval that is being measured, and what holds beside `JobMemory.paces`."""

    anchor: PaceAnchor | None = None
    answering: Answering | None = None
    """Of a served model, over its last interval; None: none has ended yet, or it is a training."""
    least_step_cpu_seconds: float | None = None
    """The least CPU-seconds a step that it has had (`estimators/step_cost.py`); None: not known yet, or no training."""
    oversubscribes: bool = False
    """Whether its steps cost more than that by so much, as of the last pass (`estimators/step_cost.py`)."""


class GpuMemory(Record, frozen=True, omit_defaults=True, gc=False):
    """Of a job with accelerators whose CPU was changed."""

    learned: LearnedCores | None = None
    """None: nothing was learned."""
    seconds_won: float = 0.0
    """Device-seconds that its steps would have waited longer with its original CPU (`estimators/gpu_need.py`)."""
