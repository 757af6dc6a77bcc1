"""Six real trainings on two nodes under FlowCon, with the image as the Deployment: nothing in it is simulated."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from support.scene import Scene, has_condition, identity, limit_millicores, quota_microseconds
from support.waiting import wait_for

ORIGINAL_MILLICORES = 400
"""Below an even share of both nodes, so that every limit has a reason to move."""

ON_THE_LARGE_NODE = {"stdlib-chars": 400_000, "digits-lr-drop": 200_000, "digits-field": 100_000}
ON_THE_SMALL_NODE = {"cancer-boosting": 40_000, "digits-deep-sigmoid": 400_000}
"""Steps: half an hour of CPU and more, so that none ends under the test, on any machine."""
SHORT = "digits-mlp"
"""Starts when the limits of the others have moved, and ends after a few CPU-seconds."""
SHORT_STEPS = 300

FLOWCON: dict[str, Any] = {
    "policy": {"name": "flowcon"},
    "resources": {"control": "limits", "cpu": {"min": "100m"}},
    "behaviour": {"intervalSeconds": 20, "cooldownSeconds": 10},
}


def test_trainings_go_through_every_mode_and_get_back_the_cpu_they_came_with(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    large, small = two_nodes
    limit = f"{ORIGINAL_MILLICORES}m"
    scene.obey("Recommend", **FLOWCON)
    scene.start(
        *(scene.training(name, steps, large, limit) for name, steps in ON_THE_LARGE_NODE.items()),
        *(scene.training(name, steps, small, limit) for name, steps in ON_THE_SMALL_NODE.items()),
    )
    containers = {name: identity(pod) for name, pod in scene.pods().items()}

    _it_recommends_and_changes_nothing(scene)
    scene.set_mode("Auto")
    _limits_move_down_to_the_kernel(scene)
    _growth_is_reported(scene)
    scene.kubectl.apply(scene.training(SHORT, SHORT_STEPS, large, limit), namespace=scene.namespace)
    wait_for("it is seen", scene.growths, lambda seen: SHORT in seen)
    _the_end_of_a_training_can_be_waited_for(scene)
    _deleting_the_policy_gives_the_cpu_back(scene)

    pods = {name: identity(pod) for name, pod in scene.pods().items() if name != SHORT}
    assert pods == containers  # not one was started again


def _it_recommends_and_changes_nothing(scene: Scene) -> None:
    def desired_cpu() -> dict[str, tuple[int | None, int | None, bool]]:
        statuses = {name: growth.get("status", {}) for name, growth in scene.growths().items()}
        return {
            name: (one.get("cpuMillicores"), one.get("cpuWantedMillicores"), has_condition(one, "MetricsAvailable"))
            for name, one in statuses.items()
        }

    def all_are_known(seen: dict[str, tuple[int | None, int | None, bool]]) -> bool:
        return len(seen) == 5 and all(has != wants and measured for has, wants, measured in seen.values())

    scene.wait_ready("ModeRecommend")
    wait_for("every training is measured, and another CPU is desired for it", desired_cpu, all_are_known, 600)
    pods = scene.pods()
    assert {limit_millicores(pod) for pod in pods.values()} == {ORIGINAL_MILLICORES}
    assert set(scene.quotas_microseconds(pods).values()) == {quota_microseconds(ORIGINAL_MILLICORES)}
    assert scene.reasons_of_events("Pod").isdisjoint({"Resized", "ResizeFailed"})


def _limits_move_down_to_the_kernel(scene: Scene) -> None:
    """In the cgroups: every training gets another limit, and one that grows little has some of it taken again."""
    seen: dict[str, list[int]] = {name: [] for name in (*ON_THE_LARGE_NODE, *ON_THE_SMALL_NODE)}

    def look() -> dict[str, list[int]]:
        pods = scene.running()
        for name, quota in scene.quotas_microseconds(pods).items():
            if quota == quota_microseconds(limit_millicores(pods[name])) and quota not in seen[name][-1:]:
                seen[name].append(quota)
        return seen

    def moved_and_cut(seen: dict[str, list[int]]) -> bool:
        moved = all(set(quotas) - {quota_microseconds(ORIGINAL_MILLICORES)} for quotas in seen.values())
        return moved and any(later < earlier for quotas in seen.values() for earlier, later in pairwise(quotas))

    wait_for("every limit has moved, and one was cut", look, moved_and_cut, 600)
    print(f"quotas in microseconds of each 100 ms: {seen}")


def _growth_is_reported(scene: Scene) -> None:
    head, *rows = scene.kubectl.run("get", "growth", "-n", scene.namespace).splitlines()
    print(f"{head}\n" + "\n".join(rows))

    assert head.split() == ["NAME", "STATE", "PROGRESS", "ETA", "CPU", "PROMISE", "REASON", "AGE"]
    assert {row.split()[0] for row in rows} == {*ON_THE_LARGE_NODE, *ON_THE_SMALL_NODE}
    assert all(row.split()[1] in ("Training", "Finished") and "%" in row.split()[2] for row in rows)
    wait_for(
        "pods and the policy have an event",
        lambda: [scene.reasons_of_events(kind) for kind in ("Pod", "TrainingPolicy")],
        lambda seen: all("Resized" in reasons for reasons in seen),
        60,
    )


def _the_end_of_a_training_can_be_waited_for(scene: Scene) -> None:
    finished = ("--for=condition=Finished", "--timeout=300s")
    scene.kubectl.run("wait", f"growth/{SHORT}", "-n", scene.namespace, *finished)


def _deleting_the_policy_gives_the_cpu_back(scene: Scene) -> None:
    changed = scene.limits()
    assert set(changed.values()) != {ORIGINAL_MILLICORES}

    scene.delete_policy()

    running = scene.running()
    assert running.keys() == {*ON_THE_LARGE_NODE, *ON_THE_SMALL_NODE}
    assert {limit_millicores(pod) for pod in running.values()} == {ORIGINAL_MILLICORES}
    assert {json.dumps(pod["spec"]["containers"][0]["resources"]["requests"]) for pod in running.values()} == {
        '{"cpu": "20m"}'
    }
    wait_for(
        "the cgroups have it too",
        lambda: scene.quotas_microseconds(scene.running()),
        lambda seen: set(seen.values()) == {quota_microseconds(ORIGINAL_MILLICORES)},
        60,
    )
