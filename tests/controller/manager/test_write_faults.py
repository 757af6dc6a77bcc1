"""A fault at every write of a controller, and watches that are late: it resizes, is frozen, and restores all the same,
and its history holds.

`make test` has a sample, `make test-faults` all of them and combinations, whose seed is in their names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from support.late_views import View, views
from support.replicas import ORIGINAL, POLICIES, SHARE, RunningReplica, Town
from support.write_faults import FAULTS, Faulty

from slopewise.adapters.kube.state.freezes import freeze_path
from testbed.histories.check import contradictions

WRITES = {"lease": 3, "store": 5, "resize": 2, "finalizer": 2, "status": 2, "freeze": 1, "event": 2}
"""Of each kind, the first ones: those of a run without a fault, but of renewals and events only two."""
ENUMERATED = [(kind, at + 1, fault) for kind, number in WRITES.items() for at in range(number) for fault in FAULTS]
SAMPLE = [("resize", 1, "answer lost"), ("store", 1, "crash after"), ("finalizer", 2, "hang when done")]
STEP_SECONDS = 90.0
"""For each step of the run: a crashed leader's lease lasts 6 s, a back-off 30 s."""
CHANGES = {"pods": 4, "jobgrowths": 4, "trainingpolicies": 4, "freezes": 2}
"""Of each kind that is watched, in a run."""
VIEWS = [(kind, wrong, view) for kind, changes in CHANGES.items() for wrong, view in views(changes).items()]
SEEN = [("pods", "last change held back"), ("jobgrowths", "expired at change 1")]
LISTED_SECONDS = 10.0
"""In a step that lasts longer all lists are read again where a watch is not on time, as they are every ten minutes."""
WATCHES_A_STEP = 4
"""So many changes of one kind follow on each other in a step, each as late."""


class Deployment:
    """One replica, and another one when that has crashed or ended, as a Deployment has it."""

    def __init__(self, town: Town, faulty: Faulty) -> None:
        self._town, self._faulty, self._stack = town, faulty, ExitStack()
        self._replica = self._start()

    def _start(self) -> RunningReplica:
        return self._stack.enter_context(self._town.replica(restore_deadline_seconds=60.0))

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Until it is so."""
        late = [WATCHES_A_STEP * each.late_seconds for each in self._town.server.views.values()]
        begun, listed = time.monotonic() + sum(late), not late
        while not condition():
            seconds = time.monotonic() - begun
            assert seconds < STEP_SECONDS, f"{what}\n" + "\n".join(map(str, self._town.lines()[-20:]))
            if seconds > LISTED_SECONDS and not listed:
                listed = True
                self._town.server.objects.forget()
                self._town.server.end_watches()
            if self._faulty.crashed or self._replica.ended():
                self._replica = self._start()
            time.sleep(0.05)

    def stop(self) -> None:
        """All of them, also the crashed ones, whose requests are dropped."""
        self._stack.close()


@pytest.fixture
def town(empty_town: Town) -> Town:
    empty_town.pod()
    return empty_town


def run(town: Town, faulty: Faulty) -> None:
    """A pod gets its share; nothing changes under a freeze; its policy is deleted, and it has its original."""
    town.client = faulty.client
    town.policy()
    deployment = Deployment(town, faulty)
    try:
        deployment.wait_for(lambda: town.limit() == SHARE, "the pod gets its share")
        town.server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": {"scope": "all"}})
        deployment.wait_for(lambda: town.found(freeze_path("f"))["status"], "the freeze says that it is in force")
        town.server.remove(freeze_path("f"))
        deployment.wait_for(lambda: town.condition("Ready") and "status" not in faulty.left, "the policy has a status")
        town.delete_policy()
        deployment.wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy is let go")
        deployment.wait_for(lambda: town.limit() == ORIGINAL, "the pod has its original")
    finally:
        deployment.stop()


def check(town: Town, plan: Mapping[tuple[str, int], str]) -> None:
    faulty = Faulty(town.server, plan)
    run(town, faulty)
    assert contradictions(faulty.events, settled=True) == []
    assert set(faulty.done) == plan.keys(), "a fault was not tried"


@pytest.mark.parametrize(("kind", "at", "fault"), SAMPLE)
def test_a_fault_at_a_write_changes_nothing_that_must_hold(town: Town, kind: str, at: int, fault: str) -> None:
    check(town, {(kind, at): fault})


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "at", "fault"), [case for case in ENUMERATED if case not in SAMPLE])
def test_every_fault_at_every_write_changes_nothing_that_must_hold(town: Town, kind: str, at: int, fault: str) -> None:
    check(town, {(kind, at): fault})


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(20))
def test_faults_at_three_writes_change_nothing_that_must_hold(town: Town, seed: int) -> None:
    drawn = random.Random(seed).sample(ENUMERATED, 3)
    check(town, {(kind, at): fault for kind, at, fault in drawn})


@pytest.mark.parametrize(
    ("kind", "view"),
    [
        pytest.param(kind, view, id=f"{kind}: {wrong}", marks=[] if (kind, wrong) in SEEN else pytest.mark.faults)
        for kind, wrong, view in VIEWS
    ],
)
def test_a_controller_that_sees_late_what_happens_does_nothing_that_must_not_be(
    town: Town, kind: str, view: Mapping[str, Any]
) -> None:
    faulty = Faulty(town.server, {})
    seen = town.server.views[kind] = View(**view)
    run(town, faulty)
    assert contradictions(faulty.events, settled=True) == []
    assert seen.reached, "there were fewer changes"
