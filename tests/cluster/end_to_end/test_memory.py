"""A converged training's memory request goes down, another pod takes the room, and everything comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cluster import Kubectl, is_ready
from support.scene import Scene, identity
from support.waiting import wait_for

from slopewise.adapters.kube.cache.quantities import memory_bytes

pytestmark = pytest.mark.timeout(600)

MIB = 2**20

TRAINING, OTHER = "digits-deep-sigmoid", "newcomer"

TRADL: dict[str, Any] = {
    "policy": {"name": "tradl"},
    "resources": {"control": "limits", "memory": "Requests", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
}


def free_bytes(kubectl: Kubectl, node: str) -> int:
    """What the requests of the pods on a node leave of its allocatable memory."""
    allocatable = memory_bytes(kubectl.get("node", node)["status"]["allocatable"]["memory"])
    pods = kubectl.get("pods", "-A", f"--field-selector=spec.nodeName={node},status.phase=Running")["items"]
    return allocatable - sum(
        memory_bytes(container.get("resources", {}).get("requests", {}).get("memory", "0"))
        for pod in pods
        for container in pod["spec"]["containers"]
    )


def request_bytes(pod: dict[str, Any]) -> int:
    return memory_bytes(pod["spec"]["containers"][0]["resources"]["requests"]["memory"])


def reported_bytes(pod: dict[str, Any]) -> int:
    """As the kubelet has it in effect."""
    return memory_bytes(pod["status"]["containerStatuses"][0]["resources"]["requests"]["memory"])


def test_a_released_job_makes_room_for_a_pod_that_did_not_fit_and_gets_its_request_back(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    _, node = two_nodes
    kubectl, namespace = scene.kubectl, scene.namespace
    wanted = int(0.6 * free_bytes(kubectl, node)) // MIB
    scene.obey("Recommend", **TRADL)
    released = {"slopewise.dev/target-loss": "100"}  # reached with the first evaluation
    scene.start(scene.training(TRAINING, 15_000, node, "400m", annotations=released, memory_request=f"{wanted}Mi"))
    container = identity(scene.pods()[TRAINING])

    shape = replace(scene.shape, node=node, labels={"job-name": OTHER}, cpu_request="10m", memory_request=f"{wanted}Mi")
    kubectl.apply(shape.pod(OTHER), namespace=namespace)

    def conditions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = kubectl.get("pod", OTHER, "-n", namespace)["status"].get("conditions", [])
        return found

    wait_for(
        "it does not fit", conditions, lambda all_of_it: any(one.get("reason") == "Unschedulable" for one in all_of_it)
    )
    wait_for(
        "the policy would lower the request",
        lambda: scene.growths().get(TRAINING, {}).get("status", {}),
        lambda status: "memory_paused" in status.get("memoryReason", ""),
        240,
    )
    assert request_bytes(scene.pods()[TRAINING]) == wanted * MIB

    scene.set_mode("Auto")
    lowered = wait_for(
        "the request is lower, in effect too",
        lambda: scene.pods()[TRAINING],
        lambda pod: request_bytes(pod) < wanted * MIB and reported_bytes(pod) == request_bytes(pod),
        60,
    )
    wait_for("the other pod runs", lambda: kubectl.get("pod", OTHER, "-n", namespace), is_ready, 60)
    status = wait_for(
        "the status says so",
        lambda: scene.growths()[TRAINING]["status"],
        lambda status: "lowered from its original" in status.get("memoryReason", ""),
        120,
    )
    assert status["pods"][0]["original"]["memoryRequest"] == f"{wanted}Mi"
    assert identity(lowered) == container
    print(f"{wanted}Mi became {request_bytes(lowered) // MIB}Mi: {status['memory']}, {status['memoryReason']}")

    kubectl.run("delete", "pod", OTHER, "-n", namespace, "--grace-period=0", "--force", "--wait")
    scene.delete_policy()

    back = wait_for(
        "the request is back",
        lambda: scene.pods()[TRAINING],
        lambda pod: request_bytes(pod) == reported_bytes(pod) == wanted * MIB,
        30,
    )
    assert identity(back) == container
