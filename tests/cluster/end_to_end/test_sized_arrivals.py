"""A Job that states only a deadline starts with the CPU that its class has shown to need, and loses it in the end.

The first Job of a class runs with what it came with, and is timed. The next one gets its request while it waits behind
the gate, before any node has it, and its owner's request once the policy is gone.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.cluster import Kubectl
from support.installation import Installation
from support.movable import gated
from support.scene import Scene
from support.waiting import wait_for

from slopewise.adapters.kube.cache.quantities import cpu_millicores

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

FIRST, SECOND = "first", "second"
TRAINING, STEPS = "digits-deep-sigmoid", 15_000
OWNERS = "20m"

DEADLINE: dict[str, Any] = {
    "policy": {"name": "deadline", "parameters": {"sizeArrivals": True}},
    "resources": {"control": "requests", "cpu": {"min": "50m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 20},
}


@pytest.fixture(scope="module")
def controller(moving_controller: Installation) -> Installation:
    """One that may open gates, instead of the one that may not."""
    return moving_controller


def a_job(scene: Scene, name: str, deadline: str) -> dict[str, Any]:
    """A gated training of this name, all of one class, with a deadline and hardly any request."""
    made = gated(scene.training(TRAINING, STEPS, None, "1", annotations={"slopewise.dev/deadline": deadline}))
    made["metadata"]["name"] = name
    return made


def request_millicores(pod: dict[str, Any]) -> int:
    return cpu_millicores(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def placements(kubectl: Kubectl, namespace: str, pod: str) -> list[str]:
    """The notes of the events `Placed` of a pod."""
    chosen = f"involvedObject.kind=Pod,involvedObject.name={pod},reason=Placed"
    return [each["message"] for each in kubectl.get("events", "-n", namespace, "--field-selector", chosen)["items"]]


def test_the_second_job_of_a_class_starts_with_the_cpu_of_its_deadline(scene: Scene) -> None:
    kubectl, namespace = scene.kubectl, scene.namespace
    scene.obey("Auto", **DEADLINE)
    scene.start(a_job(scene, FIRST, "1h"))
    status = wait_for(
        "the class is known",
        lambda: kubectl.get("trainingpolicy", scene.policy).get("status", {}),
        lambda status: f"{namespace}/#" in status.get("classes", ""),
        240,
    )
    print(status["classes"])
    assert "cameWith" not in scene.growths()[FIRST]["status"]["pods"][0], "nothing was known of its class"

    kubectl.apply(a_job(scene, SECOND, "10m"), namespace=namespace)
    kept = wait_for(
        "what it came with is stored",
        lambda: scene.growths().get(SECOND, {}).get("status", {}).get("pods", [{}])[0],
        lambda pod: "cameWith" in pod,
        60,
    )
    assert kept["cameWith"] == {"cpuRequest": OWNERS, "cpuLimit": "1"}
    pod = wait_for("it has a node", lambda: scene.pods()[SECOND], lambda pod: "nodeName" in pod["spec"], 60)
    notes = wait_for(
        "an event says so",
        lambda: placements(kubectl, namespace, pod["metadata"]["name"]),
        lambda notes: any("with a CPU request of" in note for note in notes),
        60,
    )
    print(notes)
    assert request_millicores(pod) >= 50

    scene.delete_policy()
    wait_for(
        "it has its owner's request",
        lambda: scene.pods()[SECOND],
        lambda pod: request_millicores(pod) == cpu_millicores(OWNERS),
        60,
    )
