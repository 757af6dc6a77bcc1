"""Running trainings are moved with real checkpoints: who moves, who stays and why, and what becomes of bad trainers."""

from __future__ import annotations

from functools import partial

import pytest
from support.movable import CRASHES, EXITS_ZERO, IGNORES, Json, gated
from support.moving_stage import HERE, THERE, MovingStage
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import MOVES_ALLOWED, MOVES_LABEL

MOVED = ("plain", "on-failure", "gang-0", "gang-1")

LOST = " steps, though it says that it saves when it is signalled to end"
STAYS = "withheld: move_blocked: not moved again: lost "

STEPS_TO_LOSE = 150
"""More than are done between two scrapes and a pass, so that it is seen that they are done again."""


def budget(job: str) -> Json:
    """A disruption budget of its name, by which a Job's only pod must not be disrupted."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": job},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"job-name": job}}},
    }


@pytest.mark.usefixtures("needs_suspending")
def test_who_can_come_back_goes_on_elsewhere_without_losing_a_step_and_the_others_stay(moves: MovingStage) -> None:
    """The policy wants every job to the other node at every look, also back: each moves once, and stays then."""
    trainings = moves.trainings
    moves.stage.kubectl.apply(budget("guarded"), namespace=moves.stage.namespace)
    fixed = trainings.job("fixed", annotations={"slopewise.dev/migratable": "false"})
    trainings.start(
        trainings.job("plain"), _restarting(trainings.job("on-failure")), trainings.job("guarded"),
        trainings.pod("bare"), trainings.daemon_set("daemon", node=HERE), fixed, trainings.gang("gang", 2),
    )  # fmt: skip
    controller = moves.controller(to="")

    for name in MOVED:
        moves.wait_moved(name)
    for name in ("plain", "on-failure", "gang"):
        moves.wait_until_pinned(name)
    controller.wait_for_passes(3)

    moves.check_unmoved("guarded", "bare", "daemon", "fixed")
    assert not moves.is_suspended("guarded")
    reasons = {
        "plain": "no_return: ",
        "on-failure": "no_return: ",
        "guarded": "disruption budget",
        "bare": "a bare pod is not recreated",
        "daemon": "DaemonSet",
        "fixed": "does not say that it may be moved",
    }
    for name, words in reasons.items():
        moves.wait_reported(controller, name, words)
    assert {len(trainings.diary(name).lives) for name in MOVED} == {2}


def _restarting(job: Json) -> Json:
    job["spec"]["backoffLimit"] = 6
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    return job


@pytest.mark.usefixtures("needs_suspending")
def test_a_job_is_moved_only_after_its_namespace_has_opted_in(moves: MovingStage) -> None:
    kubectl, namespace = moves.stage.kubectl, moves.stage.namespace
    kubectl.run("label", "namespace", namespace, f"{MOVES_LABEL}-")
    moves.trainings.start(moves.trainings.job("plain"))
    controller = moves.controller(to="")

    words = f"its namespace {namespace} does not opt in to moves; label it {MOVES_LABEL}={MOVES_ALLOWED}"
    wait_for("why it stays", lambda: moves.reported(controller, "plain"), lambda text: words in text)
    moves.check_unmoved("plain")

    kubectl.run("label", "namespace", namespace, f"{MOVES_LABEL}={MOVES_ALLOWED}")
    moves.wait_moved("plain")


@pytest.mark.usefixtures("needs_suspending")
def test_trainers_that_end_badly_are_moved_once_and_never_again(moves: MovingStage) -> None:
    """Only their first step is saved. Every look wants them to the other node.

    A suspended Job lets go of its pods before it deletes them, so none of them counts: neither the one that is killed
    as a failure, nor the one that exits 0 as the work done. Both are started again, and do all but a step once more.
    """
    trainings = moves.trainings
    trainings.start(
        trainings.job("ignores", IGNORES, termination_seconds=5),
        trainings.job("exits", EXITS_ZERO),
        _restarting(trainings.job("crashes", CRASHES)),
    )
    trainings.wait_for_steps("crashes", STEPS_TO_LOSE)  # and so much the others do meanwhile
    controller = moves.controller(to="")

    for name in ("ignores", "exits"):
        assert trainings.wait_for_life(name, 1, THERE) == 1
    wait_for(
        "one crashes again and again", lambda: trainings.diary("crashes").entries("begins"), lambda it: len(it) > 2
    )
    for name, words in {"ignores": LOST, "exits": LOST, "crashes": "crashed on resume: "}.items():
        wait_for(f"what {name} did", partial(moves.events, name, "MoveFailed"), bool)
        (harm,) = moves.events(name, "MoveFailed")
        assert words in harm
        assert harm.endswith("; it is not moved again")
    controller.wait_for_passes(3)

    for name in ("ignores", "exits"):
        moves.wait_reported(controller, name, STAYS)
        (resumed,) = moves.events(name, "Moved")
        assert resumed.startswith(f"resumed on {THERE} after ")
        assert resumed.endswith(" steps lost")
        assert [node for node, _ in trainings.diary(name).lives] == [HERE, THERE]
        trainings.diary(name).check(most_repeated=trainings.diary(name).steps)
        assert moves.job(name)["status"].keys().isdisjoint({"succeeded", "failed"})
    begins = [line["node"] for line in trainings.diary("crashes").entries("begins")]
    assert (begins[0], set(begins[1:])) == (HERE, {THERE})


@pytest.mark.parametrize("placed", [True, False], ids=["placed", "not-placed"])
def test_an_arriving_job_starts_where_the_policy_says_or_where_the_scheduler_does(
    moves: MovingStage, placed: bool
) -> None:
    trainings = moves.trainings
    moves.controller(to="node-b" if not placed else THERE, place=THERE if placed else "")
    trainings.start(gated(trainings.job("arrives")))
    assert trainings.diary("arrives").lives == [(THERE if placed else HERE, 0)]


@pytest.mark.usefixtures("needs_suspending")
def test_a_disruption_budget_of_the_first_candidate_holds_up_no_other_move(moves: MovingStage) -> None:
    """One move at a time. The policy asks for `a-guarded` first, in every pass; its own JobGrowth says why it stays."""
    trainings, stage = moves.trainings, moves.stage
    stage.kubectl.apply(budget("a-guarded"), namespace=stage.namespace)
    trainings.start(trainings.job("a-guarded"), trainings.job("b-free"), trainings.job("c-free"))
    gateway = stage.gateway()
    controller = moves.controller(gateway, at_once=1)

    moves.wait_moved("b-free")
    moves.wait_moved("c-free")

    moves.check_unmoved("a-guarded")
    reason = wait_for(  # in the pass that tried it the same, without a time
        "its JobGrowth says why",
        lambda: stage.growth("a-guarded").get("reason", ""),
        lambda text: "disruption budget a-guarded" in text and text.startswith("not moved until "),
    )
    print(reason)
    assert "a disruption budget says no: The disruption budget a-guarded needs 1 healthy pods" in reason
    controller.wait_for_passes(2)
    asked = [request for request in gateway.writes("pods/eviction") if "a-guarded" in request.path]
    assert len(asked) == 1, "it is not asked for in each pass"

    stage.kubectl.run("delete", "pdb", "a-guarded", "-n", stage.namespace)
    moves.wait_moved("a-guarded")
