"""What no other test shows of the cluster: both ways in which kubelets report CPU reach its Prometheus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.cluster import BUSY, Kubectl, PodShape
from support.programs import ask
from support.waiting import wait_for


def query(url: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(f"{url}/api/v1/query", query=text).json()["data"]["result"]
    return found


def test_cadvisor_and_the_resource_metrics_count_a_pods_cpu(
    kubectl: Kubectl, namespace: str, idle: PodShape, prometheus_url: str
) -> None:
    kubectl.apply(replace(idle, command=BUSY).pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")
    text = f'container_cpu_usage_seconds_total{{namespace="{namespace}",pod="one",container="trainer"}} > 0'

    rows = wait_for("both series", lambda: query(prometheus_url, text), lambda found: len(found) == 2)

    assert {row["metric"]["job"] for row in rows} == {"kubelet-metrics-cadvisor", "kubelet-metrics-resource"}
