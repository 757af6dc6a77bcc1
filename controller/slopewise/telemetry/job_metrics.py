"""Metrics of jobs and nodes, made from the last pass of each policy when Prometheus scrapes; deleted jobs disappear."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slopewise.allocation import actual_millicores, allotted_cores, capacity_cores
from slopewise.estimators import growth
from slopewise.estimators.step_cost import step_cost
from slopewise.feedback import rollback
from slopewise.model import (
    ClusterSnapshot,
    ContainerHealth,
    CpuControl,
    DeadlineStatus,
    Decisions,
    Job,
    JobMemory,
    JobState,
    MemoryAllocation,
    Node,
    ObjectiveStatus,
    PassReport,
    QoeStatus,
)
from slopewise.telemetry.benefit import EndFamilies
from slopewise.telemetry.gpu_metrics import GpuFamilies, add_known
from slopewise.telemetry.study_metrics import StudyFamilies
from slopewise.telemetry.totals import totals

_JOB_LABELS = ("job_namespace", "job_name", "job_node")


class LastPasses(Collector):
    """The last pass of each policy that observed anything, by the name of its document."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()  # passes end, and Prometheus scrapes, in threads of their own

    def replace_pass(self, document: str, report: PassReport, control: CpuControl) -> None:
        """Replace this policy's last pass; held passes are ignored."""
        if not report.held and report.snapshot is not None and report.decisions is not None:
            with self._lock:
                self._seen[document] = _Seen(
                    document,
                    report.snapshot,
                    report.decisions,
                    control,
                    report.objective_statuses,
                    report.snapshot.jobs,
                )

    def forget(self, document: str) -> None:
        """Remove a deleted policy and its jobs."""
        with self._lock:
            self._seen.pop(document, None)

    def collect(self) -> Iterator[Metric]:
        """One family per figure, over all policies."""
        with self._lock:
            passes = _newest_first(self._seen.values())
        if not passes:
            return
        yield _jobs_by_state([job for seen in passes for job in seen.jobs])
        yield _growth_sum(passes)
        yield from _node_cores(passes)
        yield from _job_families(passes)


@dataclass(frozen=True, slots=True)
class _Seen:
    document: str
    snapshot: ClusterSnapshot
    decisions: Decisions
    control: CpuControl
    objective_statuses: Mapping[str, ObjectiveStatus]
    jobs: Sequence[Job]
    """Jobs that count here: a job that went to another policy counts where it was seen last."""


def _newest_first(passes: Iterable[_Seen]) -> list[_Seen]:
    counted: set[str] = set()
    left: list[_Seen] = []
    for seen in sorted(passes, key=lambda each: -each.snapshot.taken_at_seconds):
        left.append(replace(seen, jobs=[job for job in seen.jobs if job.uid not in counted]))
        counted |= {job.uid for job in seen.jobs}
    return left


def _jobs_by_state(jobs: Sequence[Job]) -> Metric:
    family = GaugeMetricFamily("slopewise_jobs", "Managed jobs by state.", labels=["state"])
    tally = Tally(job.state for job in jobs)
    for state in JobState:
        family.add_metric([str(state)], tally[state])
    return family


def _growth_sum(passes: Sequence[_Seen]) -> Metric:
    family = GaugeMetricFamily(
        "slopewise_growth_efficiency_sum", "Sum of growth efficiencies (Eq. 4.3).", labels=["job_node"]
    )
    sums: dict[str, float] = {}
    for seen in passes:
        sums |= {node.name: 0.0 for node in seen.snapshot.nodes if node.name not in sums}
        for job in seen.jobs:
            known = seen.decisions.memory.jobs[job.uid].growth
            sums[job.node] += (known.cpu_efficiency or 0.0) if known else 0.0
    for node, total in sums.items():
        family.add_metric([node], total)
    return family


def _node_cores(passes: Sequence[_Seen]) -> Iterator[Metric]:
    """Of each node the newest pass counts; the pods of another policy are not its own."""
    allocatable = GaugeMetricFamily(
        "slopewise_node_allocatable_cores", "Cores that the node offers to all of its pods.", labels=["job_node"]
    )
    available = GaugeMetricFamily(
        "slopewise_node_available_cores",
        "Cores that other pods leave to the jobs of the policy that was applied last; all where that is not known.",
        labels=["job_node"],
    )
    nodes: dict[str, Node] = {}
    for seen in passes:
        for node in seen.snapshot.nodes:
            nodes.setdefault(node.name, node)
    for name, node in nodes.items():
        allocatable.add_metric([name], node.cpu_cores)
        available.add_metric([name], capacity_cores(node))
    yield from (allocatable, available)


def _family(name: str, help_text: str, *more_labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"slopewise_job_{name}", help_text, labels=[*_JOB_LABELS, *more_labels])


def _counter(name: str, help_text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"slopewise_job_{name}", help_text, labels=_JOB_LABELS)


@dataclass(frozen=True, slots=True)
class _AllottedCores:
    """What each job may use, by uid: as its kubelet reports it, and as the API server has accepted it."""

    actual: Mapping[str, float]
    accepted: Mapping[str, float]


class _JobFamilies:
    """One gauge family per figure of a job; `add` fills them from one job."""

    def __init__(self) -> None:
        self.efficiency = _family("growth_efficiency", "Growth efficiency (Eq. 4.2).", "resource")
        self.progress = _family("progress_per_second", "Progress per second (Eq. 4.1).")
        self.evaluation = _family("evaluation", "The level that was decided on.")
        self.age = _family("evaluation_age_seconds", "Age of the newest sample.")
        self.available = _family("metrics_available", "1 when a fresh, finite evaluation was seen.")
        self.diverged = _family("diverged", "1 when the loss is not finite.")
        self.usage = _family("cpu_usage_cores", "Average CPU use over the last measured interval.")
        self.allocated = _family(
            "cpu_allocated_cores", "Actual: its limit in effect, or its share of the node when all want CPU."
        )
        self.accepted = _family("cpu_accepted_cores", "Accepted: the same of what the API server has stored.")
        self.wanted = _family("cpu_wanted_cores", "Desired: the limit that the policy decided on.")
        self.pending = _family("resize_pending_seconds", "How long its node has not carried out an accepted resize.")
        self.regressed = _family("regressed", "1 from its regression after a resize to the end of the back-off.")
        self.working_set = _family("memory_working_set_bytes", "Working set of its container, newest sample.")
        self.memory_request = _family("memory_request_bytes", "Memory request of its container, as accepted.")
        self.memory_limit = _family("memory_limit_bytes", "Memory limit of its container, as accepted.")
        self.wait_ratio = _family("wait_ratio", "Part of its steps' time in which they waited for their batches.")
        self.step_ratio = _family(
            "cpu_per_step_ratio", "CPU-seconds a step over the least that the job has had, each of three intervals."
        )
        self.job_class = _family("class", "1 for the class the policy put the job in.", "class")
        self.moves = _counter("moves", "Migrations of the job.")
        self.resized = _family("resized_timestamp_seconds", "When its CPU was last changed.")
        self.periods = _counter("cpu_periods", "Periods in which its container wanted CPU under a limit.")
        self.throttled = _counter("cpu_throttled_periods", "Periods in which its container was throttled.")
        self.pressure = _counter(
            "cpu_waiting_seconds", "Seconds in which a thread of its container waited for CPU (PSI)."
        )

    def add(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot, cpu: _AllottedCores) -> None:
        labels = [job.namespace, job.name, job.node]
        self.allocated.add_metric(labels, cpu.actual[job.uid])
        self.accepted.add_metric(labels, cpu.accepted[job.uid])
        self.available.add_metric(labels, float(growth.is_usable(job, snapshot)))
        self.diverged.add_metric(labels, float(job.evaluation is not None and not job.evaluation.finite))
        if job.evaluation is not None:
            self.evaluation.add_metric(labels, job.evaluation.level)
            self.age.add_metric(labels, growth.age_seconds(job.evaluation, snapshot))
        if known.growth is not None:
            self.progress.add_metric(labels, known.growth.progress_per_second)
            for resource, efficiency in known.growth.efficiency.items():
                self.efficiency.add_metric([*labels, resource], efficiency)
            add_known(labels, (self.usage, known.growth.cpu_cores))
        if not job.state.ended and (cost := step_cost(known)) is not None:
            self.step_ratio.add_metric(labels, cost.ratio)
        if known.decided.job_class is not None:
            self.job_class.add_metric([*labels, known.decided.job_class], 1.0)
        self.moves.add_metric(labels, known.moves_total)
        memory, now = job.memory or MemoryAllocation(), snapshot.taken_at_seconds
        if job.pending is not None:
            self.pending.add_metric(labels, max(0.0, now - job.pending.since_seconds))
        if known.original is not None:
            self.regressed.add_metric(labels, float(rollback.regressed(known, now)))
        add_known(
            labels,
            (self.wait_ratio, job.wait_ratio),
            (self.wanted, known.decided.wanted_cores),
            (self.resized, known.last_resized_at_seconds),
            (self.working_set, None if job.usage is None else job.usage.memory_bytes),
            (self.memory_request, memory.request_bytes),
            (self.memory_limit, memory.limit_bytes),
        )
        self._add_throttling(labels, job.container_health or ContainerHealth())

    def _add_throttling(self, labels: list[str], health: ContainerHealth) -> None:
        periods, throttled = health.cpu_periods_total, health.cpu_throttled_periods_total
        if periods is not None and throttled is not None:
            add_known(labels, (self.periods, periods), (self.throttled, throttled))
        add_known(labels, (self.pressure, health.cpu_waiting_seconds_total))


class _PromiseFamilies:
    """One gauge family per figure of what an owner asks of a job; a job that is asked nothing has no series."""

    def __init__(self) -> None:
        self.objective = _family("objective_seconds", "Objective: seconds a response or a step.")
        self.took = _family("objective_took_seconds", "Seconds that the newest responses or steps took.")
        self.deviation = _family(
            "qoe_deviation_ratio", "Deviation from the objective, (asked - took) / asked; below 0: too slow."
        )
        self.qoe_class = _family("qoe_class", "1 for the class of the deviation: G, S or B.", "class")
        self.missed = _family("objective_missed", "1 when the objective is missed, confirmed over two intervals.")
        self.deadline = _family("deadline_timestamp_seconds", "Deadline of a job that has not ended.")
        self.slack = _family("deadline_slack_seconds", "Time to spare at the present pace; below 0: late by that.")
        self.hopeless = _family("deadline_hopeless", "1 when no CPU of any node makes the job end in time.")
        self.late = _family("deadline_missed", "1 when the deadline has passed and the job has not ended.")
        self.deliverable = _family("deliverable_reached", "1 when the deliverable loss is reached.")
        self.target = _family("target_reached", "1 when the target loss is reached.")

    def add(self, job: Job, status: ObjectiveStatus) -> None:
        labels = [job.namespace, job.name, job.node]
        if status.qoe is not None:
            self._add_qoe(labels, status.qoe)
        if status.deadline is not None:
            self._add_deadline(labels, status.deadline)
        if status.target is not None:
            reached = status.target
            add_known(labels, (self.deliverable, reached.deliverable_reached), (self.target, reached.target_reached))

    def _add_qoe(self, labels: Sequence[str], qoe: QoeStatus) -> None:
        self.objective.add_metric(labels, qoe.objective_seconds)
        if qoe.took_seconds is None or qoe.deviation is None or qoe.listed is None:
            return
        self.took.add_metric(labels, qoe.took_seconds)
        self.deviation.add_metric(labels, qoe.deviation)
        self.qoe_class.add_metric([*labels, qoe.listed], 1.0)
        self.missed.add_metric(labels, float(qoe.missed))

    def _add_deadline(self, labels: Sequence[str], deadline: DeadlineStatus) -> None:
        self.deadline.add_metric(labels, deadline.at_seconds)
        self.hopeless.add_metric(labels, float(deadline.confirmed_hopeless))
        self.late.add_metric(labels, float(deadline.missed))
        add_known(labels, (self.slack, deadline.slack_seconds))


def _job_families(passes: Sequence[_Seen]) -> Iterator[Metric]:
    families, promises = _JobFamilies(), _PromiseFamilies()
    ends, gpus, studies = EndFamilies(_JOB_LABELS), GpuFamilies(_JOB_LABELS), StudyFamilies()
    policy_of: dict[tuple[str, str, str], str] = {}
    policies = _family("info", "Always 1; policy: the TrainingPolicy of the job.", "policy", "control")
    for seen in passes:
        cpu = _AllottedCores(
            actual=allotted_cores(seen.snapshot, seen.control, has=actual_millicores),
            accepted=allotted_cores(seen.snapshot, seen.control),
        )
        for job in seen.jobs:
            known, labels = seen.decisions.memory.jobs[job.uid], [job.namespace, job.name, job.node]
            families.add(job, known, seen.snapshot, cpu)
            ends.add(labels, job, known)
            gpus.add(labels, job, known)
            studies.add(seen.document, job, known)
            policies.add_metric([*labels, seen.document, seen.control], 1.0)
            policy_of[job.namespace, job.name, job.node] = seen.document
            if (status := seen.objective_statuses.get(job.uid)) is not None:
                promises.add(job, status)
    of_jobs: list[Metric] = [*vars(families).values(), *vars(promises).values(), *ends, *gpus]
    yield from of_jobs
    yield from (policies, *studies)
    yield from totals(of_jobs, policy_of)
