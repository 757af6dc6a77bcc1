"""Arrivals whose objective fits on no node wait behind the gate: until there is room, or for as long as they may.

On each node other pods have reserved all CPU but some, of which a timed training needs most for its own objective. How
fast a step is differs from machine to machine, so the objective is what was measured a moment before.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from support.installation import Installation
from support.movable import gated
from support.scene import Json, Scene
from support.waiting import wait_for

from slopewise.adapters.kube.cache.quantities import cpu_millicores
from slopewise.adapters.kube.cache.records import HELD_UNTIL, PLACE_GATE
from slopewise.adapters.kube.workloads.annotations import QOE_SECONDS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

ON_LARGE, ON_SMALL = "on-large", "on-small"
TRAINING, STEPS = "digits-lr-drop", 500_000
"""More steps than the test waits for."""

LATE, NEXT = "late", "next"
"""Arrivals: one that waits longer than it may, and one that is let in when there is room."""

LEFT_MILLICORES = 650
"""Of each node, for managed jobs; the controller requests 50m of one."""

TIMED_MILLICORES = 500
"""With which the objective is just kept: more than half of what is left, which is what an arrival would take."""

SHORT_SECONDS, LONG_SECONDS = 30, 600
WINDOW_SECONDS = 15
SCRAPE_SECONDS = 5


@pytest.fixture(scope="module")
def controller(moving_controller: Installation) -> Installation:
    """One that may open gates, instead of the one that may not."""
    return moving_controller


def test_arrivals_that_fit_nowhere_wait_for_room_or_for_as_long_as_they_may(
    scene: Scene, two_nodes: tuple[str, str]
) -> None:
    large, small = two_nodes
    scene.start(
        *(reservation(scene, node) for node in two_nodes),
        training(scene, ON_LARGE, large, f"{TIMED_MILLICORES}m"),
        training(scene, ON_SMALL, small, f"{TIMED_MILLICORES}m"),
    )
    obey(scene, "Recommend", SHORT_SECONDS)
    paces = wait_for("their steps are timed", lambda: step_seconds(scene), lambda seen: len(seen) == 2, 90)
    for name, seconds in paces.items():
        scene.annotate(name, f"{QOE_SECONDS}={seconds:.4g}")
    obey(scene, "Auto", SHORT_SECONDS)
    wait_for("both are kept", lambda: promises(scene), lambda seen: {each[:5] for each in seen} == {"kept:"}, 90)
    asked = max(paces.values())

    arrive(scene, LATE, asked)
    wait_held(scene, LATE, SHORT_SECONDS)
    pod = wait_for("it is let in", lambda: scene.pods()[LATE], has_node, SHORT_SECONDS + 30)
    assert seconds_behind_gate(pod) >= SHORT_SECONDS - 1, "times are in whole seconds"
    assert "fits nowhere, and most is free here" in wait_placed(scene, pod)
    scene.end(LATE)

    obey(scene, "Auto", LONG_SECONDS)
    arrive(scene, NEXT, asked)
    wait_held(scene, NEXT, LONG_SECONDS)
    first = held_until(scene, NEXT)
    wait_for("its hold is renewed", lambda: held_until(scene, NEXT), lambda text: text > first, 60)
    assert gates(scene.pods()[NEXT]) == [PLACE_GATE]
    scene.end(ON_SMALL)
    pod = wait_for("it is let in", lambda: scene.pods()[NEXT], has_node, 45)
    assert pod["spec"]["nodeName"] == small
    assert held_until(scene, NEXT) == ""
    assert "least free CPU that fits it" in wait_placed(scene, pod)
    scene.kubectl.wait_running(scene.namespace, pod["metadata"]["name"])
    wait_for("it trains", lambda: scene.growths()[NEXT]["status"]["state"], lambda state: state == "Training", 60)
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace))


# --- what runs ----------------------------------------------------------------------------------------------


def obey(scene: Scene, mode: str, max_hold_seconds: int) -> None:
    behaviour = {"intervalSeconds": 20, "cooldownSeconds": 10, "maxHoldSeconds": max_hold_seconds}
    scene.obey(
        mode,
        policy={"name": "dqoes", "parameters": {"moves": False}},
        resources={"control": "limits", "cpu": {"min": "20m"}},
        behaviour=behaviour,
    )


def reservation(scene: Scene, node: str) -> Json:
    """A Job of somebody else that reserves all of a node but `LEFT_MILLICORES`, and uses nothing."""
    offered = cpu_millicores(scene.kubectl.get("node", node)["status"]["allocatable"]["cpu"])
    request = f"{offered - LEFT_MILLICORES}m"
    shape = replace(scene.shape, node=node, cpu_request=request, cpu_limit=None, labels={})
    return shape.job(f"reserves-{node}")


def training(scene: Scene, name: str, node: str | None, limit: str, **annotations: str) -> Json:
    """All are of one class."""
    made = scene.training(TRAINING, STEPS, node, limit, annotations=annotations)
    made["metadata"]["name"] = name
    return made


def arrive(scene: Scene, name: str, objective_seconds: float) -> None:
    """Create a gated Job that may go to either node."""
    made = gated(training(scene, name, None, "1", **{QOE_SECONDS: f"{objective_seconds:.4g}"}))
    scene.kubectl.apply(made, namespace=scene.namespace)


# --- what is seen -------------------------------------------------------------------------------------------


def step_seconds(scene: Scene) -> dict[str, float]:
    """Seconds a step of those that have trained all through the window, by the name of the Job."""
    of = f'training_steps_total{{namespace="{scene.namespace}"}}[{WINDOW_SECONDS}s]'
    filled = f"count_over_time({of}) >= {WINDOW_SECONDS // SCRAPE_SECONDS} and min_over_time({of}) > 0"
    names = {pod["metadata"]["name"]: name for name, pod in scene.pods().items()}
    return {names[pod]: 1 / rate for pod, rate in scene.query(f"rate({of}) > 0 and {filled}").items()}


def status_of(scene: Scene, name: str) -> Json:
    status: Json = scene.growths().get(name, {}).get("status", {})
    return status


def promises(scene: Scene) -> list[str]:
    """The column PROMISE of the trainings that are there first."""
    return [str(status_of(scene, name).get("promise", "")) for name in (ON_LARGE, ON_SMALL)]


def wait_held(scene: Scene, name: str, max_hold_seconds: int) -> None:
    """Wait until the pod is held back, and the pod, its JobGrowth and an event say so."""
    until = f"; waits up to {max_hold_seconds} s"
    wait_for("it is held back", lambda: status_of(scene, name).get("state"), lambda state: state == "Waiting", 30)
    reason = status_of(scene, name)["reason"]
    assert "; most free is " in reason
    assert reason.endswith(until)
    assert status_of(scene, name)["promise"].endswith("s asked")
    wait_for("an event says so", lambda: scene.events("HeldBack"), lambda notes: any(until in each for each in notes))
    wait_for("its pod says so", lambda: held_until(scene, name), bool)
    pod = scene.pods()[name]
    assert gates(pod) == [PLACE_GATE]
    assert not has_node(pod)
    print(scene.kubectl.run("get", "growth", "-n", scene.namespace))


def held_until(scene: Scene, name: str) -> str:
    """Its annotation, a time in UTC; empty: none."""
    return str(scene.pods()[name]["metadata"].get("annotations", {}).get(HELD_UNTIL, ""))


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def has_node(pod: Json) -> bool:
    return "nodeName" in pod["spec"]


def seconds_behind_gate(pod: Json) -> float:
    """From its creation until the scheduler bound it to a node."""
    (bound,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    since, created = bound["lastTransitionTime"], pod["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(since) - datetime.fromisoformat(created)).total_seconds()


def wait_placed(scene: Scene, pod: Json) -> str:
    """The note of the event about its placement."""
    chosen = f"--field-selector=reason=Placed,involvedObject.name={pod['metadata']['name']}"

    def look() -> list[Json]:
        found: list[Json] = scene.kubectl.get("events", "-n", scene.namespace, chosen)["items"]
        return found

    (event,) = wait_for("an event says where it is placed", look, bool)
    print(event["message"])
    note: str = event["message"]
    return note
