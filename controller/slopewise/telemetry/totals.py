"""Metrics of each namespace under each policy: sums over its jobs, which a dashboard of 5,000 jobs reads.

They are added up from the rows of the metrics of single jobs, and so never differ from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from slopewise.telemetry.families import JobFamily

_LABELS = ("policy", "job_namespace")
_CORES = {
    "slopewise_job_cpu_usage_cores": "used",
    "slopewise_job_cpu_allocated_cores": "allocated",
    "slopewise_job_cpu_accepted_cores": "accepted",
    "slopewise_job_cpu_wanted_cores": "wanted",
}
_COUNTED: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "slopewise_job_metrics_available": ("without_metrics", lambda value: value == 0),
    "slopewise_job_diverged": ("diverged", lambda value: value == 1),
    "slopewise_job_objective_missed": ("objective_missed", lambda value: value == 1),
    "slopewise_job_deadline_hopeless": ("deadline_hopeless", lambda value: value == 1),
    "slopewise_job_deadline_missed": ("deadline_missed", lambda value: value == 1),
    "slopewise_job_deadline_slack_seconds": ("late", lambda value: value < 0),
    "slopewise_job_deliverable_reached": ("deliverable", lambda value: value == 1),
    "slopewise_job_target_reached": ("target_reached", lambda value: value == 1),
}
_CLASS = "slopewise_job_class"
_SAVED = "slopewise_job_saved_seconds"

Key = tuple[str, str, str]
"""Policy, namespace, and the kind, condition, class or bound."""


def totals(families: Iterable[JobFamily]) -> Iterator[Metric]:
    """Of the families of single jobs."""
    cores: dict[Key, float] = {}
    conditions: dict[Key, float] = {}
    classes: dict[Key, float] = {}
    saved: dict[Key, float] = {}
    for family in families:
        name = family.name
        for job, policy, _, value, more in family.rows:
            owner = policy, job.namespace
            if name in _CORES:
                _add(cores, (*owner, _CORES[name]), value)
            elif name in _COUNTED:
                condition, holds = _COUNTED[name]
                _add(conditions, (*owner, condition), float(holds(value)))
            elif name == _CLASS:
                _add(classes, (*owner, more[0]), 1.0)
            elif name == _SAVED:
                _add(saved, (*owner, more[0]), value)
    yield _family("cpu_cores", "CPU of its jobs: used, allocated, accepted or wanted.", "kind", cores)
    yield _family("jobs_in", "Its jobs of which a condition holds.", "condition", conditions)
    yield _family("jobs_of_class", "Its jobs by the class that the policy put them in.", "class", classes)
    yield _family("saved_seconds", "Sum of slopewise_job_saved_seconds over its jobs.", "bound", saved)


def _add(sums: dict[Key, float], key: Key, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value


def _family(name: str, help_text: str, label: str, sums: Mapping[Key, float]) -> Metric:
    family = GaugeMetricFamily(f"slopewise_namespace_{name}", help_text, labels=[*_LABELS, label])
    for key, value in sums.items():
        family.add_metric(list(key), value)
    return family
