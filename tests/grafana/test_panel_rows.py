"""Every panel that reads what only a cluster exports has rows, against a real Prometheus that scrapes a real replica.

The replica is the controller itself, over a small API server. What kubelets and a training would export of its one pod
is a page of the test's own; the run on one machine in tests/local covers the other panels with real trainings.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import requests
from support.exporters import Exporters
from support.managed_pods import NAMESPACE, PODS, a_raw_pod
from support.panel_rows import (
    NOT_OF_A_LOCAL_RUN,
    PanelRows,
    all_queries,
    cluster_metrics,
    reading,
)
from support.programs import prometheus_with
from support.recorded_rules import RULES, Pages, Since
from support.replicas import Town

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, free_loopback_port

SCRAPE_SECONDS = 0.5
CPU_AND_MEMORY = {"cpu": "100m", "memory": "64Mi"}
LIMITS = {"cpu": "300m", "memory": "256Mi"}
NODE = 'machine_cpu_cores{node="node-a"} 2\nmachine_memory_bytes{node="node-a"} 8e9\n'
NOT_WITHOUT_CONSENT = {"slopewise_job_gpu_seconds_won_total"}
"""What the job with a GPU has no series of, under `accelerators: Ignore`."""


def page(pod: str, seconds: float) -> str:
    """What is exported of a pod so long after its start: a loss that falls, waits, CPU that is throttled."""
    of_pod = f'namespace="{NAMESPACE}",pod="{pod}"'
    container = f'{of_pod},container="trainer"'
    series = {
        f'training_loss{{{of_pod},stage="eval"}}': math.exp(-seconds / 60),
        f"training_steps_total{{{of_pod}}}": 10 * seconds,
        f"training_wait_seconds_total{{{of_pod}}}": 0.2 * seconds,
        f"training_step_duration_seconds_sum{{{of_pod}}}": 0.9 * seconds,
        f"process_start_time_seconds{{{of_pod}}}": 1e9,
        f"container_cpu_usage_seconds_total{{{container}}}": 0.3 * seconds,
        f"container_cpu_cfs_periods_total{{{container}}}": 10 * seconds,
        f"container_cpu_cfs_throttled_periods_total{{{container}}}": 4 * seconds,
        f"container_pressure_cpu_waiting_seconds_total{{{container}}}": 0.2 * seconds,
        f"container_memory_working_set_bytes{{{container}}}": 5e7,
    }
    return "".join(f"{name} {value}\n" for name, value in series.items())


def scraping(*ports: int) -> dict[str, object]:
    """The configuration of a Prometheus that scrapes these ports and has loaded our rules."""
    scraped = {"targets": [f"127.0.0.1:{port}" for port in ports]}
    return {
        "global": {"scrape_interval": f"{round(1000 * SCRAPE_SECONDS)}ms", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "test", "honor_labels": True, "static_configs": [scraped]}],
    }


@pytest.mark.processes
def test_every_panel_of_a_cluster_has_rows_against_the_prometheus_of_a_replica(
    prometheus_binaries: PrometheusBinaries, tmp_path: Path
) -> None:
    port = free_loopback_port()
    since, pages = Since(), Pages()
    pages.computed["/metrics"] = lambda: "".join([page("a", since()), page("gpu", since()), NODE])
    with (
        Exporters(pages) as training,
        prometheus_with(scraping(training.port, port), prometheus_binaries, tmp_path) as url,
        Town() as town,
    ):
        for name, device in (("a", {}), ("gpu", {"nvidia.com/gpu": "1"})):
            raw = a_raw_pod({"requests": CPU_AND_MEMORY | device, "limits": LIMITS | device})
            raw["metadata"] |= {"name": name}
            town.server.put(PODS, raw)
        town.pod("silent")  # reports no loss: SlopewiseMetricsMissing is pending
        town.policy(mode="Auto")
        with town.replica(prometheus_url=url, port=port) as replica:
            replica.wait_until_leading()
            shown = reading(all_queries("4s"), cluster_metrics() | NOT_OF_A_LOCAL_RUN)
            with_rows = [query for query in shown if query not in reading(shown, NOT_WITHOUT_CONSENT)]
            found = PanelRows(url, with_rows)
            found.wait(seconds=180)
            assert requests.get(f"{url}/api/v1/rules", timeout=10).json()["data"]["groups"]
