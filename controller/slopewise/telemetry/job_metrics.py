"""Metrics of jobs and nodes, made from the last pass of each policy when Prometheus scrapes; deleted jobs disappear."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slopewise.allocation import actual_millicores, allotted_cores, capacity_cores
from slopewise.estimators import growth
from slopewise.estimators.step_cost import step_cost
from slopewise.feedback import rollback
from slopewise.model import (
    ClusterSnapshot,
    ContainerHealth,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    JobState,
    MemoryAllocation,
    Node,
    ObjectiveStatus,
    PassReport,
)
from slopewise.telemetry.benefit import END_GAUGES, end_figures
from slopewise.telemetry.families import Figure, JobFamilies
from slopewise.telemetry.gpu_metrics import GPU_COUNTERS, GPU_GAUGES, gpu_figures
from slopewise.telemetry.study_metrics import StudyFamilies
from slopewise.telemetry.totals import totals


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
    counted: set[Hashable] = set()
    left: list[_Seen] = []
    for seen in sorted(passes, key=lambda each: -each.snapshot.taken_at_seconds):
        left.append(replace(seen, jobs=[job for job in seen.jobs if counted.isdisjoint(_names_of(job))]))
        counted.update(name for job in seen.jobs for name in _names_of(job))
    return left


def _names_of(job: Job) -> tuple[Hashable, ...]:
    """A pod of another policy may have the name of one that is gone, and no two samples may have the same labels."""
    return job.uid, (job.namespace, job.name)


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


@dataclass(frozen=True, slots=True)
class _AllottedCores:
    """What each job may use, by uid: as its kubelet reports it, and as the API server has accepted it."""

    actual: Mapping[str, float]
    accepted: Mapping[str, float]


_GAUGES = {
    "progress_per_second": "Progress per second (Eq. 4.1).",
    "evaluation": "The level that was decided on.",
    "evaluation_age_seconds": "Age of the newest sample.",
    "metrics_available": "1 when a fresh, finite evaluation was seen.",
    "diverged": "1 when the loss is not finite.",
    "cpu_usage_cores": "Average CPU use over the last measured interval.",
    "cpu_allocated_cores": "Actual: its limit in effect, or its share of the node when all want CPU.",
    "cpu_accepted_cores": "Accepted: the same of what the API server has stored.",
    "cpu_wanted_cores": "Desired: the limit that the policy decided on.",
    "resize_pending_seconds": "How long its node has not carried out an accepted resize.",
    "regressed": "1 from its regression after a resize to the end of the back-off.",
    "memory_working_set_bytes": "Working set of its container, newest sample.",
    "memory_request_bytes": "Memory request of its container, as accepted.",
    "memory_limit_bytes": "Memory limit of its container, as accepted.",
    "wait_ratio": "Part of its steps' time in which they waited for their batches.",
    "cpu_per_step_ratio": "CPU-seconds a step over the least that the job has had, each of three intervals.",
    "resized_timestamp_seconds": "When its CPU was last changed.",
}
_LABELLED = {
    "info": ("Always 1; policy: the TrainingPolicy of the job.", "policy", "control"),
    "growth_efficiency": ("Growth efficiency (Eq. 4.2).", "resource"),
    "class": ("1 for the class the policy put the job in.", "class"),
    "qoe_class": ("1 for the class of the deviation: G, S or B.", "class"),
}
_COUNTERS = {
    "moves": "Migrations of the job.",
    "cpu_periods": "Periods in which its container wanted CPU under a limit.",
    "cpu_throttled_periods": "Periods in which its container was throttled.",
    "cpu_waiting_seconds": "Seconds in which a thread of its container waited for CPU (PSI).",
}


def _figures(job: Job, known: JobMemory, snapshot: ClusterSnapshot, cpu: _AllottedCores) -> Iterator[Figure]:
    evaluation, now = job.evaluation, snapshot.taken_at_seconds
    yield "cpu_allocated_cores", cpu.actual[job.uid]
    yield "cpu_accepted_cores", cpu.accepted[job.uid]
    yield "metrics_available", float(growth.is_usable(job, snapshot))
    yield "diverged", float(evaluation is not None and not evaluation.finite)
    if evaluation is not None:
        yield "evaluation", evaluation.level
        yield "evaluation_age_seconds", growth.age_seconds(evaluation, snapshot)
    if known.growth is not None:
        yield "progress_per_second", known.growth.progress_per_second
        yield from (("growth_efficiency", each, resource) for resource, each in known.growth.efficiency.items())
        yield "cpu_usage_cores", known.growth.cpu_cores
    if not job.state.ended and (cost := step_cost(known)) is not None:
        yield "cpu_per_step_ratio", cost.ratio
    if known.decided.job_class is not None:
        yield "class", 1.0, known.decided.job_class
    yield "moves", known.moves_total
    if job.pending is not None:
        yield "resize_pending_seconds", max(0.0, now - job.pending.since_seconds)
    if known.original is not None:
        yield "regressed", float(rollback.regressed(known, now))
    memory, health = job.memory or MemoryAllocation(), job.container_health or ContainerHealth()
    yield "wait_ratio", job.wait_ratio
    yield "cpu_wanted_cores", known.decided.wanted_cores
    yield "resized_timestamp_seconds", known.last_resized_at_seconds
    yield "memory_working_set_bytes", None if job.usage is None else job.usage.memory_bytes
    yield "memory_request_bytes", memory.request_bytes
    yield "memory_limit_bytes", memory.limit_bytes
    if health.cpu_periods_total is not None and health.cpu_throttled_periods_total is not None:
        yield "cpu_periods", health.cpu_periods_total
        yield "cpu_throttled_periods", health.cpu_throttled_periods_total
    yield "cpu_waiting_seconds", health.cpu_waiting_seconds_total


_PROMISES = {
    "objective_seconds": "Objective: seconds a response or a step.",
    "objective_took_seconds": "Seconds that the newest responses or steps took.",
    "qoe_deviation_ratio": "Deviation from the objective, (asked - took) / asked; below 0: too slow.",
    "objective_missed": "1 when the objective is missed, confirmed over two intervals.",
    "deadline_timestamp_seconds": "Deadline of a job that has not ended.",
    "deadline_slack_seconds": "Time to spare at the present pace; below 0: late by that.",
    "deadline_hopeless": "1 when no CPU of any node makes the job end in time.",
    "deadline_missed": "1 when the deadline has passed and the job has not ended.",
    "deliverable_reached": "1 when the deliverable loss is reached.",
    "target_reached": "1 when the target loss is reached.",
}


def _promise_figures(status: ObjectiveStatus) -> Iterator[Figure]:
    """Of what an owner asks of a job; a job that is asked nothing has no series."""
    qoe, deadline, reached = status.qoe, status.deadline, status.target
    if qoe is not None:
        yield "objective_seconds", qoe.objective_seconds
        if qoe.took_seconds is not None and qoe.deviation is not None and qoe.listed is not None:
            yield "objective_took_seconds", qoe.took_seconds
            yield "qoe_deviation_ratio", qoe.deviation
            yield "qoe_class", 1.0, qoe.listed
            yield "objective_missed", float(qoe.missed)
    if deadline is not None:
        yield "deadline_timestamp_seconds", deadline.at_seconds
        yield "deadline_hopeless", float(deadline.confirmed_hopeless)
        yield "deadline_missed", float(deadline.missed)
        yield "deadline_slack_seconds", deadline.slack_seconds
    if reached is not None:
        yield "deliverable_reached", reached.deliverable_reached
        yield "target_reached", reached.target_reached


def _job_families(passes: Sequence[_Seen]) -> Iterator[Metric]:
    families = JobFamilies(_GAUGES | _PROMISES | GPU_GAUGES, _LABELLED | END_GAUGES, _COUNTERS | GPU_COUNTERS)
    studies = StudyFamilies()
    for seen in passes:
        cpu = _AllottedCores(
            actual=allotted_cores(seen.snapshot, seen.control, has=actual_millicores),
            accepted=allotted_cores(seen.snapshot, seen.control),
        )
        for job in seen.jobs:
            known = seen.decisions.memory.jobs[job.uid]
            status = seen.objective_statuses.get(job.uid)
            figures = (
                _figures(job, known, seen.snapshot, cpu),
                end_figures(job, known),
                gpu_figures(job, known),
                () if status is None else _promise_figures(status),
            )
            families.add(job, seen.document, chain([("info", 1.0, seen.document, seen.control)], *figures))
            studies.add(seen.document, job, known)
    yield from families
    yield from studies
    yield from totals(families)
