"""An alert of a real Alertmanager freezes a namespace: an installed controller writes nothing there until it is over.

The policy gives each job of a node an even share where none has a target loss. A second job that starts under the
freeze would halve the limit of the first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.accounts import SYSTEM
from support.alertmanager import Alertmanager
from support.cluster import Kubectl
from support.images import Images
from support.installation import Installation, installed, overlay
from support.scene import Json, Scene
from support.trainers import Trainers
from support.waiting import wait_for

from slopewise.adapters.http.alert_webhook import PATH
from slopewise.adapters.kube.state.freezes import (
    ENDED_LABEL,
)

pytestmark = pytest.mark.faults

TOKEN = "a-token-of-the-tests"
COMPONENT = "slopewise/manifests/components/alerts"
FIRST, SECOND = "first", "second"
CAME_WITH = 300
INTERVAL_SECONDS = 20
SCRAPE_SECONDS = 5.0


@pytest.fixture(scope="module")
def controller(
    kubectl: Kubectl, images: Images, prometheus_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Installed with the component that lets Alertmanager call it."""
    secret = {"name": "slopewise-alerts", "namespace": SYSTEM, "literals": [f"token={TOKEN}"]}
    more = {"components": [COMPONENT], "secretGenerator": [secret]}
    made = overlay(
        tmp_path_factory.mktemp("overlay"), images.controller, prometheus_url, SCRAPE_SECONDS, "minimal", **more
    )
    with installed(kubectl, made) as installation:
        yield installation


@pytest.fixture
def alertmanager(scene: Scene, tmp_path: Path) -> Iterator[Alertmanager]:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    # Alertmanager runs outside of the cluster, where no DNS of it answers: its address stands for the Service's name.
    address = scene.kubectl.get("service", "slopewise-alerts", "-n", SYSTEM)["spec"]["clusterIP"]
    with Alertmanager(tmp_path, f"http://{address}:8080{PATH}", token_file) as running:
        yield running


def reporting(scene: Scene, name: str, node: str) -> Json:
    """A job whose loss is always the same."""
    shape = Trainers(scene.shape).serving("training_loss 1\n", node=node, cpu_request="20m", cpu_limit=f"{CAME_WITH}m")
    return shape.job(name)


def freezes(scene: Scene) -> list[Json]:
    """Those of this namespace whose alert is not resolved."""
    found = scene.kubectl.get("freezes")["items"]
    ours = [each for each in found if each["spec"].get("name") == scene.namespace]
    return [each for each in ours if ENDED_LABEL not in each["metadata"].get("labels", {})]


def managed(scene: Scene, name: str) -> tuple[str, str]:
    """Status and reason of the condition of one JobGrowth; empty before it is there."""
    conditions = scene.growths().get(name, {}).get("status", {}).get("conditions", [])
    found = [(each["status"], each["reason"]) for each in conditions if each["type"] == "Managed"]
    return found[0] if found else ("", "")


def test_an_alert_freezes_a_namespace_until_it_is_resolved(
    scene: Scene, two_nodes: tuple[str, str], alertmanager: Alertmanager
) -> None:
    node, _ = two_nodes
    labels = {"alertname": "StorageSlow", "slopewise_freeze": "namespace", "namespace": scene.namespace}
    scene.start(reporting(scene, FIRST, node))
    scene.obey(
        "Auto",
        policy={"name": "tradl"},
        resources={"control": "limits", "cpu": {"min": "100m"}},
        behaviour={"intervalSeconds": INTERVAL_SECONDS, "cooldownSeconds": 0},
    )
    whole = wait_for("it has the whole node", scene.limits, lambda seen: seen[FIRST] > CAME_WITH)

    started = time.time()
    alertmanager.fire(labels, started, summary="checkpoints take minutes")
    [made] = wait_for("the alert has made a Freeze", lambda: freezes(scene), bool)
    print(f"stored {time.time() - started:.2f} s after the alert: {made['metadata']['name']} {made['spec']}")
    scene.start(reporting(scene, SECOND, node))
    wait_for("it is frozen", lambda: managed(scene, SECOND), lambda seen: seen == ("False", "Frozen"))
    time.sleep(2 * INTERVAL_SECONDS + 5)
    assert scene.limits() == {**whole, SECOND: CAME_WITH}
    assert managed(scene, FIRST) == ("False", "Frozen")
    wait_for("it says that it is in force", lambda: freezes(scene)[0].get("status"), bool)
    assert freezes(scene)[0]["status"]["state"] == "InForce"
    said = subprocess.run(
        [sys.executable, "-m", "slopewise", "status", "--kubeconfig", str(scene.kubectl.kubeconfig)],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    print(said)
    assert f"frozen: Freeze {made['metadata']['name']} (namespace/{scene.namespace}, until" in said

    resolved = time.time()
    alertmanager.resolve(labels, started)
    wait_for("the Freeze has ended", lambda: freezes(scene), lambda seen: not seen)
    half = whole[FIRST] // 2
    wait_for("changes go on", scene.limits, lambda seen: set(seen.values()) == {half})
    print(f"changed {time.time() - resolved:.1f} s after the alert was resolved")
    notes = [event["message"] for event in scene.kubectl.get("events", "-n", "default")["items"]
             if event["reason"] in ("Frozen", "Unfrozen") and scene.namespace in event["message"]]  # fmt: skip
    assert len(notes) >= 1, "its begin is an event"
