"""A job whose move is refused holds up no other one: the next candidate is moved, and its own JobGrowth says why."""

from __future__ import annotations

import pytest
from support.moving_stage import MovingStage
from support.waiting import wait_for

BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "keep-it"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"job-name": "a-guarded"}}},
}


@pytest.mark.usefixtures("needs_suspending")
def test_a_disruption_budget_of_the_first_candidate_holds_up_no_other_move(moves: MovingStage) -> None:
    """One move at a time. The policy asks for `a-guarded` first, in every pass."""
    trainings, stage = moves.trainings, moves.stage
    stage.kubectl.apply(BUDGET, namespace=stage.namespace)
    trainings.start(trainings.job("a-guarded"), trainings.job("b-free"), trainings.job("c-free"))
    gateway = stage.gateway()
    controller = moves.controller(gateway, at_once=1)

    moves.wait_moved("b-free")
    moves.wait_moved("c-free")

    moves.check_unmoved("a-guarded")
    reason = wait_for(  # in the pass that tried it the same, without a time
        "its JobGrowth says why",
        lambda: stage.growth("a-guarded").get("reason", ""),
        lambda text: "keep-it" in text and text.startswith("not moved until "),
    )
    print(reason)
    assert "a disruption budget says no: The disruption budget keep-it needs 1 healthy pods" in reason
    controller.wait_for_passes(2)
    asked = [request for request in gateway.writes("pods/eviction") if "a-guarded" in request.path]
    assert len(asked) == 1, "it is not asked for in each pass"

    stage.kubectl.run("delete", "pdb", "keep-it", "-n", stage.namespace)
    moves.wait_moved("a-guarded")
