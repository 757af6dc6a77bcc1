"""Slopewise as people install it: its image as a Deployment on the cluster, and real trainings beside it.

A controller obeys every TrainingPolicy of the cluster, so it is there only while the tests of one file run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cluster import Kubectl, PodShape
from support.images import Images, bring_images, why_not_here
from support.installation import ON_THE_TESTBED, Installation, installed, overlay
from support.movable import MovableTrainings, shared_volume
from support.scene import Scene

from testbed.settings import Settings

SCRAPE_SECONDS = 5.0


@pytest.fixture(scope="session")
def given_images() -> Images | None:
    """What SLOPEWISE_TEST_CONTROLLER_IMAGE and SLOPEWISE_TEST_TRAINER_IMAGE name, for clusters with a registry."""
    controller, trainer = (os.environ.get(f"SLOPEWISE_TEST_{who}_IMAGE") for who in ("CONTROLLER", "TRAINER"))
    return Images(controller, trainer) if controller and trainer else None


@pytest.fixture(scope="session")
def images(given_images: Images | None, request: pytest.FixtureRequest) -> Images:
    """On the nodes, or where they can be pulled from."""
    if given_images is not None:
        return given_images
    settings: Settings = request.getfixturevalue("testbed_settings")
    if reason := why_not_here():
        pytest.skip(f"{reason}; or name images in SLOPEWISE_TEST_CONTROLLER_IMAGE and SLOPEWISE_TEST_TRAINER_IMAGE")
    return bring_images(settings)


@pytest.fixture(scope="module")
def controller(
    kubectl: Kubectl,
    given_images: Images | None,
    images: Images,
    prometheus_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Installation]:
    """Installed and ready; in a file with `MOVES` with the component that lets it move jobs, on the test-bed only."""
    folder, variant = ON_THE_TESTBED, "moves" if getattr(request.module, "MOVES", False) else "minimal"
    if variant == "moves":
        request.getfixturevalue("testbed_settings")
    if variant == "moves" or given_images is not None:
        made = tmp_path_factory.mktemp("overlay")
        folder = overlay(made, images.controller, prometheus_url, SCRAPE_SECONDS, variant)
    with installed(kubectl, folder) as installation:
        yield installation


@pytest.fixture
def volume(scene: Scene, tmp_path: Path) -> Iterator[Path]:
    """Where checkpoints are: a folder of the test-bed, which both nodes mount."""
    folder = tmp_path / "shared"
    with shared_volume(MovableTrainings(scene.kubectl, scene.namespace, scene.shape, folder)):
        yield folder


@pytest.fixture
def scene(
    kubectl: Kubectl, namespace: str, prometheus_url: str, idle: PodShape, images: Images, controller: Installation
) -> Iterator[Scene]:
    """The test's namespace and its policy, which goes while there is still a controller that lets it go."""
    made = Scene(kubectl, namespace, prometheus_url, replace(idle, image=images.trainer))
    yield made
    made.delete_policy()


@pytest.fixture(scope="session")
def two_nodes(kubectl: Kubectl) -> tuple[str, str]:
    """The names of two nodes that pods can run on, on the test-bed node-a with two CPUs and node-b with one."""
    nodes = kubectl.get("nodes", "--selector=!node-role.kubernetes.io/control-plane")["items"]
    names = sorted(node["metadata"]["name"] for node in nodes if not node["spec"].get("taints"))
    if len(names) < 2:
        pytest.skip("this cluster has fewer than two nodes without taints; the trainings run on two")
    return names[0], names[1]
