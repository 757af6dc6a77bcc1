"""Sends every query of every dashboard to a Prometheus that scrapes a run, until each has returned rows.

PanelRows(url, all_queries("20s")).wait(seconds=60)
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import requests

from grafana.queries import (
    METRICS_PAGE,
    annotation_queries,
    dashboards,
    documented_metrics,
    metric_names,
    panel_queries,
)

NOT_OF_A_LOCAL_RUN = {
    "slopewise_job_cpu_periods_total", "slopewise_job_cpu_throttled_periods_total",
    "slopewise_job_cpu_waiting_seconds_total", "slopewise_gpu_seconds_total", "slopewise_job_gpu_wait_ratio",
    "slopewise_job_useful_cores", "slopewise_job_gpu_seconds_won_total",
    "slopewise_job_memory_request_bytes", "slopewise_job_memory_limit_bytes", "slopewise_job_wait_ratio", "ALERTS",
}  # fmt: skip
"""What a local run of a training without a data loader has no series of: throttling is counted by kubelets, its own
Prometheus loads no rules."""


def cluster_metrics() -> set[str]:
    """What docs/metrics.md says is exported on a cluster only."""
    heading = "## What it exports besides in a cluster"
    _, _, section = METRICS_PAGE.read_text(encoding="utf-8").partition(f"{heading}\n")
    names = re.findall(r"`(slopewise_[a-z_]+)", section.split("\n## ")[0])
    assert names, f"{METRICS_PAGE} has no section {heading!r}"
    return {name for name in documented_metrics() if any(name.startswith(each) for each in names)}


class Panel(NamedTuple):
    """One query of a panel, or of an annotation."""

    dashboard: str
    title: str
    promql: str


def all_queries(rate_interval: str) -> list[Panel]:
    """Of every dashboard."""
    return [
        Panel(name, title, promql)
        for name, dashboard in dashboards().items()
        for title, promql in (
            *panel_queries(dashboard, rate_interval=rate_interval),
            *annotation_queries(dashboard, rate_interval=rate_interval),
        )
    ]


def rows(url: str, promql: str) -> list[dict[str, Any]]:
    """What an instant query returns."""
    answer = requests.post(f"{url}/api/v1/query", data={"query": promql}, timeout=30).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


class PanelRows:
    """Queries, and those that have returned no rows yet."""

    def __init__(self, url: str, queries: Collection[Panel]) -> None:
        self._url = url
        self.missing = list(queries)

    def wait(self, seconds: float) -> None:
        """Until each has returned rows once; fails with those that have not."""
        deadline = time.monotonic() + seconds
        while self.missing and time.monotonic() < deadline:
            self._ask()
            time.sleep(0.2)
        assert not self.missing, f"no rows for {self.missing}"

    def _ask(self) -> None:
        self.missing = [query for query in self.missing if not rows(self._url, query.promql)]


def reading(queries: Collection[Panel], metrics: Collection[str]) -> list[Panel]:
    """The queries that read one of these metrics."""
    return [query for query in queries if metric_names(query.promql) & set(metrics)]


def of_a_local_run(queries: Collection[Panel]) -> list[Panel]:
    """The queries that have rows in a run on one machine."""
    elsewhere = reading(queries, cluster_metrics() | NOT_OF_A_LOCAL_RUN)
    return [query for query in queries if query not in elsewhere or query.promql.endswith("or vector(0)")]
