"""Six real trainings on two nodes under SpeCon, with the image as the Deployment: the converged make room.

They begin where a scheduler leaves them that knows of no learning: five on the small node, and on the large one a
single one that is soon done. Whoever has converged among jobs that still learn is moved there, by SpeCon's Algorithms
3 and 4.

Both nodes of the test-bed are on one machine of two cores. So it is the small node that is crowded: its jobs get at
least their share of the one CPU that it offers, whatever else this machine does, and a move counts as a gain.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Kubectl
from support.images import Images
from support.installation import Installation, installed, overlay
from support.movable import MovableTrainings, on_volume, shared_volume
from support.scene import Scene
from support.waiting import wait_for

from controller.adapters.kube.records import MIGRATABLE
from testbed.settings import Settings

pytestmark = pytest.mark.timeout(900)

SCRAPE_SECONDS = 5.0

TOGETHER = {
    "digits-mlp": 9000, "digits-field": 9000, "stdlib-chars": 12_000, "cancer-boosting": 4000, "digits-lr-drop": 20_000,
}  # fmt: skip
SOON_DONE = {"diabetes-overfit": 2000}
"""Steps. The five are 75 CPU-seconds and more, so that all of them still run when the first one moves."""

ALPHA = 0.002
"""Of the evaluation's range, per 20 s. Seen after two minutes: the perceptron grows by 0.0005, the boosted trees not at
all, the neural field by 0.003 and the language model by 0.016. With 0.02 all of them but the last had converged by
then, and nobody was left to make room for."""

SPECON: dict[str, Any] = {
    "policy": {"name": "specon", "parameters": {"alpha": ALPHA}},
    "resources": {"control": "limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20},
    "migration": {"enabled": True, "minStaySeconds": 30, "maxPerNodePerHour": 4},
}


@pytest.fixture(scope="module")
def controller(
    kubectl: Kubectl,
    images: Images,
    prometheus_url: str,
    testbed_settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Installed with the component that lets it move jobs, and ready. Its volume is a folder of the test-bed."""
    folder = overlay(tmp_path_factory.mktemp("overlay"), images.controller, prometheus_url, SCRAPE_SECONDS, "moves")
    with installed(kubectl, folder) as installation:
        yield installation


@pytest.fixture
def volume(scene: Scene, tmp_path: Path) -> Iterator[None]:
    """Where the checkpoints are."""
    with shared_volume(MovableTrainings(scene.kubectl, scene.namespace, scene.shape, tmp_path / "shared")):
        yield


@pytest.mark.usefixtures("needs_suspending", "volume")
def test_six_trainings_under_specon_move_without_losing_a_step(scene: Scene, two_nodes: tuple[str, str]) -> None:
    large, small = two_nodes
    scene.start(
        *(_movable(scene, name, steps, small) for name, steps in TOGETHER.items()),
        *(_movable(scene, name, steps, large) for name, steps in SOON_DONE.items()),
    )
    assert _nodes(scene) == {**dict.fromkeys(TOGETHER, small), **dict.fromkeys(SOON_DONE, large)}
    old_pods = {name: pod["metadata"]["name"] for name, pod in scene.pods().items()}
    scene.obey("Auto", **SPECON)

    moved = wait_for("a training is moved", lambda: _moved(scene, large), bool, 400)

    name, new_pod = next(iter(moved.items()))
    _its_steps_are_unbroken(scene, old_pods[name], new_pod)
    history = wait_for("its history tells it", lambda: _history(scene), lambda text: "resumed" in text)
    print(history)
    print(scene.kubectl.run("get", "events", "-n", scene.namespace, "--field-selector", "reason=Moved"))
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace, "-o", "wide"))


def _movable(scene: Scene, name: str, steps: int, likes: str) -> dict[str, Any]:
    """A built-in training that saves on the shared volume and says that it may be moved."""
    job = scene.training(name, steps, None, "1", annotations={MIGRATABLE: "true"}, termination_seconds=30)
    return on_volume(job, likes, {"name": "SLOPEWISE_CHECKPOINT_FOLDER", "value": f"/shared/{name}"})


def _nodes(scene: Scene) -> dict[str, str]:
    return {name: pod["spec"]["nodeName"] for name, pod in scene.running().items()}


def _moved(scene: Scene, node: str) -> dict[str, str]:
    """The pods of those that are on the other node now, by the name of the training."""
    there = {name for name, on in _nodes(scene).items() if name in TOGETHER and on == node}
    return {name: pod["metadata"]["name"] for name, pod in scene.running().items() if name in there}


def _its_steps_are_unbroken(scene: Scene, old_pod: str, new_pod: str) -> None:
    """The new pod's counter begins where the old one's ended: nothing lost, nothing done twice."""

    def steps(which: str, pod: str) -> dict[str, float]:
        of = f'training_steps_total{{namespace="{scene.namespace}",pod="{pod}"}}'
        return scene.query(f"{which}_over_time(({of} > 0)[10m:1s])")

    first = wait_for("its steps are scraped again", lambda: steps("min", new_pod), bool, 60)
    assert first[new_pod] >= steps("max", old_pod)[old_pod] > 0


def _history(scene: Scene) -> str:
    """As a person asks for it."""
    options = ("--kubeconfig", str(scene.kubectl.kubeconfig), "--namespace", scene.namespace)
    command = [sys.executable, "-m", "controller", "history", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
