"""Workloads of several pods in mid-move: they move together, whatever dies or interferes; none is stuck or double."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.chain import Chain
from support.gateway import Request
from support.movable import Json, diaries
from support.moving_stage import HERE, THERE, MovingStage, Once, evicts, owned, resumes, suspends
from support.waiting import wait_for

pytestmark = pytest.mark.faults

LABELS = {"Job": "job-name", "StatefulSet": "app"}


def gang_to_evict(moves: MovingStage, name: str) -> Json:
    """A Job of two pods that may not be suspended, since something else controls it."""
    job = moves.trainings.gated_job(name)
    job["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    return owned(moves, job)


def made(moves: MovingStage, kind: str, name: str) -> Json:
    """A workload of two pods."""
    makes: dict[str, Callable[[], Json]] = {
        "suspended gang": lambda: moves.trainings.gang(name, 2),
        "evicted gang": lambda: gang_to_evict(moves, name),
        "set": lambda: moves.trainings.stateful_set(name, 2),
        "parallel set": lambda: _parallel(moves.trainings.stateful_set(name, 2)),
    }
    return makes[kind]()


def _parallel(stateful_set: Json) -> Json:
    stateful_set["spec"]["podManagementPolicy"] = "Parallel"
    return stateful_set


def live_pods(moves: MovingStage, workload: Json) -> list[Json]:
    return moves.trainings.live_pods(workload["metadata"]["name"], LABELS[workload["kind"]])


def has_moved(moves: MovingStage, workload: Json, seconds: float = 180) -> None:
    """Each of its pods goes on there and has lost no step, and no pod is too many."""
    for name in diaries(workload):
        moves.trainings.wait_for_life(name, 1, THERE, seconds)
        moves.trainings.wait_for_steps(name)
        moves.trainings.diary(name).check()
    assert [pod["spec"]["nodeName"] for pod in live_pods(moves, workload)] == [THERE] * 2


def resumed(moves: MovingStage, name: str) -> set[str]:
    """The slots of its pods that are at work again, by its history."""
    history = moves.stage.growth(name).get("history", [])
    return {each["slot"] for each in history if each["result"] == "resumed"}


@pytest.mark.usefixtures("needs_suspending")
@pytest.mark.parametrize("kind", ["evicted gang", "set", "parallel set"])
def test_the_pods_of_one_workload_move_together_although_they_come_back_one_by_one(
    moves: MovingStage, kind: str
) -> None:
    workload = made(moves, kind, "several")
    controller = moves.controller(place=HERE)
    moves.trainings.start(workload)
    has_moved(moves, workload)
    wait_for("both are reported", lambda: resumed(moves, "several"), lambda slots: slots == {"0", "1"})
    assert controller.is_running()


@pytest.mark.usefixtures("needs_suspending")
@pytest.mark.parametrize(
    ("kind", "is_meant", "number"),
    [
        ("suspended gang", suspends, 0),
        ("suspended gang", resumes, 0),
        ("evicted gang", evicts, 0),
        ("evicted gang", evicts, 1),
        ("set", evicts, 0),
        ("set", lambda request: request.kind == "patch pods" and THERE in str(request.body), 0),
    ],
    ids=["suspended", "resumed", "one of two evicted", "both evicted", "one of a set evicted", "one of a set opened"],
)
def test_a_move_of_several_pods_that_is_cut_short_is_finished_by_the_next_leader(
    moves: MovingStage, kind: str, is_meant: Callable[[Request], bool], number: int
) -> None:
    chain = Chain(moves.stage, lambda gateway, leading: moves.controller(gateway, leading=leading, place=HERE))
    workload = made(moves, kind, "several")
    chain.kill_at(is_meant, number, "after")
    moves.trainings.start(workload)
    wait_for("the leader is killed", chain.leader.is_running, lambda runs: not runs)
    chain.take_over()
    has_moved(moves, workload)


@pytest.mark.usefixtures("needs_suspending")
def test_a_set_that_its_user_scales_to_nothing_in_mid_move_says_so_and_holds_up_no_other(moves: MovingStage) -> None:
    trainings, gateway = moves.trainings, moves.stage.gateway()
    several, other = trainings.stateful_set("a-several", 2), trainings.job("b-other")
    scale = ("scale", "statefulset", "a-several", "-n", moves.stage.namespace)
    gateway.after = Once(evicts, lambda: moves.stage.kubectl.run(*scale, "--replicas=0"))
    moves.controller(gateway, place=HERE, at_once=1)
    trainings.start(several, other)

    moves.wait_moved("b-other")

    growth = wait_for(
        "it says so", lambda: moves.stage.growth("a-several"), lambda seen: seen.get("state") == "Suspended", 60
    )
    print(growth["state"], growth["reason"], [each["result"] for each in growth["history"]])
    assert growth["reason"] == "its StatefulSet has replicas: 0"
    assert "move" not in growth
    moves.stage.kubectl.run(*scale, "--replicas=2")
    for name in diaries(several):
        before = len(trainings.diary(name).lives)
        trainings.wait_for_life(name, before)
        trainings.wait_for_steps(name)
        trainings.diary(name).check()


@pytest.mark.usefixtures("needs_suspending")
def test_a_set_that_is_rolled_out_again_in_mid_move_comes_up_with_its_new_template(moves: MovingStage) -> None:
    trainings, gateway = moves.trainings, moves.stage.gateway()
    several = trainings.stateful_set("several", 2)
    restart = ("rollout", "restart", "statefulset", "several", "-n", moves.stage.namespace)
    rolled_out = gateway.after = Once(evicts, lambda: moves.stage.kubectl.run(*restart))
    moves.controller(gateway, place=HERE)
    trainings.start(several)
    wait_for("it is rolled out again", lambda: rolled_out.done, bool)
    moves.stage.kubectl.run(
        "rollout", "status", "statefulset", "several", "-n", moves.stage.namespace, "--timeout=150s"
    )
    for name in diaries(several):
        trainings.wait_for_steps(name)
        trainings.diary(name).check()
    pods = live_pods(moves, several)
    assert len(pods) == 2
    wait_for("both are reported", lambda: resumed(moves, "several"), lambda slots: slots == {"0", "1"})
    wait_for("it trains", lambda: moves.stage.growth("several"), lambda seen: seen["state"] == "Training")
    assert "move" not in moves.stage.growth("several")
