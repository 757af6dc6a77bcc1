"""Six real trainings on two nodes under SpeCon, with the image as the Deployment: the converged make room.

They begin where a scheduler leaves them that knows of no learning: five on the small node, and on the large one a
single one that is soon done. A job that has converged among jobs that still learn is moved there, by SpeCon's
Algorithms 3 and 4.

Both nodes of the test-bed are on one machine of two cores. So it is the small node that is crowded: its jobs get at
least their share of the one CPU that it offers, whatever else this machine does, and a move counts as a gain.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from support.moving_trainings import check_unbroken_steps, moved_to, nodes_of, pod_names, start_movable
from support.scene import Scene
from support.waiting import wait_for

MOVES = True
"""The controller is one that may move jobs."""

TOGETHER = {
    "digits-mlp": 9000, "digits-field": 9000, "stdlib-chars": 12_000, "cancer-boosting": 4000, "digits-lr-drop": 20_000,
}  # fmt: skip
SOON_DONE = {"diabetes-overfit": 2000}
"""Steps. The five are 75 CPU-seconds and more, so that all of them still run when the first one moves."""

ALPHA = 0.002
"""Of the evaluation's range, per 20 s. Seen after two minutes: the perceptron grows by 0.0005, the boosted trees not at
all, the neural field by 0.003 and the language model by 0.016. With 0.02 all of them but the last had converged by
then, and no job was left to make room for."""

SPECON: dict[str, Any] = {
    "policy": {"name": "specon", "parameters": {"alpha": ALPHA}},
    "resources": {"control": "limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20},
    "migration": {"enabled": True, "minStaySeconds": 30, "maxPerNodePerHour": 4},
}


@pytest.mark.usefixtures("needs_suspending", "volume")
def test_six_trainings_under_specon_move_without_losing_a_step(scene: Scene, two_nodes: tuple[str, str]) -> None:
    large, small = two_nodes
    start_movable(scene, {small: TOGETHER, large: SOON_DONE})
    assert nodes_of(scene.running()) == {**dict.fromkeys(TOGETHER, small), **dict.fromkeys(SOON_DONE, large)}
    old_pods = pod_names(scene.pods())
    scene.obey("Auto", **SPECON)

    moved = wait_for("a training is moved", lambda: moved_to(scene, large, TOGETHER), bool, 600)

    name, new_pod = next(iter(moved.items()))
    check_unbroken_steps(scene, old_pods[name], new_pod)
    history = wait_for("its history says so", lambda: _history(scene), lambda text: "resumed" in text)
    print(history)
    print(scene.kubectl.run("get", "events", "-n", scene.namespace, "--field-selector", "reason=Moved"))
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace, "-o", "wide"))


def _history(scene: Scene) -> str:
    """As a person asks for it."""
    options = ("--kubeconfig", str(scene.kubectl.kubeconfig), "--namespace", scene.namespace)
    command = [sys.executable, "-m", "slopewise", "history", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
