"""Policies of the user's, mounted into the controller's pod as docs/own-policies.md says, beside real trainings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.accounts import SYSTEM
from support.cluster import Kubectl
from support.images import Images
from support.installation import DEPLOYMENT, ON_THE_TESTBED, Installation, installed, overlay
from support.own_policy import a_file, deciding
from support.rendering import ROOT
from support.scene import Scene
from support.waiting import wait_for

from slopewise.crds.schema.definitions import training_policies

pytestmark = pytest.mark.faults

SCRAPE_SECONDS = 5.0
ORIGINAL_MILLICORES = 400
STEPS = {"digits-lr-drop": 7000, "digits-field": 4000}

SPEC: dict[str, Any] = {
    "resources": {"control": "limits", "cpu": {"min": "50m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 0, "maxStepRatio": 10},
}


@pytest.fixture(scope="module")
def controller(
    kubectl: Kubectl,
    given_images: Images | None,
    images: Images,
    prometheus_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Installed with the component `policies` and two policies, of which one raises."""
    folder = tmp_path_factory.mktemp("mine")
    base = f"slopewise/{ON_THE_TESTBED.relative_to(ROOT)}"
    if given_images is not None:
        (folder / "base").mkdir()
        base = overlay(folder / "base", images.controller, prometheus_url, SCRAPE_SECONDS).name
    with installed(kubectl, with_policies(folder, base)) as installation:
        yield installation
    kubectl.apply(training_policies())  # the definition that other tests expect


def with_policies(folder: Path, base: str) -> Path:
    a_file(folder, name="newest-first")
    a_file(folder, deciding("return 1 / 0"), name="raises")
    os.symlink(ROOT, folder / "slopewise")
    files = {"name": "slopewise-policies", "namespace": SYSTEM, "files": ["newest_first.py", "raises.py"]}
    kustomization = {
        "resources": [base],
        "components": ["slopewise/manifests/components/policies"],
        "configMapGenerator": [files],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return folder


def test_one_is_obeyed_and_one_that_raises_changes_nothing_and_says_so(
    kubectl: Kubectl, scene: Scene, two_nodes: tuple[str, str]
) -> None:
    _, small = two_nodes
    scene.start(*(scene.training(name, steps, small, f"{ORIGINAL_MILLICORES}m") for name, steps in STEPS.items()))
    scene.obey("Auto", policy={"name": "newest-first", "parameters": {"floorRatio": 0.3}}, **SPEC)

    moved = wait_for(
        "limits have moved", scene.limits, lambda seen: all(each != ORIGINAL_MILLICORES for each in seen.values()), 120
    )
    assert sorted(moved.values()) == [150, 850], "the younger has what is left of one core above the elder's floor"
    reasons = [growth["status"]["reason"] for growth in scene.growths().values()]
    assert all("in order of age" in reason for reason in reasons), reasons

    scene.obey("Auto", policy={"name": "raises"}, **SPEC)
    scene.wait_ready("PolicyFailed")
    assert scene.limits() == moved
    assert "PolicyFailed" in scene.reasons_of_events("TrainingPolicy")

    scene.obey("Auto", policy={"name": "nowhere"}, **SPEC)
    scene.wait_ready("InvalidSpec")
    assert scene.limits() == moved
    log = kubectl.run("logs", DEPLOYMENT, "-n", SYSTEM)
    assert '"event": "policy file loaded"' in log
    (pod,) = kubectl.get("pods", "-n", SYSTEM, "--selector=app.kubernetes.io/component=controller")["items"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0

    scene.delete_policy()
    assert set(scene.limits().values()) == {ORIGINAL_MILLICORES}
