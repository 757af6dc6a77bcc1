"""The leader is killed at every write of a move, or none leads any more: nothing stays suspended, gated, doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.chain import Chain
from support.gateway import Request
from support.movable import Json
from support.moving_stage import HERE, THERE, MovingStage, Once, evicts, owned, resumes, suspends
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import PLACE_GATE

FREED_WITHIN_SECONDS = 60.0

POD_LABELS = {"Job": "job-name", "StatefulSet": "app"}
"""The label that pods of each kind have, with the name of their owner."""


def chain_of(moves: MovingStage) -> Chain:
    """Two replicas that place what arrives here, and wish it there."""
    return Chain(moves.stage, lambda gateway, leading: moves.controller(gateway, leading=leading, place=HERE))


def kill_and_check(
    moves: MovingStage, chain: Chain, workload: Json, is_meant: Callable[[Request], bool], moment: str
) -> None:
    """Start a training; have the leader killed at that write of its move; it goes on all the same, and only once."""
    trainings, kind, name = moves.trainings, workload["kind"], workload["metadata"]["name"]
    chain.kill_at(is_meant, 0, moment)
    trainings.start(workload)
    wait_for(f"{name}: the leader is killed", chain.leader.is_running, lambda runs: not runs)
    chain.take_over()
    trainings.wait_for_life(name, 1, THERE, FREED_WITHIN_SECONDS)
    trainings.wait_for_steps(name)
    trainings.diary(name).check()
    assert len(trainings.live_pods(name, POD_LABELS[kind])) == 1
    moves.stage.kubectl.run("delete", kind, name, "-n", moves.stage.namespace, "--grace-period=1")


def pins_without_starting(request: Request) -> bool:
    """The write that says that a move is over."""
    return request.kind == "patch jobs" and not suspends(request) and not resumes(request)


def stores_intent(request: Request) -> bool:
    """The write of a JobGrowth that says where its pod is to go."""
    return "jobgrowths" in request.kind and bool(((request.body or {}).get("status") or {}).get("move"))


def opens_replacement(request: Request) -> bool:
    """The write that lets the new pod go where the move wants it."""
    return request.kind == "patch pods" and THERE in json.dumps(request.body)


@pytest.mark.usefixtures("needs_suspending")
def test_a_job_that_was_suspended_when_the_leader_died_is_moved_by_the_next(moves: MovingStage) -> None:
    kill_and_check(moves, chain_of(moves), moves.trainings.job("a"), suspends, "after")


@pytest.mark.faults
@pytest.mark.usefixtures("needs_suspending")
def test_a_suspension_that_is_cut_short_at_any_write_is_finished_by_the_next_leader(moves: MovingStage) -> None:
    chain = chain_of(moves)
    for number, (is_meant, moment) in enumerate(
        (meant, moment) for meant in (suspends, resumes, pins_without_starting) for moment in ("before", "after")
    ):
        kill_and_check(moves, chain, moves.trainings.job(f"job-{number}"), is_meant, moment)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_an_eviction_that_is_cut_short_at_any_write_is_finished_by_the_next_leader(
    moves: MovingStage, kind: str
) -> None:
    """The replacement in a StatefulSet has the name and the number of the pod that leaves."""
    chain, trainings = chain_of(moves), moves.trainings
    for number, (is_meant, moment) in enumerate(
        (meant, moment) for meant in (stores_intent, evicts, opens_replacement) for moment in ("before", "after")
    ):
        name = f"{kind.lower()}-{number}"
        workload = trainings.stateful_set(name) if kind == "StatefulSet" else owned(moves, trainings.gated_job(name))
        kill_and_check(moves, chain, workload, is_meant, moment)


@pytest.mark.faults
@pytest.mark.usefixtures("needs_suspending")
def test_a_sweeper_resumes_a_job_that_was_left_suspended_when_no_controller_is_there(moves: MovingStage) -> None:
    trainings, gateway = moves.trainings, moves.stage.gateway()
    trainings.start(trainings.job("left"))
    controller = moves.controller(gateway)
    gateway.after = Once(suspends, controller.kill)
    wait_for("the controller is killed", controller.is_running, lambda runs: not runs)
    wait_for("no pod is left", lambda: trainings.live_pods("left"), lambda pods: not pods)
    assert moves.is_suspended("left")

    young = sweep(moves, older_than_seconds=600)
    assert moves.is_suspended("left")
    old = sweep(moves, older_than_seconds=1)

    assert (len(young["young"]), young["freed"]) == (1, {})
    assert [what.rpartition("/")[2] for what in old["freed"]] == ["left"]
    moves.wait_moved("left", node=HERE)
    moves.wait_until_free("left")


@pytest.mark.faults
def test_a_sweeper_opens_the_gate_of_a_pod_when_no_controller_is_there(moves: MovingStage) -> None:
    stage, trainings = moves.stage, moves.trainings
    stage.kubectl.apply(trainings.gated_job("gated"), namespace=stage.namespace)
    pod = wait_for("a pod is gated", lambda: trainings.live_pods("gated"), bool)[0]
    assert pod["spec"]["schedulingGates"] == [{"name": PLACE_GATE}]

    swept = sweep(moves, older_than_seconds=1)

    assert list(swept["freed"]) == [f"pod {stage.namespace}/{pod['metadata']['name']}"]
    trainings.wait_for_steps("gated")


def sweep(moves: MovingStage, older_than_seconds: int) -> Json:
    """What one run of the CronJob has freed in this namespace, and what not."""
    kubeconfig = moves.stage.write_kubeconfig("sweeper", moves.stage.gateway())
    options = ("--older-than", str(older_than_seconds), "--kubeconfig", str(kubeconfig), "--output", "json")
    done = subprocess.run(
        [sys.executable, "-m", "slopewise", "sweep", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return dict(json.loads(done.stdout))
