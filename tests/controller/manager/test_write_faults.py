"""A fault at every write of a controller: it resizes, is frozen, and restores all the same, and its history holds.

`make test` has a sample, `make test-faults` all of them and combinations, whose seed is in their names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
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


class Deployment:
    """One replica, and another one when that has crashed or ended, as a Deployment has it."""

    def __init__(self, town: Town, faulty: Faulty) -> None:
        self._town, self._faulty, self._stack = town, faulty, ExitStack()
        self._replica = self._start()

    def _start(self) -> RunningReplica:
        return self._stack.enter_context(self._town.replica(restore_deadline_seconds=60.0))

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Until it is so."""
        ends = time.monotonic() + STEP_SECONDS
        while not condition():
            assert time.monotonic() < ends, f"{what}\n" + "\n".join(map(str, self._town.lines()[-20:]))
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
        deployment.wait_for(lambda: town.condition("Ready"), "the policy has a status")
        town.delete_policy()
        deployment.wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy is let go")
        deployment.wait_for(lambda: town.limit() == ORIGINAL, "the pod has its original")
    finally:
        deployment.stop()


def check(town: Town, faulty: Faulty) -> None:
    run(town, faulty)
    assert contradictions(faulty.events, settled=True) == []


@pytest.mark.parametrize(("kind", "at", "fault"), SAMPLE)
def test_a_fault_at_a_write_changes_nothing_that_must_hold(town: Town, kind: str, at: int, fault: str) -> None:
    faulty = Faulty(town.server, {(kind, at): fault})
    check(town, faulty)
    assert faulty.done, "the fault was not tried"


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "at", "fault"), [case for case in ENUMERATED if case not in SAMPLE])
def test_every_fault_at_every_write_changes_nothing_that_must_hold(town: Town, kind: str, at: int, fault: str) -> None:
    check(town, Faulty(town.server, {(kind, at): fault}))


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(20))
def test_faults_at_three_writes_change_nothing_that_must_hold(town: Town, seed: int) -> None:
    drawn = random.Random(seed).sample(ENUMERATED, 3)
    check(town, Faulty(town.server, {(kind, at): fault for kind, at, fault in drawn}))
