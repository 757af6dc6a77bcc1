"""The cluster is what the other tests take it for: two nodes of different size, pods in cgroups, a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from support.cluster import BUSY, Kubectl, PodShape
from support.programs import ask
from support.waiting import wait_for

from testbed.faults import Faults
from testbed.settings import NODES


def query(url: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(f"{url}/api/v1/query", query=text).json()["data"]["result"]
    return found


def node_is(ready: str, name: str) -> Any:
    def look(nodes: Mapping[str, Any]) -> bool:
        (node,) = [node for node in nodes["items"] if node["metadata"]["name"] == name]
        return any(one["type"] == "Ready" and one["status"] == ready for one in node["status"]["conditions"])

    return look


def test_cadvisor_and_the_resource_metrics_count_a_pods_cpu(
    kubectl: Kubectl, namespace: str, idle: PodShape, prometheus_url: str
) -> None:
    kubectl.apply(replace(idle, command=BUSY).pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")
    text = f'container_cpu_usage_seconds_total{{namespace="{namespace}",pod="one",container="trainer"}} > 0'

    rows = wait_for("both series", lambda: query(prometheus_url, text), lambda found: len(found) == 2)

    assert {row["metric"]["job"] for row in rows} == {"kubelet-metrics-cadvisor", "kubelet-metrics-resource"}


def test_a_killed_node_is_noticed_and_its_pods_run_again_after_it_is_back(
    kubectl: Kubectl, namespace: str, idle: PodShape, faults: Faults
) -> None:
    lost = NODES[1].name
    kubectl.apply(replace(idle, node=lost).pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")

    faults.kill(lost)
    try:
        wait_for("the node is lost", lambda: kubectl.get("nodes"), node_is("Unknown", lost))
    finally:
        faults.start(lost)

    wait_for("the node is back", lambda: kubectl.get("nodes"), node_is("True", lost))
