"""The results of a run of the demo: the compared figures, and the curves of the report.

All times are seconds since the start of the run, so that runs can be laid over one another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.model import CpuControl, JobState, Objective
from slopewise.signals import Interrupted


@dataclass(frozen=True)
class JobMove:
    """One migration of a job, and what it cost. None: not known, since the job ended before it was seen again."""

    at_seconds: float
    """When its process was sent SIGTERM."""
    from_node: str
    node: str
    saving_seconds: float
    """From then until its process had ended."""
    pause_seconds: float | None
    """From then until its first step on the other node had ended; or, where it does not say, until a pass saw it."""
    steps_lost: float | None


@dataclass(frozen=True)
class JobResult:
    """One job of one run. `time_to_90_seconds`: from its arrival until 90 % of its loss's total improvement.

    Objectives are None where it has none, and results where they are unknown.
    """

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
    node: str = ""
    """Where it ran, at last; empty when it never started."""
    moves: tuple[JobMove, ...] = ()
    """Its migrations, in order."""
    deadline_seconds: float | None = None
    """From its arrival."""
    qoe_seconds: float | None = None
    """Its objective: seconds a response, or a training step."""
    pace_seconds: float | None = None
    """What a response, or a step, took when it was last measured."""
    deliverable_level: float | None = None
    target_level: float | None = None
    time_to_deliverable_seconds: float | None = None
    time_to_target_seconds: float | None = None
    """From its arrival until its evaluation first reached the level, as scraped."""
    no_loss: str = ""
    """Why it reported no loss at all; empty where it did, or where that was not found out."""

    @property
    def cpu_seconds_per_1000_steps(self) -> float | None:
        """CPU-seconds; None where either is not known."""
        return 1000 * self.cpu_seconds / self.steps if self.cpu_seconds is not None and self.steps else None

    @property
    def deadline_met(self) -> bool | None:
        """None where there is no deadline; one that failed met none."""
        if self.deadline_seconds is None:
            return None
        if self.jct_seconds is None or self.state != JobState.FINISHED:
            return False
        return self.jct_seconds <= self.deadline_seconds

    @property
    def qoe_satisfied(self) -> bool | None:
        """None where there is no objective; one that failed, or whose pace is not known, satisfied none."""
        if self.qoe_seconds is None:
            return None
        if self.pace_seconds is None or self.state == JobState.FAILED:
            return False
        return self.pace_seconds <= self.qoe_seconds * (1 + QOE_TOLERANCE_RATIO)

    def as_json(self) -> dict[str, Any]:
        """All of the above."""
        return asdict(self) | {"deadline_met": self.deadline_met, "qoe_satisfied": self.qoe_satisfied}


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
    """One decision worth showing: a change of class, or a resize or move and its outcome."""

    at_seconds: float
    job: str
    job_class: str | None
    from_millicores: int | None
    to_millicores: int | None
    outcome: str
    """applied, failed, withheld by a named guard, an empty string when only the class changed, or of a migration that
    was begun earlier: resumed, failed."""
    reason: str
    node: str = ""
    """Of a placement or migration: the node it was to. Empty otherwise."""


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
    moves_applied: int = 0
    """Jobs that the policy placed or began to migrate; those of the default scheduler are not among them."""
    note: str = ""
    """A caveat about this run, e.g. that Prometheus had no losses; else empty."""
    other_cpu_cores: float | None = None
    """Mean CPU, in cores, that everything else on the machine used meanwhile, on the cores of the nodes; None: the
    kernel does not show it."""
    stolen_cpu_cores: float | None = None
    """Mean CPU, in cores, that the hypervisor gave to other machines meanwhile."""
    other_cpu_curve: list[tuple[float, float]] = field(default_factory=list)
    """Both together over time, each point the mean since the one before."""

    @property
    def away_cpu_cores(self) -> float | None:
        """Both together: what the jobs could not have."""
        return None if self.other_cpu_cores is None else self.other_cpu_cores + (self.stolen_cpu_cores or 0.0)

    def names_in_state(self, state: JobState) -> set[str]:
        """The jobs that are in that state at the end."""
        return {job.name for job in self.jobs if job.state == state}

    def job(self, name: str) -> JobResult | None:
        """The job of that name; None when this run had none."""
        return next((job for job in self.jobs if job.name == name), None)

    @property
    def job_moves(self) -> list[JobMove]:
        """All migrations of running jobs."""
        return [move for job in self.jobs for move in job.moves]

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

    @property
    def cpu_seconds_per_1000_steps_mean(self) -> float | None:
        """Mean CPU-seconds of 1,000 steps over the jobs whose steps are known."""
        return _mean([job.cpu_seconds_per_1000_steps for job in self.jobs])

    @property
    def time_to_deliverable_mean_seconds(self) -> float | None:
        """Mean time to the first target over the jobs that reached it."""
        return _mean([job.time_to_deliverable_seconds for job in self.jobs])

    @property
    def time_to_target_mean_seconds(self) -> float | None:
        """Mean time to the final target over the jobs that reached it."""
        return _mean([job.time_to_target_seconds for job in self.jobs])

    def as_json(self) -> dict[str, Any]:
        """The figures without the curves."""
        return {
            "jobs": [job.as_json() for job in self.jobs],
            "makespan_seconds": self.makespan_seconds,
            "jct_mean_seconds": self.jct_mean_seconds,
            "time_to_90_mean_seconds": self.time_to_90_mean_seconds,
            "cpu_seconds_per_1000_steps_mean": self.cpu_seconds_per_1000_steps_mean,
            "time_to_deliverable_mean_seconds": self.time_to_deliverable_mean_seconds,
            "time_to_target_mean_seconds": self.time_to_target_mean_seconds,
            "deadlines_met": _kept([job.deadline_met for job in self.jobs]),
            "qoe_satisfied": _kept([job.qoe_satisfied for job in self.jobs]),
            "passes": self.passes,
            "passes_held": self.passes_held,
            "resizes_applied": self.resizes_applied,
            "moves_applied": self.moves_applied,
            "jobs_moved": len(self.job_moves),
            "withheld": self.withheld,
            "controller_cpu_ratio": self.controller_cpu_ratio,
            "control": self.control,
            "note": self.note,
            "other_cpu_cores": self.other_cpu_cores,
            "stolen_cpu_cores": self.stolen_cpu_cores,
        }


@dataclass(frozen=True)
class DemoResult:
    """All runs of one demo."""

    runs: list[RunResult]
    """Of the first round: one of each policy, the baseline `fair` first, whatever the order in which they were made."""
    prometheus_version: str
    actuator: str
    """How CPU was given, in plain words, e.g. `cgroup v1, weights (cpu.shares)`."""
    node_cores: float
    """Of all nodes together."""
    interval_seconds: float
    nodes: int = 1
    workload: str = "trainings"
    """Which of the demo's job lists it was, or `own`: the user's."""
    repeats: list[list[RunResult]] = field(default_factory=list)
    """The further rounds, each in the order of `runs`."""
    rounds_asked: int = 1
    stopped: Interrupted | None = None
    """The signal that cut the rounds short; the command ends with its exit code."""

    @property
    def rounds(self) -> list[list[RunResult]]:
        """Every whole round: one run of each policy, in the order of `runs`."""
        return [self.runs, *self.repeats]

    def runs_of(self, place: int) -> list[RunResult]:
        """The runs of one policy by its place in `runs`, one for each round."""
        return [of_round[place] for of_round in self.rounds]

    @property
    def job_names(self) -> list[str]:
        """Every job of any run, in order of first appearance; its place in here is its colour in the report."""
        return list(dict.fromkeys(job.name for run in self.runs for job in run.jobs))

    @property
    def has_objectives(self) -> bool:
        """True when any job has a deadline or an objective."""
        jobs = [job for run in self.runs for job in run.jobs]
        return any(job.deadline_seconds is not None or job.qoe_seconds is not None for job in jobs)

    def as_json(self) -> dict[str, Any]:
        """The figures of every run; `policy_runs` are those of the first round."""
        return {
            "policy_runs": {run.policy: run.as_json() for run in self.runs},
            "rounds": [{run.policy: run.as_json() for run in of_round} for of_round in self.rounds],
            "rounds_asked": self.rounds_asked,
            "prometheus_version": self.prometheus_version,
            "actuator": self.actuator,
            "node_cores": self.node_cores,
            "nodes": self.nodes,
            "workload": self.workload,
            "interval_seconds": self.interval_seconds,
        }


def _kept(objectives: list[bool | None]) -> dict[str, int] | None:
    """How many of how many were met; None where no job has an objective."""
    made = [met for met in objectives if met is not None]
    return {"met": sum(made), "of": len(made)} if made else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
