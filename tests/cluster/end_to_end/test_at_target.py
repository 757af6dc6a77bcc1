"""A training whose owner asks for a stop at its target, under a policy that changes nothing: it saves, ends, stays so.

The component `moves` is installed, because suspending takes its rights; the namespace does not opt in to moves.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.movable import on_volume
from support.scene import Scene
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import AT_TARGET, MOVES_LABEL, STOP, STOPPED
from slopewise.adapters.kube.workloads.annotations import TARGET_LOSS

pytestmark = pytest.mark.faults
MOVES = True
"""The controller is one that may suspend Jobs."""

NAME, STEPS, TARGET = "stdlib-chars", 200_000, 1.75
"""It begins above 3 and falls slowly: the first evaluation is above the target, and one a minute later below it."""

KEEPS = {"policy": {"name": "fair"}, "behaviour": {"intervalSeconds": 20}}
"""Three measurements of 20 s each, which is four scrapes."""

SWEPT_SECONDS = 75.0
"""The sweeper runs each minute, and some passes go by."""


@pytest.fixture
def shared(scene: Scene, volume: Path) -> Path:
    """Where the checkpoints are. The namespace's consent to moves is taken away: a stop does not need it."""
    scene.kubectl.run("label", "namespace", scene.namespace, f"{MOVES_LABEL}-")
    return volume


def test_a_training_at_its_target_saves_is_suspended_and_stays_so_until_its_owner_resumes_it(
    scene: Scene, two_nodes: tuple[str, str], shared: Path
) -> None:
    node, _ = two_nodes
    asks = {AT_TARGET: STOP, TARGET_LOSS: str(TARGET)}
    training = scene.training(NAME, STEPS, None, "1", annotations=asks, termination_seconds=30)
    scene.start(on_volume(training, node, {"name": "SLOPEWISE_CHECKPOINT_FOLDER", "value": f"/shared/{NAME}"}))
    first_pod = scene.pods()[NAME]["metadata"]["name"]
    scene.obey("Auto", **KEEPS)

    job = wait_for("its Job is suspended", lambda: _job(scene), lambda found: found["spec"].get("suspend"), 600)
    stopped_at = time.time()
    wait_for("its pod has ended", scene.pods, lambda pods: not pods)

    reason = json.loads(job["metadata"]["annotations"][STOPPED])["reason"]
    assert reason.startswith("stopped at its target: loss ")
    assert reason.endswith(f"≤ {TARGET:g}")
    saved = [file for file in (shared / NAME).rglob("*") if file.is_file() and file.stat().st_mtime > stopped_at - 30]
    assert saved, "its own handler of SIGTERM has saved"

    status = wait_for("it is shown", lambda: scene.status(NAME), lambda found: found.get("state") == "Stopped")
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace, "-o", "wide"))
    assert status["reason"] == reason
    assert status["history"][-1]["action"] == "Stop"
    about_job = ("--field-selector", "involvedObject.kind=Job,reason=StoppedAtTarget", "-o", "name")
    assert scene.kubectl.run("get", "events", "-n", scene.namespace, *about_job).split()

    written = _job(scene)["metadata"]["generation"]
    time.sleep(SWEPT_SECONDS)
    assert (_job(scene)["spec"]["suspend"], scene.pods()) == (True, {})
    assert _job(scene)["metadata"]["generation"] == written, "neither a pass nor the sweeper has written to it"

    _its_owner_resumes_it(scene, first_pod)


def _its_owner_resumes_it(scene: Scene, first_pod: str) -> None:
    """It goes on where it was, and is stopped again only for hits of its own."""
    before = _steps(scene, "max", first_pod)
    scene.kubectl.run("patch", "job", NAME, "-n", scene.namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    pods = wait_for("it runs again", scene.running, bool)
    pod = pods[NAME]["metadata"]["name"]
    first = wait_for("its steps are scraped again", lambda: _steps(scene, "min", pod), bool)
    assert first[pod] >= before[first_pod] > 0
    assert not _job(scene)["spec"].get("suspend")
    wait_for("it is stopped again", lambda: _job(scene), lambda found: found["spec"].get("suspend"), 600)


def _steps(scene: Scene, which: str, pod: str) -> dict[str, float]:
    of = f'training_steps_total{{namespace="{scene.namespace}",pod="{pod}"}}'
    return scene.query(f"{which}_over_time(({of} > 0)[10m:1s])")


def _job(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.kubectl.get("job", NAME, "-n", scene.namespace)
    return found
