"""The cluster is what the other tests take it for: two nodes of different size, pods in cgroups, a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from support.cluster import BUSY, Kubectl, PodShape
from support.programs import ask
from support.waiting import wait_for

from testbed.faults import Faults
from testbed.settings import NODES, Settings


def query(url: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(f"{url}/api/v1/query", query=text).json()["data"]["result"]
    return found


def node_is(ready: str, name: str) -> Any:
    def look(nodes: Mapping[str, Any]) -> bool:
        (node,) = [node for node in nodes["items"] if node["metadata"]["name"] == name]
        return any(one["type"] == "Ready" and one["status"] == ready for one in node["status"]["conditions"])

    return look


def test_a_pod_reaches_the_api_server_and_prometheus_through_their_services(
    kubectl: Kubectl, namespace: str, idle: PodShape, testbed_settings: Settings
) -> None:
    kubectl.apply(idle.pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")
    address = kubectl.get("service", "prometheus", "-n", "monitoring")["spec"]["clusterIP"]
    code = (
        "import os, ssl, urllib.request as r; unchecked = ssl._create_unverified_context();"
        "print(r.urlopen(f'https://{os.environ[\"KUBERNETES_SERVICE_HOST\"]}/version', context=unchecked).status,"
        f"r.urlopen('http://{address}:9090/-/ready').status)"
    )

    assert kubectl.run("exec", "-n", namespace, "one", "--", "python3", "-c", code).split() == ["200", "200"]


def test_pods_of_both_nodes_reach_each_other(
    kubectl: Kubectl, namespace: str, idle: PodShape, testbed_settings: Settings
) -> None:
    serving = ("python3", "-m", "http.server", "8000")
    kubectl.apply(
        replace(idle, node=NODES[0].name, command=serving).pod("server"),
        replace(idle, node=NODES[1].name).pod("client"),
        namespace=namespace,
    )
    kubectl.wait_running(namespace, "server", "client")
    address = kubectl.get("pod", "server", "-n", namespace)["status"]["podIP"]
    code = f"import urllib.request as r; print(r.urlopen('http://{address}:8000/', timeout=5).status)"
    ask = ("exec", "-n", namespace, "client", "--", "python3", "-c", code)

    answer = wait_for("the server", lambda: kubectl.attempt(*ask).stdout.strip(), bool)

    assert answer == "200"


def test_prometheus_scrapes_a_new_pod_under_the_names_that_the_cluster_gave_it(
    kubectl: Kubectl, namespace: str, idle: PodShape, prometheus_url: str
) -> None:
    program = (
        "import prometheus_client as p, time; g = p.Gauge('training_loss', '', ['stage', 'pod', 'namespace']);"
        "g.labels('train', 'forged', 'forged').set(0.5); p.start_http_server(9464); time.sleep(3600)"
    )
    kubectl.apply(replace(idle, command=("python3", "-c", program), metrics_port=9464).pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")

    text = f'training_loss{{namespace="{namespace}"}}'
    (row,) = wait_for("the series", lambda: query(prometheus_url, text), bool)

    expected = {"pod": "one", "container": "trainer", "stage": "train", "exported_pod": "forged"}
    assert expected.items() <= row["metric"].items()


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
