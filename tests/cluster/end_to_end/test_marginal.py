"""Five real trainings on two nodes under `marginal`, with the image as the Deployment; the leader is replaced midway.

Raw points come from the cluster's Prometheus, decisions reach the kernel as weights, and what the policy remembers of
each job is read from the API server: points, curve, and its part in the virtual sharing.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import msgspec
from support.accounts import SYSTEM
from support.installation import DEPLOYMENT
from support.scene import Scene, identity
from support.waiting import wait_for

from slopewise.estimators import raw_points
from slopewise.guards.review import guard_names
from slopewise.model import JobMemory, Points
from slopewise.policies.marginal.forecast import State, state_of

REQUEST = "100m"

ON_THE_LARGE_NODE = {"digits-mlp": 100_000, "digits-lr-drop": 200_000, "stdlib-chars": 400_000}
ON_THE_SMALL_NODE = {"digits-field": 100_000, "digits-deep-sigmoid": 400_000}
"""Steps: half an hour of CPU and more, so that none ends under the test, on any machine."""
NAMES = {*ON_THE_LARGE_NODE, *ON_THE_SMALL_NODE}

MAX_GROWTH_BYTES = 32_000
"""Of a JobGrowth of one pod."""

KINDS = ("first: ", "waits: ", "due: ")

MARGINAL: dict[str, Any] = {
    "policy": {"name": "marginal"},
    "resources": {"control": "requests", "cpu": {"min": "20m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10, "maxStepRatio": 20},
}


def test_five_trainings_are_ordered_a_new_leader_goes_on_and_each_gets_its_cpu_back(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    large, small = two_nodes
    scene.obey("Auto", **MARGINAL)
    asked = {"cpu_request": REQUEST}
    scene.start(
        *(scene.training(name, steps, large, "1", **asked) for name, steps in ON_THE_LARGE_NODE.items()),
        *(scene.training(name, steps, small, "1", **asked) for name, steps in ON_THE_SMALL_NODE.items()),
    )
    containers = {name: identity(pod) for name, pod in scene.pods().items()}

    _weights_follow_the_order_to_the_kernel(scene)
    before = _all_is_remembered(scene)
    _a_new_leader_goes_on(scene, before)
    scene.delete_policy()
    assert scene.requests() == dict.fromkeys(NAMES, REQUEST)
    assert {name: identity(pod) for name, pod in scene.pods().items()} == containers  # not one was started again


def _weights_follow_the_order_to_the_kernel(scene: Scene) -> None:
    """On each node one training is given many times the weight of another."""

    def ordered(weights: dict[str, int]) -> bool:
        of_nodes = [[weights[name] for name in on if name in weights] for on in (ON_THE_LARGE_NODE, ON_THE_SMALL_NODE)]
        return all(len(found) > 1 and max(found) > 3 * min(found) for found in of_nodes)

    weights = wait_for("each node gives one training more than another", scene.weights, ordered, 600)
    print(f"weights {weights}, requests {scene.requests()}")
    said = (*KINDS, *(f"{guard}: " for guard in guard_names()))

    def explained(reasons: dict[str, str]) -> bool:
        return (
            reasons.keys() == NAMES
            and all(any(kind in reason for kind in said) for reason in reasons.values())
            and any(KINDS[0] in reason for reason in reasons.values())
        )

    # Statuses are written beside the pass: those of this one may come after its weights.
    wait_for("each reason is one of the policy's, or a guard's", lambda: _reasons(scene), explained)
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace))
    wait_for("it is an event", lambda: scene.reasons_of_events("TrainingPolicy"), lambda seen: "Resized" in seen)


def _reasons(scene: Scene) -> dict[str, str]:
    return {name: growth.get("status", {}).get("reason", "") for name, growth in scene.growths().items()}


def _memories(scene: Scene) -> dict[str, JobMemory]:
    found = {}
    for name, growth in scene.growths().items():
        (pod,) = growth.get("status", {}).get("pods") or [{}]
        if pod.get("memory"):
            found[name] = msgspec.json.decode(pod["memory"], type=JobMemory)
    return found


def _learnt(known: JobMemory) -> tuple[Points, State]:
    assert known.points is not None
    state = state_of(known.decided.state)
    assert state is not None
    return known.points, state


def _all_is_remembered(scene: Scene) -> dict[str, JobMemory]:
    """Points, a fitted curve, and an end under fair sharing, of each training; in an object of bounded size."""

    def is_complete(known: JobMemory) -> bool:
        return (
            (known.points is not None and known.points.count > 5)
            and ((state := state_of(known.decided.state)) is not None and state.points > 0)
            and (known.decided.ends is not None and known.decided.ends.fair_seconds is not None)
        )

    memories = wait_for(
        "points, curves and ends are stored",
        lambda: _memories(scene),
        lambda found: found.keys() == NAMES and all(map(is_complete, found.values())),
        240,
    )
    for name, growth in scene.growths().items():
        points, size = _learnt(memories[name])[0], len(json.dumps(growth["status"]))
        work = [pair[0] for pair in raw_points.unpacked(points)]
        print(f"{name}: {points.count} points in {points.unit}, {points.spikes} spikes, {size} bytes")
        assert points.unit == "steps"
        assert all(earlier < later for earlier, later in pairwise(work)), name
        assert size < MAX_GROWTH_BYTES
    return memories


def _a_new_leader_goes_on(scene: Scene, before: dict[str, JobMemory]) -> None:
    """From what is stored: no point is lost, and no training stands at its beginning again under fair sharing."""
    scene.kubectl.run("rollout", "restart", DEPLOYMENT, "-n", SYSTEM)
    scene.kubectl.run("rollout", "status", DEPLOYMENT, "-n", SYSTEM, "--timeout=90s")
    restarted_at = time.time()

    def is_later(memories: dict[str, JobMemory]) -> bool:
        return all(_learnt(memories[name])[0].sampled_at_seconds > restarted_at for name in scene.running())

    after = wait_for("points of the new leader", lambda: _memories(scene), is_later)
    for name in scene.running():
        (old_points, old), (points, state) = _learnt(before[name]), _learnt(after[name])
        # Neighbouring points are averaged where there are too many: the first that is kept stays.
        assert points.count >= old_points.count // 2, name
        assert points.cpu_seconds > old_points.cpu_seconds, name
        assert state.served >= old.served > 0, name
