"""What the observer asks of Prometheus; `adapters/prometheus/reader.py` answers it, and fakes in tests."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Protocol

from slopewise.adapters.prometheus.client import Target as ScrapeTarget
from slopewise.adapters.prometheus.container_usage import Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import PrometheusReading, Scope


class Reader(Protocol):
    """The queries to Prometheus (`reader.PrometheusReader`)."""

    scrape_interval_seconds: float

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        """All series of the jobs in `scope`."""
        ...

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        """The machines by node name."""
        ...

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> Mapping[str, float]:
        """Cores that the containers of all other pods use, by node name; a node without figures is left out."""
        ...

    def targets(self) -> Sequence[ScrapeTarget]:
        """What Prometheus scrapes."""
        ...

    def metric_names(
        self, instances: Mapping[JobKey, Collection[str]], at_seconds: float
    ) -> Mapping[JobKey, Collection[str]]:
        """The names of the metrics that these instances export."""
        ...
