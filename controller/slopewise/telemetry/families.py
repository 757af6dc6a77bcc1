"""Metrics of single jobs: families that are declared by name, and filled with each job's figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slopewise.model import Job

Figure = tuple[str, float | None, *tuple[str, ...]]
"""A family's name, the value (None: not known), and those of its own labels, where it has some."""

_LABELS = ("job_namespace", "job_name", "job_node")


class JobFamilies:
    """One family for each name, without `slopewise_job_`; a figure that is not known adds no sample."""

    def __init__(
        self, gauges: Mapping[str, str], labelled: Mapping[str, tuple[str, ...]], counters: Mapping[str, str]
    ) -> None:
        """By name: help texts; of the `labelled`, gauges too, with the labels beside those of every job."""
        made: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, text in gauges.items():
            made[name] = GaugeMetricFamily(f"slopewise_job_{name}", text, labels=_LABELS)
        for name, (text, *more) in labelled.items():
            made[name] = GaugeMetricFamily(f"slopewise_job_{name}", text, labels=[*_LABELS, *more])
        for name, text in counters.items():
            made[name] = CounterMetricFamily(f"slopewise_job_{name}", text, labels=_LABELS)
        self._families = made

    def add(self, job: Job, figures: Iterable[Figure]) -> None:
        """The figures of one job."""
        labels = [job.namespace, job.name, job.node]
        for name, value, *more in figures:
            if value is not None:
                self._families[name].add_metric([*labels, *more], value)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())
