"""Faults at each kind of write on real kubelets; the history of each run has no contradiction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product

import pytest
from support.controller_process import ControllerProcess
from support.fault_stage import QUICK_LEASE_SECONDS, Stage
from support.gateway import Answer, DroppedError, Gateway, Request, status_answer
from support.moving_stage import MovingStage
from support.waiting import wait_for

from testbed.histories.check import contradictions
from testbed.histories.events import Event

History = Callable[[], list[Event]]

WRITES = (
    "patch pods/resize", "create jobgrowths", "patch jobgrowths/status", "patch trainingpolicies/status",
    "update leases", "create events",
)  # fmt: skip
ANSWERS: Mapping[str, Answer] = {
    "409": status_answer(409, "Conflict", "the object has been modified"),
    "429": status_answer(429, "TooManyRequests", "slow down", **{"Retry-After": "1"}),
    "500": status_answer(500, "InternalError", "no quorum"),
    "504": status_answer(504, "Timeout", "not done in time"),
}
HANG = "hang"
FAULTS = ("crash before", "crash after", "answer lost", HANG, *ANSWERS)
HUNG_SECONDS = 30.0


class Faulty:
    """The hooks of a gateway: it does the fault at each write of a kind, as often as is planned.

    A write that was not carried out is sent again, and that one is let through.
    """

    def __init__(self, gateway: Gateway, start: Callable[[], ControllerProcess]) -> None:
        """`start` begins another controller behind the gateway."""
        self._start = start
        self._controller: ControllerProcess | None = None
        self.left = 0
        """How often the fault is yet to be done."""
        self._kind = self._fault = ""
        self._seen = 0
        self._due: Request | None = None
        gateway.before, gateway.after = self._before, self._after

    def plan(self, kind: str, fault: str, times: int = 1) -> None:
        """From now on."""
        self._kind, self._fault, self._seen, self.left = kind, fault, 0, times

    def run_until_done(self) -> None:
        """Run the controller, and another one after each crash, until the faults are done."""
        while self.left or not self._runs():
            if not self._runs():
                self._controller = self._start()
            wait_for("faults", lambda: self.left, lambda left: not (left and self._runs()))

    def _runs(self) -> bool:
        return self._controller is not None and self._controller.is_running()

    def _before(self, request: Request) -> Answer | None:
        if request.kind != self._kind:
            return None
        self._seen += 1
        carried_out = self._fault in ("crash after", "answer lost")
        if not self.left or not (carried_out or self._seen % 2):
            return None
        self._due = request
        return None if carried_out else self._do()

    def _after(self, request: Request, _: int) -> None:
        if request is self._due:
            self._do()

    def _do(self) -> Answer:
        self._due = None
        if self._fault.startswith("crash"):
            assert self._controller is not None
            self._controller.kill()
        elif self._fault == HANG:
            self._kind = ""  # what is sent meanwhile is let through
            time.sleep(HUNG_SECONDS)
        self.left -= 1  # after the crash: `run_until_done` must not find the controller still running
        if self._fault in ANSWERS:
            return ANSWERS[self._fault]
        raise DroppedError


def rounds() -> Iterator[tuple[str, str]]:
    return product(WRITES, FAULTS)


@pytest.mark.faults
def test_faults_at_each_kind_of_write_leave_a_history_without_contradictions(history: History, stage: Stage) -> None:
    stage.lease_seconds = QUICK_LEASE_SECONDS
    stage.pods("a")
    stage.policy()
    gateway = stage.gateway()
    faulty = Faulty(gateway, lambda: stage.controller(gateway))
    faulty.run_until_done()
    stage.wait_for_limits({"a": 2000})
    for number, (kind, fault) in enumerate(rounds()):
        pod = f"b{number}"
        faulty.plan(kind, fault)
        stage.pods(pod)
        faulty.run_until_done()
        stage.wait_for_limits({"a": 1000, pod: 1000})
        stage.delete_pods(pod)
    stage.delete_policy()
    assert contradictions(history(), settled=True) == []


@pytest.mark.faults
@pytest.mark.usefixtures("needs_suspending")
@pytest.mark.parametrize("fault", ["answer lost", "409", "504", "crash after"])
def test_a_move_with_a_fault_at_each_of_its_writes_leaves_a_history_without_contradictions(
    history: History, moves: MovingStage, fault: str
) -> None:
    moves.stage.lease_seconds = QUICK_LEASE_SECONDS
    gateway = moves.stage.gateway()
    moves.trainings.start(moves.trainings.job("train"))
    faulty = Faulty(gateway, lambda: moves.controller(gateway, leading=False))
    faulty.plan("patch jobs", fault, times=3)  # the move is three writes of its Job
    faulty.run_until_done()
    moves.wait_until_pinned("train")
    moves.wait_moved("train")
    time.sleep(2 * QUICK_LEASE_SECONDS)  # the controller writes what it has to write
    assert contradictions(history(), settled=True) == []
