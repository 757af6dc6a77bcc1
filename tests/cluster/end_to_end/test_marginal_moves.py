"""Six real trainings on two nodes under `marginal`, which resizes on each node and moves one to the node that idles."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.moving_trainings import check_unbroken_steps, moved_to, pod_names, start_movable
from support.scene import Scene
from support.waiting import wait_for

from slopewise.model import JobMemory

MOVES = True
"""The controller is one that may move jobs."""

TOGETHER = {
    "digits-mlp": 20_000, "digits-field": 20_000, "stdlib-chars": 25_000, "cancer-boosting": 8_000,
    "digits-lr-drop": 40_000,
}  # fmt: skip
SOON_DONE = {"diabetes-overfit": 10_000}
"""Steps: the second is done when the first have hardly begun, and still runs when all pods are looked for."""

MARGINAL: dict[str, Any] = {
    "policy": {"name": "marginal"},
    "resources": {"control": "requests", "cpu": {"min": "20m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10, "maxStepRatio": 20},
    "migration": {"enabled": True, "minStaySeconds": 30, "maxPerNodePerHour": 4},
}


@pytest.mark.usefixtures("needs_suspending", "volume")
def test_an_idle_node_takes_a_training_which_goes_on_with_its_curve(scene: Scene, two_nodes: tuple[str, str]) -> None:
    large, small = two_nodes
    scene.obey("Auto", **MARGINAL)
    start_movable(scene, {small: TOGETHER, large: SOON_DONE}, cpu_request="100m")
    old_pods = pod_names(scene.pods())

    moved = wait_for("one moves to the idle node", lambda: moved_to(scene, large, TOGETHER), bool, 600)

    name, new_pod = next(iter(moved.items()))
    points_before = _memory(scene, name).points
    assert points_before is not None
    check_unbroken_steps(scene, old_pods[name], new_pod)
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace, "-o", "wide"))

    after = wait_for(
        "its points go on behind its move",
        lambda: _memory(scene, name),
        lambda known: known.points is not None and known.points.work > points_before.work,
        90,
    )
    assert after.points is not None
    assert after.points.count >= points_before.count, "those of its first pod are kept"
    assert after.points.cpu_seconds > points_before.cpu_seconds
    assert after.decided.state
    assert "Resize" in {
        each["action"] for growth in scene.growths().values() for each in growth["status"].get("history", ())
    }


def _memory(scene: Scene, name: str) -> JobMemory:
    (pod,) = scene.growths()[name]["status"]["pods"]
    return msgspec.json.decode(pod["memory"], type=JobMemory)
