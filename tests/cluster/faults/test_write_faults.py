"""Each fault at the writes of a policy's finalizer, and at the eviction of a move, on real kubelets.

Each run ends with the checker of histories. `tests/controller` has each fault at every kind of write, on a small API
server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import pytest
from support.api_server import Hang, Reply
from support.controller_process import ControllerProcess
from support.fault_stage import ORIGINAL, QUICK_LEASE_SECONDS, Stage
from support.gateway import DroppedError, Gateway, Request
from support.movable import MovableTrainings
from support.moving_stage import HERE, MovingStage, evicts, owned
from support.waiting import wait_for
from support.write_faults import FAULTS

from slopewise.adapters.kube.cache.records import FINALIZER
from testbed.histories.check import contradictions
from testbed.histories.events import Event

pytestmark = pytest.mark.faults

History = Callable[[], list[Event]]

REFUSALS = [name for name, fault in FAULTS.items() if isinstance(fault, Reply)]
HUNG_SECONDS = 30.0
"""Three times as long as the controller waits for an answer."""


class Faulty:
    """A controller behind a gateway that does a fault at the next write that is planned; another one after its end."""

    def __init__(self, gateway: Gateway, start: Callable[[Gateway], ControllerProcess]) -> None:
        """`start` begins a controller behind the gateway, and waits until it leads."""
        self._gateway, self._start = gateway, start
        self._fault = ""
        self._planned: Callable[[Request], bool] | None = None
        self._due: Request | None = None
        gateway.before, gateway.after = self._before, self._after
        self._controller = start(gateway)

    def plan(self, fault: str, is_meant: Callable[[Request], bool]) -> None:
        """A fault of FAULTS, at the next one of these writes."""
        self._fault, self._planned = fault, is_meant

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        """Until the fault was done and this is so."""

        def is_over() -> bool:
            if not self._controller.is_running():
                self._controller = self._start(self._gateway)
            return self._planned is None and self._due is None and done()

        wait_for(f"{self._fault}: {what}", is_over, bool)

    def _before(self, request: Request) -> None:
        if self._planned is not None and self._planned(request):
            self._planned, self._due = None, request
            if not getattr(FAULTS[self._fault], "after", False):
                self._do()

    def _after(self, request: Request, _: int) -> None:
        if request is self._due:
            self._do()

    def _do(self) -> NoReturn:
        fault = FAULTS[self._fault]
        if self._fault.startswith("crash"):
            self._controller.kill()
        self._due = None  # after the crash: whoever waits must not find the controller running
        if isinstance(fault, Hang):
            time.sleep(HUNG_SECONDS)
        raise DroppedError(fault if isinstance(fault, Reply) else None)


def holds(request: Request) -> bool:
    """The write that sets the finalizer."""
    return FINALIZER in (_finalizers(request) or ())


def lets_go(request: Request) -> bool:
    """The write that removes it."""
    found = _finalizers(request)
    return found is not None and FINALIZER not in found


def _finalizers(request: Request) -> list[str] | None:
    if request.kind != "patch trainingpolicies":
        return None
    found: list[str] | None = request.body["metadata"].get("finalizers")
    return found


def test_a_fault_at_either_write_of_a_finalizer_changes_nothing_that_must_hold(history: History, stage: Stage) -> None:
    stage.lease_seconds = QUICK_LEASE_SECONDS
    stage.pods("a")
    faulty = Faulty(stage.gateway(), stage.controller)
    for fault in FAULTS:
        faulty.plan(fault, holds)
        stage.policy()
        faulty.wait_for("the pod has its share", lambda: stage.limits("a") == {"a": 2000})

        faulty.plan(fault, lets_go)
        stage.kubectl.run("delete", "trainingpolicy", stage.name("policy"), "--wait=false")
        faulty.wait_for("the policy is gone", stage.has_no_policy)
        assert stage.cpu() == {"a": ORIGINAL}, fault
    assert contradictions(history(), settled=True) == []


@pytest.mark.parametrize(
    "faults", [REFUSALS, [each for each in FAULTS if each not in REFUSALS]], ids=["refused", "unanswered"]
)
def test_a_fault_at_an_eviction_leaves_a_job_that_trains_elsewhere_and_lost_no_step(
    history: History, moves: MovingStage, faults: Sequence[str]
) -> None:
    moves.stage.lease_seconds = QUICK_LEASE_SECONDS
    trainings = moves.trainings
    faulty = Faulty(moves.stage.gateway(), lambda gateway: moves.controller(gateway, place=HERE))
    for fault in faults:
        name = f"train-{fault.replace(' ', '-')}"
        faulty.plan(fault, evicts)
        trainings.start(owned(moves, trainings.gated_job(name)))
        faulty.wait_for("it goes on elsewhere", partial(has_moved, trainings, name))
        moves.wait_moved(name)
        faulty.wait_for("its move is over", lambda: not intents(moves))
        assert len(trainings.live_pods(name)) == 1, fault
    assert contradictions(history(), settled=True) == []


def has_moved(trainings: MovableTrainings, name: str) -> bool:
    """It has begun to train a second time."""
    return len(trainings.diary(name).lives) > 1


def intents(moves: MovingStage) -> list[object]:
    """The moves that are stored as begun."""
    growths = moves.stage.kubectl.get("jobgrowths", "-n", moves.stage.namespace)["items"]
    return [growth["status"]["move"] for growth in growths if "move" in growth.get("status", {})]
