"""Six real trainings on two nodes under one TrainingPolicy of FlowCon and SpeCon, with the image as the Deployment.

FlowCon resizes on each node, and SpeCon moves a converged job to the other one: the thesis' local optimisation within
its global one. They begin as in `test_moves.py`, whose world was made for the moves: five on the small node, and on the
large one a single one that is soon done. CPU is given as shares, so that no quota slows a job that is to converge.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.moving_trainings import check_unbroken_steps, moved_to, pod_names, start_movable
from support.scene import Scene
from support.waiting import wait_for

pytestmark = pytest.mark.faults
MOVES = True
"""The controller is one that may move jobs."""

TOGETHER = {
    "digits-mlp": 40_000, "digits-field": 40_000, "stdlib-chars": 50_000, "cancer-boosting": 16_000,
    "digits-lr-drop": 80_000,
}  # fmt: skip
SOON_DONE = {"diabetes-overfit": 10_000}
"""Steps: the second is done when the first have hardly begun, and still runs when all pods are looked for."""

ORIGINAL_MILLICORES = 100
"""Of each request, which is the weight that FlowCon changes. Five of them fit the small node."""

SPECON = {"requireAllConverged": False}
"""The large node idles once its only training is done, and takes a converged one at the next evaluation."""

BOTH: dict[str, Any] = {
    "policy": {"name": "flowcon"},
    "placement": {"name": "specon", "parameters": SPECON, "intervalSeconds": 30},
    "resources": {"control": "requests", "cpu": {"min": "20m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
    "migration": {"enabled": True, "minStaySeconds": 30, "maxPerNodePerHour": 4},
}


@pytest.mark.usefixtures("needs_suspending", "volume")
def test_one_policy_resizes_and_moves_and_no_step_is_lost(scene: Scene, two_nodes: tuple[str, str]) -> None:
    large, small = two_nodes
    scene.obey("Auto", **BOTH)  # before they have converged
    start_movable(scene, {small: TOGETHER, large: SOON_DONE}, cpu_request=f"{ORIGINAL_MILLICORES}m")
    old_pods = pod_names(scene.pods())

    wait_for("FlowCon changes the weights of trainings", lambda: _requests(scene), _some_changed, 600)
    wait_for("an event of it", lambda: scene.reasons_of_events("TrainingPolicy"), lambda seen: "Resized" in seen)
    wait_for("the reasons are of both policies", lambda: _reasons(scene), _of_both)

    moved = wait_for("SpeCon moves a training", lambda: moved_to(scene, large, TOGETHER), bool, 600)

    name, new_pod = next(iter(moved.items()))
    check_unbroken_steps(scene, old_pods[name], new_pod)
    wait_for("its history has its move", lambda: _actions(scene, name), lambda actions: "Move" in actions)
    assert "Resize" in {action for other in TOGETHER for action in _actions(scene, other)}
    _both_are_stored(scene)
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace, "-o", "wide"))
    print(scene.kubectl.run("get", "trainingpolicies", "-o", "wide"))


def _requests(scene: Scene) -> dict[str, str]:
    pods = scene.running()
    return {name: pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for name, pod in pods.items()}


def _some_changed(requests: dict[str, str]) -> bool:
    return sum(request != f"{ORIGINAL_MILLICORES}m" for request in requests.values()) >= 2


def _reasons(scene: Scene) -> list[str]:
    return [growth.get("status", {}).get("reason", "") for growth in scene.growths().values()]


def _of_both(reasons: list[str]) -> bool:
    return any("; specon: " in reason and reason.startswith(("NL", "WL", "CL")) for reason in reasons)


def _actions(scene: Scene, name: str) -> set[str]:
    """What was done to it: `Resize`, `Move`."""
    return {each["action"] for each in scene.growths()[name].get("status", {}).get("history", [])}


def _both_are_stored(scene: Scene) -> None:
    """A new leader goes on from the classes that either policy gave, and from when each evaluated."""
    memories = [pod["memory"] for growth in scene.growths().values() for pod in growth["status"].get("pods", [])]
    assert any('"placement":{' in memory and '"job_class":"' in memory for memory in memories)
    policy = scene.kubectl.get("trainingpolicy", scene.policy)["status"]
    assert {node["intervalSeconds"] for node in policy["placementNodes"]} == {30}
