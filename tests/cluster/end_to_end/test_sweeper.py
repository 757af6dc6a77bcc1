"""The component `moves`, added to what is installed: its CronJob frees what waits when no controller is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.accounts import SYSTEM
from support.cluster import Kubectl, PodShape
from support.fault_stage import Stage
from support.gateway import Request
from support.installation import DEPLOYMENT, Installation
from support.movable import SLOW, MovableTrainings, diaries, shared_volume
from support.moving_stage import HERE, THERE, MovingStage, evicts, suspends
from support.rendering import MANIFESTS
from support.waiting import wait_for

from testbed.settings import Settings

TWO_MINUTES_SECONDS = 120.0

pytestmark = pytest.mark.faults


@pytest.fixture
def no_controller(kubectl: Kubectl, controller: Installation, testbed_settings: Settings) -> Iterator[None]:
    """Installed with moves, and its Deployment scaled down. The component alone names the image of the test-bed."""
    component = str(MANIFESTS / "components/moves")
    kubectl.run("apply", "--server-side", "-k", component)
    try:
        kubectl.run("scale", DEPLOYMENT, "-n", SYSTEM, "--replicas=0")
        wait_for("no replica leads", lambda: controllers(kubectl), lambda pods: not pods)
        yield
    finally:
        kubectl.run("delete", "-k", component)


def controllers(kubectl: Kubectl) -> str:
    return kubectl.run("get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=controller", "-o", "name")


@pytest.fixture
def moves(
    kubectl: Kubectl,
    kubeconfig: Path,
    prometheus_url: str,
    namespace: str,
    idle: PodShape,
    tmp_path: Path,
    no_controller: None,
) -> Iterator[MovingStage]:
    """A stage with controllers of the test's own, to be killed, where no other leads and the sweeper is at work."""
    with ExitStack() as stack:
        stage = Stage(kubectl, kubeconfig, prometheus_url, namespace, idle, tmp_path, stack)
        trainings = MovableTrainings(kubectl, namespace, idle, tmp_path / "shared")
        stack.enter_context(shared_volume(trainings))
        yield MovingStage(stage, trainings)
        stage.clean_up()


@pytest.mark.usefixtures("needs_suspending")
def test_everything_that_is_in_mid_move_goes_on_within_two_minutes_although_no_controller_is_there(
    moves: MovingStage,
) -> None:
    """A Job, a gang and a set that the controller leaves half-way, and a Job whose new node is drained afterwards."""
    trainings, stage, gateway = moves.trainings, moves.stage, moves.stage.gateway()
    pinned = trainings.job("pinned")
    pinned["spec"]["backoffLimit"] = 3
    controller = moves.controller(gateway, place=HERE)
    trainings.start(pinned)
    moves.wait_moved("pinned")
    moves.wait_until_pinned("pinned")

    left, gang, several = (
        trainings.job("left", SLOW),
        trainings.gang("gang", 2, behaves=SLOW),
        trainings.stateful_set("several", 2, behaves=SLOW),
    )
    begun: set[str] = set()

    def kill_when_all_are_begun(request: Request, _: int) -> None:
        if suspends(request) or evicts(request):
            begun.add(request.path.rsplit("/jobs/", 1)[-1].rsplit("/pods/", 1)[-1])
        if len(begun) == 4:
            controller.kill()

    gateway.after = kill_when_all_are_begun
    trainings.start(left, gang, several)
    wait_for("the controller is killed", controller.is_running, lambda runs: not runs)
    killed_at = time.monotonic()
    first, second = diaries(several)  # which is made when the first one runs, and then waits for as long
    try:
        stage.kubectl.run("drain", THERE, "--pod-selector=job-name=pinned", "--force", "--timeout=60s")
        for name in [*diaries(left), *diaries(gang), first]:
            trainings.wait_for_life(name, 1, seconds=_left(killed_at))
        trainings.wait_for_life("pinned", 2, HERE, seconds=_left(killed_at))
        trainings.wait_for_life(second, 1, seconds=_left(killed_at + TWO_MINUTES_SECONDS))
    finally:
        stage.kubectl.run("uncordon", THERE)
    for name in [*diaries(left), *diaries(gang), *diaries(several), "pinned"]:
        trainings.wait_for_steps(name)
        trainings.diary(name).check()
    for name in ("left", "gang", "pinned"):
        moves.wait_until_free(name)


def _left(since: float) -> float:
    """Of two minutes, and half a minute for the sweeper's pod and the trainings to start on a busy machine."""
    return max(1.0, since + TWO_MINUTES_SECONDS + 30 - time.monotonic())
