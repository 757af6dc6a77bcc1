"""The leader is killed at every write of a move by eviction: the next one goes on, and nothing is gated or doubled."""

from __future__ import annotations

import json

import pytest
from support.chain import Chain
from support.gateway import Request
from support.moving_stage import HERE, THERE, MovingStage, evicts, owned
from support.waiting import wait_for

FREED_WITHIN_SECONDS = 60.0


def stores_intent(request: Request) -> bool:
    """The write of a JobGrowth that says where its pod is to go."""
    return "jobgrowths" in request.kind and bool(((request.body or {}).get("status") or {}).get("move"))


def opens_replacement(request: Request) -> bool:
    """The write that lets the new pod go where the move wants it."""
    return request.kind == "patch pods" and THERE in json.dumps(request.body)


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "label"), [("Job", "job-name"), ("StatefulSet", "app")])
def test_an_eviction_that_is_cut_short_at_any_write_is_finished_by_the_next_leader(
    moves: MovingStage, kind: str, label: str
) -> None:
    """The replacement in a StatefulSet has the name and the number of the pod that leaves."""
    trainings = moves.trainings
    chain = Chain(moves.stage, lambda gateway, leading: moves.controller(gateway, leading=leading, place=HERE))
    for number, (is_meant, moment) in enumerate(
        (meant, moment) for meant in (stores_intent, evicts, opens_replacement) for moment in ("before", "after")
    ):
        name = f"{kind.lower()}-{number}"
        chain.kill_at(is_meant, 0, moment)
        trainings.start(
            trainings.stateful_set(name) if kind == "StatefulSet" else owned(moves, trainings.gated_job(name))
        )
        wait_for(f"{name}: the leader is killed", chain.leader.is_running, lambda runs: not runs)
        chain.take_over()
        trainings.wait_for_life(name, 1, THERE, FREED_WITHIN_SECONDS)
        trainings.wait_for_steps(name)
        trainings.diary(name).check()
        assert len(trainings.live_pods(name, label)) == 1
        moves.stage.kubectl.run("delete", kind, name, "-n", moves.stage.namespace, "--grace-period=1")
