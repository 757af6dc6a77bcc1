"""Trainings whose Job cannot be suspended are evicted, and their gated replacements are placed."""

from __future__ import annotations

from support.movable import EXITS_ZERO, gated
from support.moving_stage import HERE, THERE, MovingStage, evicts, owned


def test_what_comes_back_behind_a_gate_is_evicted_and_placed_and_the_rest_stays(
    moves: MovingStage, jobs_can_be_suspended: bool
) -> None:
    """One that exits 0 is done, as far as its Job can know: that is reported. A Job without an owner goes this way,
    too, where none can be suspended."""
    trainings = moves.trainings
    gateway = moves.stage.gateway()
    on_failure = gated(owned(moves, trainings.job("on-failure")))
    on_failure["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    ungated = trainings.stateful_set("ungated")
    del ungated["spec"]["template"]["spec"]["schedulingGates"]
    controller = moves.controller(gateway, place=HERE)
    plain = [] if jobs_can_be_suspended else ["plain"]
    jobs = [owned(moves, trainings.gated_job("owned")), owned(moves, trainings.gated_job("exits", EXITS_ZERO))]
    jobs += [trainings.gated_job(name) for name in plain]
    trainings.start(*jobs, trainings.stateful_set("set"), on_failure, ungated)

    for name in ("owned", "set", *plain):
        moves.wait_moved(name)
    controller.wait_for_passes(2)

    moves.check_unmoved("on-failure", "ungated")
    evicted = [request.path.split("/")[-2] for request in gateway.writes("pods/eviction") if evicts(request)]
    assert sorted(name.rsplit("-", 1)[0] for name in evicted) == ["exits", "owned", *plain, "set"]
    moves.wait_reported(controller, "on-failure", "restartPolicy")
    moves.wait_reported(controller, "ungated", "gate")
    # By what a pass still sees of a pod that is there for a moment: it and its steps, it alone, or its Job.
    at_its_end = (
        "must exit non-zero then, or it counts as done",
        "had finished on",
        "its Job has ended, before it was",
    )
    moves.wait_reported(controller, "exits", *at_its_end)
    labels = ["job-name=owned", "app=set", *(f"job-name={name}" for name in plain)]
    pods = [pod for label in labels for pod in moves.pods_of(label)]
    running = [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"]
    assert running == [THERE] * len(labels)
