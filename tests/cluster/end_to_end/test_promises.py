"""What `deadline` promises, with real trainings on the cluster.

The promise is broken by an even split, which is what the jobs start with. How much CPU a step takes differs from
machine to machine, so the deadlines are derived from what was measured on the spot a moment before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from support.scene import Json, Scene, seconds_taken
from support.waiting import wait_for

pytestmark = pytest.mark.faults

HALF_MILLICORES = 500
"""Each of two jobs on a node of one CPU."""

RESOURCES = {"control": "limits", "cpu": {"min": "20m"}}
BEHAVIOUR = {"intervalSeconds": 20, "cooldownSeconds": 10, "minChangeRatio": 0.05}

SCRAPE_SECONDS = 5

TIGHT, TIGHT_STEPS = "digits-mlp", 12_000
LOOSE, LOOSE_STEPS = "digits-lr-drop", 80_000
"""About 110 to 150 and 250 to 340 CPU-seconds, on different machines of two cores. The loose one gets less than half a
core until the tight one has ended, after some 200 s: it is far from its end then, and no test waits for that."""

ALONE = "alone"
TIGHT_RATIO, LOOSE_RATIO = 0.82, 8.0
"""Deadlines, of the time that the tight one would still take with half a core. Some 40 s of 190 go by until the
controller knows how fast it is, and then it does nine tenths of a core's work: 0.65 is what it needs, 1 is what an even
split takes, and the machine may become faster or slower by a fifth in between."""

PACE_SECONDS = 40

STEADY_RATIO = 0.12
"""Within this the two bounds above hold with room to spare; beyond it the race is run once more."""


@dataclass(frozen=True)
class Race:
    """The same training twice: managed, with a deadline and a neighbour; and unmanaged, with half a core for good."""

    took_seconds: dict[str, float]
    """Of the two that are the same training."""
    loose_seconds: float
    """That the loose one will have taken, with half a core from now on."""
    deadlines_seconds: dict[str, int]
    even_split_seconds: float
    """What the unmanaged one was expected to take when the deadlines were made."""

    @property
    def is_fair(self) -> bool:
        """The machine stayed as fast as it was when the deadlines were made; other work on it can halve its speed."""
        return abs(self.took_seconds[ALONE] / self.even_split_seconds - 1) < STEADY_RATIO


def test_deadline_keeps_what_an_even_split_would_miss(scene: Scene, two_nodes: tuple[str, str]) -> None:
    race = run_race(scene, two_nodes)
    if not race.is_fair:
        scene.kubectl.run("delete", "jobs", "--all", "--wait", "-n", scene.namespace)
        race = run_race(scene, two_nodes)
    took, deadlines = race.took_seconds, race.deadlines_seconds
    assert took[TIGHT] <= deadlines[TIGHT] < took[ALONE], race
    assert race.loose_seconds <= deadlines[LOOSE], race


def run_race(scene: Scene, two_nodes: tuple[str, str]) -> Race:
    """From the first step to the last; on the way the limits are seen to change, and to come back."""
    elsewhere, node = two_nodes
    half = f"{HALF_MILLICORES}m"
    unmanaged = scene.training(TIGHT, TIGHT_STEPS, elsewhere, half, labels={})
    unmanaged["metadata"]["name"] = ALONE
    scene.start(
        unmanaged,
        scene.training(TIGHT, TIGHT_STEPS, node, half),
        scene.training(LOOSE, LOOSE_STEPS, node, half),
    )
    # All three run, and share the machine, while the pace is measured that the deadlines are made of.
    gone, left = timed(scene, TIGHT, TIGHT_STEPS)
    deadlines = {TIGHT: round(gone + left * TIGHT_RATIO), LOOSE: round(gone + left * LOOSE_RATIO)}
    for name, seconds in deadlines.items():
        scene.annotate(name, f"slopewise.dev/deadline={seconds}s")

    scene.obey("Auto", policy={"name": "deadline"}, resources=RESOURCES, behaviour=BEHAVIOUR)
    wait_for("the tight one has ended", scene.running, lambda running: TIGHT not in running, 600)
    assert scene.limits()[LOOSE] != HALF_MILLICORES
    scene.delete_policy()
    assert scene.limits()[LOOSE] == HALF_MILLICORES
    ended = wait_for("the twin has ended", scene.pods, lambda pods: has_succeeded(pods[ALONE]), 600)
    took = {name: seconds_taken(ended[name]) for name in (TIGHT, ALONE)}
    race = Race(took, sum(timed(scene, LOOSE, LOOSE_STEPS)), deadlines, gone + left)
    print(race)
    return race


def has_succeeded(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")


def timed(scene: Scene, name: str, planned_steps: int) -> tuple[float, float]:
    """How long ago the pod of a training started, and how long it will still take at its pace of the last 40 s."""
    found = wait_for(
        f"the steps of {name} are timed", lambda: seconds_gone_and_left(scene, name, planned_steps), bool, 120
    )
    assert found is not None
    return found


def seconds_gone_and_left(scene: Scene, name: str, planned_steps: int) -> tuple[float, float] | None:
    """The same; None until it has trained for so long."""
    pod = scene.running().get(name)
    if pod is None:
        return None
    steps = f'training_steps_total{{namespace="{scene.namespace}",pod="{pod["metadata"]["name"]}"}}'
    within = f"[{PACE_SECONDS}s]"
    paces = scene.query(
        f"rate({steps}{within}) and min_over_time({steps}{within}) > 0"
        f" and count_over_time({steps}{within}) >= {PACE_SECONDS // SCRAPE_SECONDS}"
    )
    done = scene.query(steps)
    if not (paces and done):
        return None
    (pace,), (steps_done,) = paces.values(), done.values()
    gone = (datetime.now(UTC) - datetime.fromisoformat(pod["status"]["startTime"])).total_seconds()
    return gone, (planned_steps - steps_done) / pace
