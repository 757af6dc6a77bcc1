"""The figures of jobs and nodes, made from the last pass of each policy when Prometheus scrapes.

`telemetry.py` hands the reports in. Nothing is kept between two passes, so a job that is gone leaves no ghost behind.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller import growth
from controller.control import actual_millicores, allotted_cores
from controller.model import ClusterSnapshot, CpuControl, Decisions, Job, JobMemory, JobState, PassReport

_JOB_LABELS = ("job_namespace", "job_name", "job_node")


class LastPasses(Collector):
    """The last pass of each policy that observed anything, by the name of its document."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()  # passes end, and Prometheus scrapes, in threads of their own

    def keep(self, document: str, report: PassReport, control: CpuControl) -> None:
        """Replace what this policy's last pass saw; a pass that was held saw nothing."""
        if not report.held and report.snapshot is not None and report.decisions is not None:
            with self._lock:
                self._seen[document] = _Seen(report.snapshot, report.decisions, control, report.snapshot.jobs)

    def forget(self, document: str) -> None:
        """A policy that is gone, and its jobs with it."""
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
        yield from _job_families(passes)


@dataclass(frozen=True, slots=True)
class _Seen:
    snapshot: ClusterSnapshot
    decisions: Decisions
    control: CpuControl
    jobs: Sequence[Job]
    """Those that are told of: a job that went to another policy was seen by both, and counts where it was seen last."""


def _newest_first(passes: Iterable[_Seen]) -> list[_Seen]:
    told: set[str] = set()
    left: list[_Seen] = []
    for seen in sorted(passes, key=lambda each: -each.snapshot.taken_at_seconds):
        left.append(replace(seen, jobs=[job for job in seen.jobs if job.uid not in told]))
        told |= {job.uid for job in seen.jobs}
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


def _family(name: str, help_text: str, *more_labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"slopewise_job_{name}", help_text, labels=[*_JOB_LABELS, *more_labels])


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
        self.job_class = _family("class", "1 for the class the policy put the job in.", "class")

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
            if known.growth.cpu_cores is not None:
                self.usage.add_metric(labels, known.growth.cpu_cores)
        if known.wanted_cores is not None:
            self.wanted.add_metric(labels, known.wanted_cores)
        if known.job_class is not None:
            self.job_class.add_metric([*labels, known.job_class], 1.0)


def _job_families(passes: Sequence[_Seen]) -> Iterator[Metric]:
    families = _JobFamilies()
    for seen in passes:
        cpu = _AllottedCores(
            actual=allotted_cores(seen.snapshot, seen.control, has=actual_millicores),
            accepted=allotted_cores(seen.snapshot, seen.control),
        )
        for job in seen.jobs:
            families.add(job, seen.decisions.memory.jobs[job.uid], seen.snapshot, cpu)
    yield from vars(families).values()
