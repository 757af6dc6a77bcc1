"""From Prometheus families to the data of the OpenTelemetry SDK. Imports the SDK: only `otlp` imports this.

Names go out as a scrape has them, `training_steps_total` included, and without units. A Prometheus that adds suffixes
to what comes by OTLP finds them there already, and one that does not has the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample

SERVICE = "training"
"""Becomes the label `job` where OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES name none."""


def given_attributes() -> Mapping[str, Any]:
    """What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say."""
    return OTELResourceDetector().detect().attributes


class Encoder:
    """Encodes the families of one process."""

    def __init__(self, labels: Mapping[str, str], attributes: Mapping[str, str], since_nanoseconds: int) -> None:
        """`labels` of every point; `attributes` of the resource, which its variables replace."""
        # Not with `Resource.create`: it starts threads, which the last moments of a short training do not allow.
        self._resource = Resource({"service.name": SERVICE, **attributes, **given_attributes()})
        self._labels = labels
        self._since = since_nanoseconds

    def encode(self, families: Iterable[Family], now_nanoseconds: int) -> MetricsData:
        """All samples as of now. A family without a sample is left out."""
        metrics = [metric for family in families for metric in self._metrics(family, now_nanoseconds)]
        scope = ScopeMetrics(InstrumentationScope("slopewise_exporter"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metrics(self, family: Family, now: int) -> Iterator[Metric]:
        if not family.samples:
            return
        if family.type == "histogram":
            yield Metric(family.name, family.documentation, "", self._histogram(family.samples, now))
            return
        points = [
            NumberDataPoint({**self._labels, **sample.labels}, self._since, now, sample.value)
            for sample in family.samples
        ]
        if family.type == "counter":
            counter = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            yield Metric(f"{family.name}_total", family.documentation, "", counter)
        else:
            yield Metric(family.name, family.documentation, "", Gauge(points))

    def _histogram(self, samples: Sequence[Sample], now: int) -> Histogram:
        """One without labels of its own, as each of the contract is: buckets in rising order, then count and sum."""
        buckets = [(float(each.labels["le"]), int(each.value)) for each in samples if "le" in each.labels]
        cumulative = [count for _, count in buckets]
        unknown: Any = None  # the smallest and the largest value; they may be left out
        point = HistogramDataPoint(
            dict(self._labels),
            self._since,
            now,
            count=cumulative[-1],
            sum=next(each.value for each in samples if each.name.endswith("_sum")),
            bucket_counts=[count - before for before, count in zip([0, *cumulative], cumulative)],
            explicit_bounds=[bound for bound, _ in buckets[:-1]],
            min=unknown,
            max=unknown,
        )
        return Histogram([point], AggregationTemporality.CUMULATIVE)
