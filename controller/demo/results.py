"""What a run of the demo yields: the figures that are compared, and the curves that the report draws.

`runner.py` fills these; `table.py` prints them, `report.py` draws them, `as_json` is what `-o json` prints.
All times are seconds since the start of the run, so that runs can be laid over one another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from controller.model import CpuControl, Objective


@dataclass(frozen=True)
class JobResult:
    """One job of one run. `time_to_90_seconds`: from its arrival until 90 % of its loss's total improvement."""

    name: str
    arrived_seconds: float
    finished_seconds: float | None
    jct_seconds: float | None
    time_to_90_seconds: float | None
    steps: int | None
    loss_first: float | None
    loss_last: float | None
    cpu_seconds: float | None
    state: str


@dataclass(frozen=True)
class Curves:
    """One job over time: its evaluation, the CPU it used (cores), the CPU it was allotted (cores)."""

    objective: Objective = "min"
    """Whether the evaluation is to fall (a loss) or to rise (an accuracy)."""
    loss: list[tuple[float, float]] = field(default_factory=list)
    cpu_cores: list[tuple[float, float]] = field(default_factory=list)
    allotted_cores: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class DecisionRow:
    """One decision worth showing: a change of class, or a resize and what became of it."""

    at_seconds: float
    job: str
    job_class: str | None
    from_millicores: int | None
    to_millicores: int | None
    outcome: str
    """applied, failed, withheld by a named guard, or an empty string when only the class changed."""
    reason: str


@dataclass(frozen=True)
class RunResult:
    """One policy over the whole job list."""

    policy: str
    jobs: list[JobResult]
    curves: dict[str, Curves]
    decisions: list[DecisionRow]
    passes: int
    passes_held: int
    resizes_applied: int
    withheld: int
    controller_cpu_ratio: float
    """CPU time of the controller's passes divided by the run's duration: fraction of one core."""
    node_cores: float = 0.0
    control: CpuControl = "requests"
    note: str = ""
    """What the reader must know of this run, e.g. that Prometheus could not tell the losses; else empty."""

    @property
    def makespan_seconds(self) -> float | None:
        """From the first arrival to the last end; None while a job has not ended."""
        if any(job.finished_seconds is None for job in self.jobs) or not self.jobs:
            return None
        arrived = min(job.arrived_seconds for job in self.jobs)
        return max(job.finished_seconds for job in self.jobs if job.finished_seconds is not None) - arrived

    @property
    def jct_mean_seconds(self) -> float | None:
        """Mean completion time over the jobs that ended."""
        return _mean([job.jct_seconds for job in self.jobs])

    @property
    def time_to_90_mean_seconds(self) -> float | None:
        """Mean time to 90 % of the improvement over the jobs that reached it."""
        return _mean([job.time_to_90_seconds for job in self.jobs])

    def as_json(self) -> dict[str, Any]:
        """The figures without the curves."""
        return {
            "jobs": [asdict(job) for job in self.jobs],
            "makespan_seconds": self.makespan_seconds,
            "jct_mean_seconds": self.jct_mean_seconds,
            "time_to_90_mean_seconds": self.time_to_90_mean_seconds,
            "passes": self.passes,
            "passes_held": self.passes_held,
            "resizes_applied": self.resizes_applied,
            "withheld": self.withheld,
            "controller_cpu_ratio": self.controller_cpu_ratio,
            "control": self.control,
            "note": self.note,
        }


@dataclass(frozen=True)
class DemoResult:
    """All runs of one demo, the baseline `fair` first."""

    runs: list[RunResult]
    prometheus_version: str
    actuator: str
    """How CPU was given, in plain words, e.g. `cgroup v1, weights (cpu.shares)`."""
    node_cores: float
    interval_seconds: float

    def as_json(self) -> dict[str, Any]:
        """The one object that `slopewise demo -o json` prints."""
        return {
            "policy_runs": {run.policy: run.as_json() for run in self.runs},
            "prometheus_version": self.prometheus_version,
            "actuator": self.actuator,
            "node_cores": self.node_cores,
            "interval_seconds": self.interval_seconds,
        }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
