"""Somebody else acts on a job in mid-move, or after it: its user suspends or scales it, or its new node is drained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.moving_stage import HERE, THERE, MovingStage, Once, resumes
from support.waiting import wait_for

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.protocol import MERGE_PATCH
from slopewise.adapters.kube.moves.suspend.begin import job_path

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("needs_suspending")]


@pytest.fixture
def user(kubeconfig: Path) -> Iterator[KubeApi]:
    """Who acts at once; kubectl takes seconds on a busy machine."""
    api = KubeApi.connect(kubeconfig=str(kubeconfig))
    yield api
    api.close()


def set_suspended(user: KubeApi, moves: MovingStage, name: str, suspended: bool) -> None:
    user.patch(job_path(moves.stage.namespace, name), {"spec": {"suspend": suspended}}, MERGE_PATCH)


def results(moves: MovingStage, name: str) -> list[str]:
    """Of a JobGrowth's history, the oldest first."""
    return [each["result"] for each in moves.stage.growth(name).get("history", [])]


def test_a_job_that_its_user_suspends_in_mid_move_says_so_and_holds_up_no_other(
    moves: MovingStage, user: KubeApi
) -> None:
    """One move at a time, and the policy wants both jobs to the other node."""
    trainings, gateway = moves.trainings, moves.stage.gateway()
    trainings.start(trainings.job("a"), trainings.job("b"))
    gateway.after = Once(
        lambda request: resumes(request) and request.path.endswith("/a"), lambda: set_suspended(user, moves, "a", True)
    )
    moves.controller(gateway, at_once=1)

    moves.wait_moved("b")

    growth = wait_for(
        "its JobGrowth says so", lambda: moves.stage.growth("a"), lambda seen: seen.get("state") == "Suspended", 30
    )
    print(growth["state"], "|", growth["reason"], "|", *results(moves, "a"))
    assert growth["reason"] == "its Job is suspended, and not by Slopewise"
    assert results(moves, "a") == ["begun", "cancelled"]
    assert moves.is_suspended("a")
    assert trainings.live_pods("a") == []

    set_suspended(user, moves, "a", False)
    trainings.wait_for_life("a", 1)
    trainings.wait_for_steps("a")
    trainings.diary("a").check()
    wait_for("it trains again", lambda: moves.stage.growth("a").get("state"), lambda state: state == "Training")


def test_a_job_whose_new_node_is_drained_is_released_and_its_history_says_so(moves: MovingStage) -> None:
    trainings = moves.trainings
    job = trainings.job("a")
    job["spec"]["backoffLimit"] = 3  # a pod that is drained counts as failed
    trainings.start(job)
    moves.controller()
    moves.wait_moved("a")
    moves.wait_until_pinned("a")

    with drained(moves, THERE, "job-name=a"):
        trainings.wait_for_life("a", 2, HERE)
        moves.wait_until_free("a")
        seen = wait_for(
            "its history says so",
            lambda: moves.stage.growth("a").get("history", []),
            lambda seen: "released" in str(seen),
        )
    (released,) = [each for each in seen if each["result"] == "released"]
    print(released)
    assert released["change"] == f"{THERE} to any node"
    assert released["detail"].startswith(f"{THERE} has had no place for it for ")


@contextmanager
def drained(moves: MovingStage, node: str, pods: str) -> Iterator[None]:
    """As an administrator does it, of these pods only; the node takes nothing new meanwhile."""
    kubectl = moves.stage.kubectl
    try:
        kubectl.run("drain", node, f"--pod-selector={pods}", "--force", "--delete-emptydir-data", "--timeout=60s")
        yield
    finally:
        kubectl.run("uncordon", node)
