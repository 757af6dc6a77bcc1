"""The target of a move fills up, is tainted or goes away: no job is stuck or lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from support.moving_stage import HERE, THERE, MovingStage, Once, resumes, tainted
from support.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("needs_suspending")]


@pytest.fixture
def ghost(moves: MovingStage) -> Iterator[str]:
    """A node that only the API server knows: a pod that is bound to it never starts."""
    kubectl, name = moves.stage.kubectl, f"ghost-{moves.stage.namespace[-8:]}"
    labels = {"kubernetes.io/hostname": name, "slopewise.dev/testbed-cpus": "2"}
    size = {"cpu": "2", "memory": "4Gi", "pods": "20"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "as the test says"}
    try:
        kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        status = {"status": {"capacity": size, "allocatable": size, "conditions": [ready]}}
        kubectl.patch("node", name, "", status, "--subresource=status")
        yield name
    finally:
        kubectl.run("delete", "node", name, "--ignore-not-found", "--wait=false")


def fill(moves: MovingStage, node: str) -> None:
    """Take nearly all the CPU that the node has to reserve, by a pod that is not managed."""
    shape = replace(moves.stage.idle, node=node, cpu_request="1960m", cpu_limit=None, labels={})
    moves.stage.kubectl.apply(shape.pod("filler"), namespace=moves.stage.namespace)
    moves.stage.kubectl.wait_running(moves.stage.namespace, "filler")


@pytest.mark.parametrize("trouble", ["full", "tainted"])
def test_a_target_that_takes_no_more_in_between_lets_the_job_go_on_where_there_is_room(
    moves: MovingStage, trouble: str
) -> None:
    trainings, gateway = moves.trainings, moves.stage.gateway()
    trainings.start(trainings.job("a"))
    with ExitStack() as stack:

        def change() -> None:
            if trouble == "full":
                fill(moves, THERE)
            else:
                stack.enter_context(tainted(moves.stage, THERE))

        gateway.before = Once(resumes, change)
        controller = moves.controller(gateway)
        moves.wait_moved("a", node=HERE)
        moves.wait_until_free("a")
        controller.wait_for_passes(1)
        assert THERE in moves.reported(controller, "a")
    assert len(trainings.live_pods("a")) == 1


def test_a_job_whose_node_is_lost_after_the_move_is_not_tied_to_it(moves: MovingStage, ghost: str) -> None:
    """Its pod there is made to look as if it ran, since nothing does on a node that is none."""
    trainings = moves.trainings
    trainings.start(trainings.job("a"))
    moves.controller(to=ghost)
    pod = wait_for("its pod is on the ghost", lambda: moves.pod_on("a", ghost), bool)
    container = {
        "name": "trainer",
        "ready": True,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": {"running": {}},
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [container]}
    assert pod is not None
    moves.stage.kubectl.patch(
        "pod", pod["metadata"]["name"], moves.stage.namespace, {"status": status}, "--subresource=status"
    )
    moves.wait_until_pinned("a", ghost)

    moves.stage.kubectl.run("delete", "node", ghost)

    moves.wait_moved("a", node=HERE)
    moves.wait_until_free("a")
