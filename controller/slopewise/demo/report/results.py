"""The results of a run of the demo: the compared figures, and the curves of the report.

All times are seconds since the start of the run, so that runs can be laid over one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from slopewise.adapters.local.job_record import SUCCEEDED
from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.model import CpuControl, JobState, Objective
from slopewise.reports.estimates import SAME_RATIO
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
    """One job of one run; None: unknown, and of objectives that it has none."""

    name: str
    arrived_seconds: float
    finished_seconds: float | None
    jct_seconds: float | None
    time_to_90_seconds: float | None
    """From its arrival until 90 % of its loss's total improvement."""
    steps: int | None
    loss_first: float | None
    loss_last: float | None
    cpu_seconds: float | None
    state: str
    node: str = ""
    """Where it ran, at last; empty when it never started."""
    moves: tuple[JobMove, ...] = ()
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
        return self.state in SUCCEEDED and self.jct_seconds is not None and self.jct_seconds <= self.deadline_seconds

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


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a job of which less is better, and its mean over a run; `name` and `mean_name` are those in JSON."""

    name: str
    mean_name: str
    mean_label: str
    heading: str = ""
    """Of the figures of each job."""
    tolerance_seconds: float = 0.0
    same_ratio: float = 0.0
    """Two figures less apart than either of these are the same."""

    def of(self, job: JobResult) -> float | None:
        """None: not known."""
        value: float | None = getattr(job, self.name)
        return value


SCRAPED_SECONDS = 1.0
"""A loss is seen when it is scraped, once a second: at 12.0 s in one run and 12.9 s in another may be the same step."""

JCT = Measure(
    "jct_seconds", "jct_mean_seconds", "Mean completion time", "JCT of each job", same_ratio=SAME_RATIO
)  # fmt: skip
TIME_TO_90 = Measure(
    "time_to_90_seconds", "time_to_90_mean_seconds", "Mean time to 90 %", "Time to 90 % of each job", SCRAPED_SECONDS
)
CPU_OF_STEPS = Measure(
    "cpu_seconds_per_1000_steps", "cpu_seconds_per_1000_steps_mean", "CPU-seconds of 1,000 steps",
    "CPU-seconds of 1,000 steps of each job", same_ratio=SAME_RATIO,
)  # fmt: skip
TIME_TO_DELIVERABLE = Measure(
    "time_to_deliverable_seconds", "time_to_deliverable_mean_seconds", "Mean time to deliverable", "", SCRAPED_SECONDS
)
TIME_TO_TARGET = Measure(
    "time_to_target_seconds", "time_to_target_mean_seconds", "Mean time to target", "Time to target of each job",
    SCRAPED_SECONDS,
)  # fmt: skip
MEASURES = (JCT, TIME_TO_90, CPU_OF_STEPS, TIME_TO_DELIVERABLE, TIME_TO_TARGET)


@dataclass(frozen=True)
class Curves:
    """One job over time: its evaluation, the CPU it used (cores), the CPU it was allotted (cores)."""

    objective: Objective = "min"
    """Whether the evaluation is to fall (a loss) or to rise (an accuracy)."""
    loss: list[tuple[float, float]] = field(default_factory=list)
    cpu_cores: list[tuple[float, float]] = field(default_factory=list)
    """Each point is the mean since the one before."""
    allotted_cores: list[tuple[float, float]] = field(default_factory=list)


_FIGURES = (
    "passes", "passes_held", "resizes_applied", "moves_applied", "withheld", "controller_cpu_ratio", "control", "note",
    "other_cpu_cores", "makespan_seconds", "fair_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class RunResult:
    """One policy over the whole job list."""

    policy: str
    jobs: list[JobResult]
    curves: dict[str, Curves]
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
    withheld_most: str = ""
    """The guard that withheld most."""
    note: str = ""
    """A caveat about this run, e.g. that Prometheus had no losses; else empty."""
    other_cpu_cores: float | None = None
    """Mean CPU, in cores, that everything else on the machine used meanwhile, on the cores of the nodes; None: the
    kernel does not show it."""
    fair_seconds: dict[str, float] = field(default_factory=dict)
    """What each job would have taken under fair sharing, as estimated when all had ended; none that is not known."""

    def names_in_state(self, state: JobState) -> list[str]:
        """The jobs that are in that state at the end."""
        return [job.name for job in self.jobs if job.state == state]

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
        ends = [job.finished_seconds for job in self.jobs if job.finished_seconds is not None]
        whole = ends and len(ends) == len(self.jobs)
        return max(ends) - min(job.arrived_seconds for job in self.jobs) if whole else None

    def mean(self, measure: Measure) -> float | None:
        """Over the jobs that have the figure."""
        known = [value for job in self.jobs if (value := measure.of(job)) is not None]
        return fmean(known) if known else None

    def as_json(self) -> dict[str, Any]:
        """The figures without the curves."""
        return {
            "jobs": [job.as_json() for job in self.jobs],
            **{measure.mean_name: self.mean(measure) for measure in MEASURES},
            "deadlines_met": _kept(job.deadline_met for job in self.jobs),
            "qoe_satisfied": _kept(job.qoe_satisfied for job in self.jobs),
            "jobs_moved": len(self.job_moves),
            **{name: getattr(self, name) for name in _FIGURES},
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

    @property
    def jobs(self) -> list[JobResult]:
        """Those of all runs of the first round."""
        return [job for run in self.runs for job in run.jobs]

    def runs_of(self, place: int) -> list[RunResult]:
        """The runs of one policy by its place in `runs`, one for each round."""
        return [of_round[place] for of_round in self.rounds]

    @property
    def job_names(self) -> list[str]:
        """Every job of any run, in order of first appearance; its place in here is its colour in the report."""
        return list(dict.fromkeys(job.name for job in self.jobs))

    @property
    def is_served(self) -> bool:
        """True where every job is a served model, which ends at a fixed time whatever CPU it got."""
        return bool(self.jobs) and all(job.qoe_seconds is not None and job.steps is None for job in self.jobs)

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


def _kept(objectives: Iterable[bool | None]) -> dict[str, int] | None:
    """How many of how many were met; None where no job has an objective."""
    made = [met for met in objectives if met is not None]
    return {"met": sum(made), "of": len(made)} if made else None
